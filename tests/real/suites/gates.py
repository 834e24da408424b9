"""The gates suite: a server with the feature gates for shards and CBOR enabled, requested directly and through the gateway."""
import json
import os
import urllib.parse

from . import fixtures, memory, quiet, wire
from .differential.case import Case, compare_answers, compare_streams
from .stack import Stack

GATES = "--feature-gates=ShardedListAndWatch=true,CBORServingAndStorage=true"
JSON, PROTOBUF = {"Accept": "application/json"}, {"Accept": "application/vnd.kubernetes.protobuf"}
PARTIALS = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
CBOR = {"Accept": "application/cbor"}
OBJECTS = 20


def shard(*ranges, field="uid"):
    return "||".join(f"shardRange(object.metadata.{field}, '0x{a:016x}', '0x{b:016x}')" for a, b in ranges)


LOWER, UPPER = shard((0, 1 << 63)), shard((1 << 63, 1 << 64))
SELECTORS = {
    "lower half": LOWER, "upper half": UPPER, "two ranges": shard((0, 1 << 62), (1 << 63, 3 << 62)), "namespaces": shard((0, 1 << 63), field="namespace"),
    "no range": "shardRange(object.metadata.uid)", "blank": " ", "no shard": "foo",
}


def target(collection, **params):
    return f"{collection}?{urllib.parse.urlencode(params)}"


def compare(report, stack, name, path, headers, cached=False):
    left, right = (wire.request(endpoint, "GET", path, headers) for endpoint in (stack.server, stack.plain))
    newest = int(fixtures.Api(stack.server).get(fixtures.pods())["metadata"]["resourceVersion"])
    faults = compare_answers(Case(name, path, headers, cached=cached), left, right, newest)
    report.check(name, not faults, "\n".join(faults), f"{left.status}, {len(left.body)} bytes")
    return left


def run(report):
    before = os.environ.get("REAL_APISERVER_ARGS", "")
    os.environ["REAL_APISERVER_ARGS"] = f"{before} {GATES}".strip()
    try:
        with Stack("gates", fixtures.with_widgets, audited=True) as stack:
            ask(report, stack)
            for half in ("lower half", "upper half"):
                in_quiet(report, stack, half)
            if not stack.direct:
                memory.judge(report, *stack.answered_from_memory())
    finally:
        os.environ["REAL_APISERVER_ARGS"] = before


def in_quiet(report, stack, half):
    """Watches of one shard, and an object in it."""
    api = fixtures.Api(stack.server)
    name = json.loads(wire.request(stack.server, "GET", target(fixtures.pods("default"), shardSelector=SELECTORS[half]), JSON).body)["items"][0]["metadata"]["name"]
    quiet.forms(report, f"watches of the {half}", api, stack, fixtures.pods("default"), name, shardSelector=SELECTORS[half])


def ask(report, stack):
    api = fixtures.Api(stack.server)
    for i in range(OBJECTS):
        namespace = ("default", "a", "a-b")[i % 3]
        api.create(fixtures.pods(namespace), fixtures.pod(f"p{i}"))
        version = api.create(fixtures.widgets(namespace), fixtures.widget(f"w{i}"))
    for collection in (fixtures.pods(), fixtures.widgets()):
        fixtures.wait_served(stack.plain, collection, version)
    for kind, collection in (("pods", fixtures.pods()), ("widgets", fixtures.widgets())):
        for text, selector in SELECTORS.items():
            for form, headers in (("JSON", JSON), ("protobuf", PROTOBUF), ("metadata", PARTIALS)):
                compare(report, stack, f"{kind}, {text}, {form}", target(collection, resourceVersion=0, shardSelector=selector), headers, cached=True)
        compare(report, stack, f"{kind}, a page of a shard", target(collection, resourceVersion=version, resourceVersionMatch="Exact", limit=3, shardSelector=LOWER), JSON)
        path = target(collection, resourceVersion=version, resourceVersionMatch="Exact")
        answers = [wire.request(endpoint, "GET", path, CBOR) for endpoint in (stack.server, stack.plain)]
        told = [(a.status, a.headers.get("content-type"), sorted(a.body)) for a in answers]  # the order of maps is not stable
        report.check(f"{kind} in CBOR", told[0] == told[1] and told[0][:2] == (200, "application/cbor"), f"{[t[:2] for t in told]}")
        halves = [len(json.loads(wire.request(stack.plain, "GET", target(collection, resourceVersion=0, shardSelector=half), JSON).body)["items"]) for half in (LOWER, UPPER)]
        report.check(f"both halves of {kind} are all of them", sum(halves) == OBJECTS, f"{halves}")
        path = target(collection, watch="true", timeoutSeconds=2, resourceVersion=0, allowWatchBookmarks="true", shardSelector=UPPER)
        left, right = (wire.Stream(endpoint, path, JSON) for endpoint in (stack.server, stack.plain))
        for stream in (left, right):
            stream.wait(lambda s: s.end is not None, 30, "its end")
        faults = compare_streams(Case("", path, JSON, watch=True), left, right)
        report.check(f"a watch of a shard of {kind}", not faults, "\n".join(faults), f"{len(left.frames)} events")
