"""The clients suite: other programs than client-go, unmodified, through the gateway."""
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from . import fixtures, stack as stacks, wire
from .stack import Stack

PYTHON_CLIENT = "kubernetes>=31"
WRITES = 300
PROGRAM = Path(__file__).with_name("python_client.py")


def python_with_client():
    """The interpreter of a virtual environment that holds the official Python client, or why there is none."""
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
    """A process with one client of the official library; it prints its state when it changes."""

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


def run(report):
    python, why = python_with_client()
    if not python:
        report.skip("the Python client", why)
        return
    with Stack("clients") as stack:
        api, failures = fixtures.Api(stack.server), []
        fixtures.install_crd(api)
        api.create(fixtures.pods("default"), fixtures.pod("before"))
        api.create(fixtures.widgets("default"), fixtures.widget("before"))
        kinds = {"typed pods": fixtures.pods(), "dynamic widgets": fixtures.widgets(), "custom widgets": fixtures.widgets(), "short watches of pods": fixtures.pods()}
        running = [(what, e, Python(python, e, stack, what, stack.state / "python.log")) for what in kinds for e in (stack.plain, stack.tls)]
        try:
            for what, endpoint, client in running:
                wire.poll(f"the first list of {what}", lambda c=client: c.state is not None, 90)
            churn(api, failures)
            report.check("the writes ended", not failures, failures)
            for what, endpoint, client in running:
                wanted = truth(api, kinds[what])
                try:
                    wire.poll("the same state", lambda: client.state["objects"] == wanted, 30)
                except wire.WireError:
                    pass
                got = client.state
                report.check(f"Python client converges: {what}, {endpoint.name}", got["objects"] == wanted and not got["errors"], f"client: {got}\nserver: {wanted}",
                             f"{got['events']} events, {got['watches']} watches")
        finally:
            for _, _, client in running:
                client.stop()
