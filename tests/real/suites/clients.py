"""The clients suite: unmodified client libraries other than client-go, through the gateway."""
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from . import fixtures, quiet, stack as stacks, wire
from .stack import Stack

PYTHON_CLIENT = "kubernetes>=31"
WRITES = 300
PROGRAM = Path(__file__).with_name("python_client.py")
RUST_TESTS = {"list-watch": "named::list_watch_converges", "streaming": "named::streaming_list_converges"}
RUST_SECONDS = 10  # of watching; writes may take longer, because the stores are compared until they agree


def python_with_client():
    """The interpreter of a virtual environment with the official Python client, or the reason why there is none."""
    venv = stacks.WORK / "venv"
    python = venv / "bin" / "python"
    if python.exists() and subprocess.run([str(python), "-c", "import kubernetes"], capture_output=True, timeout=60).returncode == 0:
        return str(python), None
    try:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "20", PYTHON_CLIENT],
                       check=True, capture_output=True, text=True, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        return None, f"PyPI's {PYTHON_CLIENT} cannot be installed: {str(e.stderr or e).strip()[-200:]}"
    return str(python), None


def kube_rs_program():
    """The built test program with kube-rs, or the reason why there is none."""
    if not shutil.which("cargo"):
        return None, "cargo is not installed"
    try:
        built = subprocess.run(["cargo", "test", "--locked", "--quiet", "--test", "kube_rs", "--no-run", "--message-format=json"],
                               cwd=stacks.ROOT, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return None, "cargo did not build tests/it/kube_rs.rs in time"
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    programs = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "kube_rs"]
    if built.returncode or not programs:
        raise RuntimeError(f"tests/it/kube_rs.rs cannot be built:\n{built.stderr[-3000:]}")
    return programs[-1], None


def churn(api, failures):
    try:
        for i in range(WRITES):
            for collection, make, letter in ((fixtures.pods("default"), fixtures.pod, "p"), (fixtures.widgets("default"), fixtures.widget, "w")):
                if i < 20:
                    api.create(collection, make(f"{letter}{i}", {"n": "0"}))
                elif i % 7 == 0:
                    api.call("DELETE", f"{collection}/{letter}{i % 20}", good=(200, 404))
                else:
                    api.call("PATCH", f"{collection}/{letter}{i % 20}", {"metadata": {"labels": {"n": str(i)}}}, fixtures.MERGE, good=(200, 404))
    except Exception as e:  # the caller reports it
        failures.append(e)


