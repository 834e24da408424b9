"""Clients that accept gzip read each event of a compressed watch when it comes, and the others get what they always did."""
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from .. import fixtures, programs, tools, wire
from ..converge import clients as informers
from ..stack import Stack
from .recorder import Recorder

WATCHERS = Path(__file__).with_name("watchers.py")
JAVA_WATCHERS = Path(__file__).with_name("Watch.java")
RUST_TEST = "kube_rs::asked::prints_the_names_of_a_watch_that_accepts_gzip"
TARGET = "/api/v1/configmaps?watch=1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LENGTHS = (100, 2_000, 2_000, 2_000, 30_000, 2_000, 100)  # of the objects, one after the other
WAIT = 60  # seconds for what must arrive
START = 240  # seconds until all programs watch: they begin at once, on a machine that may be busy
PLAIN, COMPRESSED = False, True


class Printing:
    """A program that prints a line for each event."""

    def __init__(self, args, log, env=None):
        self.lines, self.log = queue.Queue(), open(log, "ab")
        self.process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=dict(os.environ, NO_PROXY="127.0.0.1", **(env or {})))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait(self, name):
        """Whether the object's event is shown, without another one behind it."""
        try:
            while line := self.lines.get(timeout=WAIT):
                if name in line:
                    return True
        except queue.Empty:
            pass
        return False

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        self.log.close()


class Informing:
    """A program with informers, some of them of config maps."""

    def __init__(self, args, log, env=None):
        self.program = programs.Program(str(args[0]), args, log, env)

    def wait(self, name):
        def told():
            informers = self.program.ask("ids")["clients"]  # client-go's have no names
            objects = [one["objects"] for key, one in informers.items() if "configmaps" in key or key.isdigit()]
            return objects and all(f"default/{name}" in one for one in objects)
        try:
            return wire.poll(name, told, WAIT)
        except wire.WireError:
            return False

    def kill(self):
        self.program.kill()


def go(*flags):
    return lambda stack, at, log: Informing(programs.client_go(stack, at, tools.needed(tools.client_go(), "client-go"), "--resource=configmaps", "--ledger", "--content-hash=false", *flags), log)


def python(library):
    return lambda stack, at, log: Printing([sys.executable, WATCHERS, library, at.url(), stack.pki / "admin.token"], log)


def kubectl(stack, at, log):
    config = stack.kubeconfig("gzip-kubectl", at.url())
    return Printing([tools.needed(tools.kubectl(), "kubectl"), "--kubeconfig", config, "get", "configmaps", "--all-namespaces", "--watch-only", "-o", "name"], log)


def curl(stack, at, log):
    token = stack.read_token("admin")
    return Printing(["curl", "-sN", "--compressed", "-H", f"Authorization: Bearer {token}", at.url() + TARGET], log)


def javascript(stack, at, log):
    modules = tools.needed(shutil.which("node") and tools.node_modules(), "node with npm")
    return Informing(["node", informers.JAVASCRIPT_PROGRAM, modules, at.url(), *informers.credentials(stack)], log)


def kube_rs(program, test):
    def start(stack, at, log):
        ca, token = informers.credentials(stack)
        env = {"KUBE_FANOUT_TEST_URL": at.url(), "KUBE_FANOUT_TEST_CA_FILE": ca, "KUBE_FANOUT_TEST_TOKEN_FILE": token}
        return program([tools.needed(tools.integration_tests(), "the program of tests/it"), "--ignored", "--exact", "--nocapture", test], log, env)
    return start


def java(client):
    def start(stack, at, log):
        jars = tools.needed(tools.okhttp(), "a JDK with OkHttp: install default-jdk-headless and libokhttp-java")
        return Printing(["java", "-cp", jars, JAVA_WATCHERS, client, at.url(), stack.pki / "admin.token"], log)
    return start


