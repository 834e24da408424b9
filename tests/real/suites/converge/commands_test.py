"""The same commands of kubectl print the same at the server and at the gateway."""
import json
import re
import subprocess
import threading
import time

import pytest

from .. import fixtures, quiet, tools, wire
from .kubectl import Kubectl

READS = """
get pods
get pods -A
get pods -o wide
get pods -o yaml
get pods -o json
get pods -o name
get pods --show-labels
get pods -l app=demo
get pods -l app!=demo,rank
get pods -l ===
get pods --field-selector=spec.nodeName=node-1
get pods --field-selector=spec.nope=1
get pods -A --field-selector=metadata.namespace!=default
get pods --chunk-size=1
get pods -A --chunk-size=2 -o name
get pods --sort-by=.metadata.name
get pods -n empty
get pod p1
get pod p1 p2 -o name
get pod p1 nope
get pods -o custom-columns=N:.metadata.name,V:.metadata.resourceVersion
get wd
get widgets -A
get wd w1 -o yaml
get widgets -l app=demo -o json
get widgets --field-selector=spec.color=blue
get widgets --chunk-size=1
get nodes
get nodes,pods
get configmaps -o yaml
get events
get nopes
get all -n default
get crd widgets.example.com -o name
get --raw /version
get --raw /api/v1/namespaces/default/pods?limit=1
get --raw /nope
describe pod p1
describe widget w1
describe pods -l app=demo
describe pod nope
api-resources
api-resources --api-group=example.com -o wide
api-versions
explain pods.spec.nodeName
explain widgets.spec --recursive
explain nopes
version
logs p1
logs nope
exec p1 -- true
auth can-i list pods
wait --for=jsonpath={.status.phase}=Running pod/p1 --timeout=5s
wait --for=delete pod/nope --timeout=5s
wait --for=condition=Ready pod/p1 --timeout=1s
rollout status deployment/nope
""".strip().splitlines()
WRITES = [  # command, file on stdin
    ("create -f -", lambda ns: fixtures.pod("k1", {"app": "k"}, namespace=ns)),
    ("create -f -", lambda ns: fixtures.pod("k1", {"app": "k"}, namespace=ns)),
    ("apply -f -", lambda ns: fixtures.widget("k2", {"app": "k"}, namespace=ns)),
    ("apply -f -", lambda ns: fixtures.widget("k2", {"app": "k"}, namespace=ns)),
    ("apply -f -", lambda ns: fixtures.widget("k2", {"app": "k", "more": "1"}, "blue", 7, namespace=ns)),
    ("apply --server-side -f -", lambda ns: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k3", "namespace": ns}, "data": {"a": "1"}}),
    ("apply --server-side -f -", lambda ns: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k3", "namespace": ns}, "data": {"a": "2"}}),
    ("apply --server-side --field-manager=other -f -", lambda ns: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k3", "namespace": ns}, "data": {"a": "3"}}),
    ("apply --dry-run=server -f -", lambda ns: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k4", "namespace": ns}}),
    ("diff -f -", lambda ns: fixtures.widget("k2", {"app": "k"}, "green", 8, namespace=ns)),
    ("patch pod k1 -p {\"metadata\":{\"annotations\":{\"x\":\"1\"}}}", None),
    ("patch widget k2 --type=merge -p {\"spec\":{\"size\":9}}", None),
    ("patch widget k2 --type=json -p [{\"op\":\"remove\",\"path\":\"/spec/color\"}]", None),
    ("patch pod nope -p {}", None),
    ("label pods --all seen=yes", None),
    ("annotate widget k2 note=hello", None),
    ("get pods,widgets,configmaps -o name", None),
    ("delete widget k2", None),
    ("delete pod nope", None),
    ("delete pods -l seen=yes", None),
    ("delete configmaps --all", None),
    ("get pods,widgets,configmaps", None),
]
WATCHES = [
    "get pods -w", "get pods --watch-only", "get pods -w --output-watch-events", "get wd -w -l app=demo", "get pods -w --field-selector=spec.nodeName=node-1",
    "get pods -w -o name", "get wd -A -w -o custom-columns=N:.metadata.name,V:.metadata.resourceVersion", "get pods -w --chunk-size=1",
]
ONE_POD = "get pod p1 -w"
ONE_POD_WRITES = 3


def plain(text, kubectl):
    """Output without the parts that differ between the sides, and without ages."""
    text = text.replace(kubectl.url, "SERVER").replace(kubectl.url.split("//")[1], "SERVER").replace(kubectl.namespace, "NAMESPACE")
    text = re.sub(r"(?<=\s)(?:\d+[smhd])+(?=\s|$)", "AGE", text)
    text = re.sub(r"/tmp/(LIVE|MERGED)-\d+\S*|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( \+\d+|Z)?", "TIME", text)
    text = re.sub(r"^E\d{4} .*?\d+ (\w+\.go)", r"E \1", text, flags=re.M)  # klog: time and pid
    return re.sub(r"(uid: |UID: +|resourceVersion: )\S+", r"\1#", text) if "NAMESPACE" in text else text


def printed(kubectl, command, make=None, own_namespace=False):
    """Everything that a command prints. MAKE(namespace) is the object that it writes."""
    done = kubectl.run(command, json.dumps(make(kubectl.namespace)) if make else None, own_namespace)
    return f"exit {done.returncode}\n{plain(done.stdout, kubectl)}--- stderr\n{plain(done.stderr, kubectl)}"


class Watching:
    """A kubectl that watches; its lines, without those of the tick."""

    def __init__(self, kubectl, command):
        self.kubectl, self.lines, self.ticks = kubectl, [], 0
        self.process = subprocess.Popen(kubectl.args(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            line = " ".join(plain(line, self.kubectl).split())
            if "tick" in line.split("/")[-1]:
                self.ticks += 1
            else:
                self.lines.append(line)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


@pytest.fixture(scope="module")
def sides(stack):
    """kubectl at the server and at a gateway."""
    program, api = tools.needed(tools.kubectl(), "kubectl 1.32 or newer, in PATH or KUBECTL"), fixtures.Api(stack.server)
    for name in ("node-0", "node-1"):
        api.create("/api/v1/nodes", {"metadata": {"name": name}})
    api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c1"}, "data": {"k": "v"}})
    for namespace in ("default", "other"):
        for i in range(1, 6):
            labels = {"app": "demo" if i % 2 else "other", "rank": str(i)}
            api.create(fixtures.pods(namespace), fixtures.pod(f"p{i}", labels, f"node-{i % 2}"))
            api.create(fixtures.widgets(namespace), fixtures.widget(f"w{i}", labels, "blue" if i % 2 else "red", i))
    sides = [Kubectl(program, stack, endpoint) for endpoint in (stack.server, stack.tls)]
    for kubectl in sides:  # fills the discovery cache on disk, and the gateways' caches
        kubectl.run("get pods,widgets -A")
    return sides


@pytest.mark.parametrize("command", READS)
def test_reads_print_the_same(sides, command):
    left, right = (printed(kubectl, command) for kubectl in sides)
    assert right == left


def test_writes_print_the_same(check, sides):
    for i, (command, make) in enumerate(WRITES, 1):
        left, right = (printed(kubectl, command, make, own_namespace=True) for kubectl in sides)
        check(f"write {i}: {command}", left == right, f"server:\n{left}\nunder test:\n{right}")


def test_watches_print_the_same(check, stack, sides):
    api = fixtures.Api(stack.server)
    pods, widgets = fixtures.pods("default"), fixtures.widgets("default")
    api.create(pods, fixtures.pod("tick", {"app": "demo"}, "node-1"))
    api.create(widgets, fixtures.widget("tick", {"app": "demo"}))
    running = {command: [Watching(side, command) for side in sides] for command in [*WATCHES, ONE_POD]}
    everyone = [w for pair in running.values() for w in pair]
    try:
        def all_started():
            api.label(f"{pods}/tick", n=str(time.monotonic_ns()))
            api.label(f"{widgets}/tick", n=str(time.monotonic_ns()))
            return all(w.ticks > 1 for c, pair in running.items() if c != ONE_POD for w in pair) and all(w.lines for w in running[ONE_POD])
        wire.poll("all watching kubectl", all_started, 60, 0.3)
        for collection, make in ((pods, fixtures.pod), (widgets, fixtures.widget)):
            api.create(collection, make("v1", {"app": "demo"}))
            api.label(f"{collection}/v1", app="other")
            api.label(f"{collection}/v1", app="demo")
            api.delete(f"{collection}/v1")
        for i in range(ONE_POD_WRITES):
            api.label(f"{pods}/p1", n=str(i))
        api.create(widgets, fixtures.widget("the-end", {"app": "demo"}))
        api.create(pods, fixtures.pod("the-end", {"app": "demo"}, "node-1"))
        ended = lambda c, w: len(w.lines) > ONE_POD_WRITES if c == ONE_POD else any("the-end" in line for line in w.lines)
        quiet.end(check, "kubectl get -w", lambda: [f"{c} at {w.kubectl.url}" for c, pair in running.items() for w in pair if not ended(c, w)], lambda: sum(len(w.lines) + w.ticks for w in everyone))
    finally:
        for w in everyone:
            w.stop()
    for command, (left, right) in running.items():
        complete = any("the-end" in l for l in left.lines) or command == ONE_POD
        check(command, left.lines == right.lines and complete, "server:\n" + "\n".join(left.lines) + "\nunder test:\n" + "\n".join(right.lines))