def truth(api, collection):
    return {f"{i['metadata']['namespace']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in api.get(collection)["items"]}


class Python:
    """A process with one client of the official library; prints its state when it changes."""

    def __init__(self, python, endpoint, stack, what, log):
        self.state, self.what = None, what
        self.log = open(log, "ab")
        env = dict(os.environ, NO_PROXY="127.0.0.1")
        self.process = subprocess.Popen([python, str(PROGRAM), endpoint.url(), str(stack.pki / "ca.crt"), str(stack.pki / "admin.token"), what],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.state = json.loads(line)

    def stop(self):
        self.process.kill()
        self.process.wait(10)
        self.log.close()


class Rust:
    """A test program with kube-rs watchers; exits when their stores agree with the server, or when they fail to."""

    def __init__(self, program, endpoint, stack, what):
        self.lines = []
        env = dict(os.environ, NO_PROXY="127.0.0.1", KUBE_FANOUT_TEST_URL=endpoint.url(), KUBE_FANOUT_TEST_DIRECT_URL=stack.server.url(),
                   KUBE_FANOUT_TEST_CA_FILE=str(stack.pki / "ca.crt"), KUBE_FANOUT_TEST_TOKEN_FILE=str(stack.pki / "admin.token"),
                   KUBE_FANOUT_TEST_SECONDS=str(RUST_SECONDS))
        self.process = subprocess.Popen([program, "--ignored", "--exact", "--nocapture", RUST_TESTS[what]], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        self.lines.extend(line.rstrip() for line in self.process.stdout)

    def watching(self):
        """Whether the stores are filled; true for a program that has ended, so that nothing waits for it."""
        return self.process.poll() is not None or any(line.endswith("watching") for line in self.lines)

    def verdict(self):
        """Whether the program succeeded, the number of changes it saw, and its output."""
        try:
            code = self.process.wait(RUST_SECONDS + 120)
        except subprocess.TimeoutExpired:
            code = "no end"
        self.reader.join(5)
        changes = [int(line.split()[-1]) for line in self.lines if "changes: " in line and line.split()[-1].isdigit()]
        return code == 0 and sum(changes) > 0, sum(changes), f"ended with {code}\n" + "\n".join(self.lines)[-6000:]

    def stop(self):
        self.process.kill()
        self.process.wait(10)


def begin_python(report, stack, kinds):
    """Starts the Python clients: (kind, endpoint, client) of each."""
    python, why = python_with_client()
    if not python:
        report.missing("the Python client", why)
        return []
    return [(what, e, Python(python, e, stack, what, stack.state / "python.log")) for what in kinds for e in (stack.plain, stack.tls)]


def judge_python(report, what, endpoint, client, wanted):
    try:
        wire.poll("the same state", lambda: client.state["objects"] == wanted, 30)
    except wire.WireError:
        pass
    got = client.state
    report.check(f"Python client converges: {what}, {endpoint.name}", got["objects"] == wanted and not got["errors"], f"client: {got}\nserver: {wanted}",
                 f"{got['events']} events, {got['watches']} watches")


def end_in_quiet(report, api, kinds, pythons):
    """Bursts, each followed by silence: every client comes to hold the server's state without a further event."""
    def write(count, length):
        for collection, name in ((fixtures.pods("default"), "before"), (fixtures.widgets("default"), "before")):
            quiet.annotate(api, f"{collection}/{name}", count, length)
        return {what: truth(api, collection) for what, collection in kinds.items()}
    behind = lambda wanted: [f"{what}, {e.name}" for what, e, client in pythons if client.state["objects"] != wanted[what]]
    quiet.bursts(report, "the Python clients", write, behind, lambda: sum(client.state["events"] for _, _, client in pythons))


def run(report):
    program, why = kube_rs_program()
    if not program:
        report.missing("kube-rs", why)
    with Stack("clients") as stack:
        api, failures = fixtures.Api(stack.server), []
        fixtures.install_crd(api)
        api.create(fixtures.pods("default"), fixtures.pod("before"))
        api.create(fixtures.widgets("default"), fixtures.widget("before"))
        kinds = {"typed pods": fixtures.pods(), "dynamic widgets": fixtures.widgets(), "custom widgets": fixtures.widgets(), "short watches of pods": fixtures.pods()}
        pythons, rusts = [], []
        try:
            pythons += begin_python(report, stack, kinds)
            for what, endpoint, client in pythons:
                wire.poll(f"the first list of {what}", lambda c=client: c.state is not None, 90)
            rusts += [(what, e, Rust(program, e, stack, what)) for what in RUST_TESTS for e in (stack.plain, stack.tls) if program]
            for what, endpoint, client in rusts:
                wire.poll(f"kube-rs, {what}", client.watching, 90)
            churn(api, failures)
            report.check("the writes ended", not failures, failures)
            for what, endpoint, client in pythons:
                judge_python(report, what, endpoint, client, truth(api, kinds[what]))
            end_in_quiet(report, api, kinds, [p for p in pythons if not p[0].startswith("short")])  # whose watches are not always open
            for what, endpoint, client in rusts:
                good, changes, said = client.verdict()
                report.check(f"kube-rs converges: {what}, {endpoint.name}", good, said, f"{changes} changes")
        finally:
            for _, _, client in pythons + rusts:
                client.stop()
