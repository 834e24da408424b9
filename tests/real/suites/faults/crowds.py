"""The clients of the faults suite: a process per library, resource and form, each with many informers."""
import json
import queue
import subprocess
import threading

from .. import informers, stack as stacks, wire
from .gateways import PORT
from .network import SERVICE

ANSWER_SECONDS = 90
RESOURCES = {  # name: (group/version/plural, kind, for client-go)
    "pods": ("/v1/pods", "Pod", "pods"), "configmaps": ("/v1/configmaps", "ConfigMap", "configmaps"), "widgets": ("example.com/v1/widgets", "Widget", "widgets.v1.example.com"),
}
CLIENT_GO = "client-go"
SORTS = [  # library, resource, flags of client-go, share of all clients in twentieths
    (CLIENT_GO, "pods", ["--client=typed", "--content-type=protobuf", "--watch-list=on"], 2),
    (CLIENT_GO, "pods", ["--client=typed", "--content-type=protobuf", "--watch-list=off", "--http1"], 2),
    (CLIENT_GO, "pods", ["--client=metadata", "--watch-list=on"], 1),
    (CLIENT_GO, "configmaps", ["--client=typed", "--watch-list=on"], 1),
    (CLIENT_GO, "configmaps", ["--client=typed", "--watch-list=off", "--http1"], 1),
    (CLIENT_GO, "widgets", ["--client=dynamic", "--watch-list=on", "--http1"], 2),
    (CLIENT_GO, "widgets", ["--client=dynamic", "--watch-list=off"], 1),
    ("kube-rs", "pods", None, 2), ("kube-rs", "configmaps", None, 1), ("kube-rs", "widgets", None, 2),
    ("ours", "pods", None, 2), ("ours", "configmaps", None, 1), ("ours", "widgets", None, 2),
]
LIBRARIES = [CLIENT_GO, "kube-rs", "ours"]
CACHES = 4  # that these clients need: pods in JSON and in protobuf, config maps and widgets in JSON
SHARES = sum(share for *_, share in SORTS)


class Crowd:
    """A process with COUNT informers."""

    def __init__(self, library, resource, count, args, log):
        self.library, self.resource, self.count = library, resource, count
        self.log = open(log, "ab")
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.answers, self.lists = queue.Queue(), 0
        threading.Thread(target=self._read, daemon=True).start()

    def __str__(self):
        return f"{self.count} of {self.library}, {self.resource}"

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{") and (parsed := json.loads(line))["event"] in ("state", "lap"):
                self.answers.put(parsed)
        self.answers.put(None)

    def ask(self, question):
        try:
            self.process.stdin.write(f"{question}\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=ANSWER_SECONDS)
        except (OSError, queue.Empty) as e:
            raise wire.WireError(f"{self} does not answer: {e!r}; exit code {self.process.poll()}") from e
        if answer is None:
            raise wire.WireError(f"{self} ended with {self.process.wait(10)}")
        return answer

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.log.close()


def start(stack, space, total):
    """All crowds, TOTAL informers in all, in the clients' namespace."""
    url, ca, token = f"https://{SERVICE}:{PORT}", stack.pki / "ca.crt", stack.pki / "admin.token"
    config = stack.state / "clients.kubeconfig"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "one", "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": url, "certificate-authority": str(ca)}}], "users": [{"name": "one", "user": {"token": token.read_text().strip()}}]}))
    for i, (library, resource, flags, share) in enumerate(SORTS):
        path, kind, full = RESOURCES[resource]
        count = max(1, round(total * share / SHARES))
        if library == CLIENT_GO:
            args = [stacks.home() / "bin" / "informer", "--server", url, "--ca", ca, "--token", f"@{token}", "--resource", full, "--count", count, "--duration=3h", "--interactive",
                    "--content-hash=false", *flags]
        else:
            args = [informers.own_program(), "crowd", "--kubeconfig", config, "--library", library, "--resource", path, "--kind", kind, "--count", count]
        yield Crowd(library, resource, count, space.command(*args), stack.state / f"crowd-{i}.log")
