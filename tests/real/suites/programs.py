"""Client programs: processes that answer each line on their input with a line of JSON."""
import json
import os
import queue
import subprocess
import threading

from . import wire

ANSWER_SECONDS = 90
ANSWERS = ("contents", "state", "lap", "usage")


class Program:
    def __init__(self, name, args, log, env=None):
        self.name, self.answers = name, queue.Queue()
        self.log = open(log, "ab")
        self.process = subprocess.Popen([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=dict(os.environ, NO_PROXY="127.0.0.1", **(env or {})))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{") and (parsed := json.loads(line))["event"] in ANSWERS:
                self.answers.put(parsed)
        self.answers.put(None)

    def ask(self, question):
        """The answer; WireError if the program has ended or does not respond."""
        try:
            self.process.stdin.write(f"{question}\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=ANSWER_SECONDS)
        except (OSError, queue.Empty) as e:
            raise wire.WireError(f"{self.name} does not answer: {e!r}; exit code {self.process.poll()}") from e
        if answer is None:
            raise wire.WireError(f"{self.name} ended with {self.process.wait(10)}")
        return answer

    def finish(self):
        """Closes the program's input; returns the exit code."""
        self.process.stdin.close()
        return self.process.wait(60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.log.close()


def client_go(stack, endpoint, program, *flags):
    """The arguments of client-go's informers at an endpoint."""
    ca = ["--ca", stack.pki / "ca.crt"] if endpoint.tls else []
    return [program, "--server", endpoint.url(), "--token", f"@{stack.pki / 'admin.token'}", *ca, "--duration=3h", "--interactive", *flags]