# Each opens one watch of config maps, but kube-rs's watchers two.
CLIENTS = {
    "client-go, watch-list": (go("--http1", "--watch-list=on"), COMPRESSED),
    "client-go, list and watch": (go("--http1", "--watch-list=off"), COMPRESSED),
    "client-go, protobuf": (go("--http1", "--content-type=protobuf"), COMPRESSED),
    "client-go, metadata": (go("--http1", "--client=metadata"), COMPRESSED),
    "kubectl": (kubectl, COMPRESSED),
    "kube-rs, watchers": (kube_rs(Informing, informers.RUST_TEST), PLAIN),
    "kube-rs, request_stream": (kube_rs(Printing, RUST_TEST), COMPRESSED),
    "Python, kubernetes": (python("kubernetes"), PLAIN),
    "Python, kubernetes_asyncio": (python("kubernetes_asyncio"), COMPRESSED),
    "Python, requests": (python("requests"), COMPRESSED),
    "Python, httpx": (python("httpx"), COMPRESSED),
    "Python, lightkube": (python("lightkube"), COMPRESSED),
    "JavaScript, client-node": (javascript, COMPRESSED),
    "Java, OkHttp": (java("OkHttp"), COMPRESSED),
    "Java, HttpURLConnection": (java("HttpURLConnection"), PLAIN),
    "Java, HttpClient": (java("HttpClient"), PLAIN),
    "curl --compressed": (curl, COMPRESSED),
}
WATCHES = len(CLIENTS) + 1
BEFORE = 40  # objects, enough for a compressed block of initial events
OVER_HTTP2 = 5  # watches of client-go at the gateway with TLS


@pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="there is no gateway")
def test_each_client_shows_an_event_before_the_next_one_is_written(check, during):
    with during(Stack("gzip", fixtures.with_widgets)) as stack:
        api, recorders, running = fixtures.Api(stack.server), {}, {}
        for number in range(BEFORE):
            api.create(CONFIGMAPS, {"metadata": {"name": f"before-{number:02}"}, "data": {"text": "as the others " * 40}})
        for endpoint, accept in ((stack.plain, "application/json"), (stack.plain, wire.PROTOBUF), (stack.tls, "application/json")):  # while a cache is being filled, watches may be forwarded
            fixtures.wait_served(endpoint, "/api/v1/configmaps", accept=accept)
        try:
            for name, (start, _) in CLIENTS.items():
                recorders[name] = recorder = Recorder(stack.plain)
                at = wire.Endpoint(name, "127.0.0.1", recorder.port, None, stack.token)
                running[name] = start(stack, at, stack.state / "clients.log")
            running["client-go, HTTP/2"] = go(f"--count={OVER_HTTP2}")(stack, stack.tls, stack.state / "clients.log")
            for name, recorder in recorders.items():
                wire.poll(f"{name}: a watch", recorder.watches, START)
            wire.poll("all watches are open", lambda: (opened(stack, "plain"), opened(stack, "tls")) == (WATCHES, OVER_HTTP2), START)
            showing = {name: client for name, client in running.items() if name != "kubectl"}  # it shows no initial events with --watch-only
            late = [name for name, client in showing.items() if not client.wait(f"before-{BEFORE - 1:02}")]
            check("what was there before is shown by all", not late, late)
            begun = {name: recorder.watches() for name, recorder in recorders.items()}
            for number, length in enumerate(LENGTHS):
                written = f"event-{number}"
                text = f"{number} " * (length // 2)
                api.create(CONFIGMAPS, {"metadata": {"name": written}, "data": {"text": text}})
                late = [name for name, client in running.items() if not client.wait(written)]
                check(f"{written} of {length} bytes is shown by all", not late, late)
            for name, (_, expected) in CLIENTS.items():
                check(f"{name}: {'compressed' if expected else 'not compressed'}", recorders[name].is_compressed() == expected)
                check(f"{name}: the same watch to the end", recorders[name].watches() == begun[name], f"{begun[name]} watches, then {recorders[name].watches()}")
            for kind in ("plain", "tls"):
                told, sent = (stack.gateway_metric(kind, f"kube_fanout_watch_gzip_{what}_bytes_total", resource="configmaps") for what in ("input", "sent"))
                check(f"{kind}: bytes were saved", sent < told / 2, f"{sent:.0f} of {told:.0f}")
        finally:
            for client in running.values():
                client.kill()
            for recorder in recorders.values():
                recorder.close()


def opened(stack, kind):
    return stack.gateway_metric(kind, "kube_fanout_longrunning_requests", resource="configmaps", verb="WATCH")
