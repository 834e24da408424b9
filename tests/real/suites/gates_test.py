"""A server with the feature gates for shards and CBOR enabled, requested directly and through the gateway."""
import json

import pytest

from . import fixtures, quiet, wire
from .comparison import Case, compare_answers, compare_streams
from .stack import Stack

GATES = "--feature-gates=ShardedListAndWatch=true,CBORServingAndStorage=true"
JSON, PROTOBUF = {"Accept": "application/json"}, {"Accept": "application/vnd.kubernetes.protobuf"}
PARTIALS = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
CBOR = {"Accept": "application/cbor"}
OBJECTS = 20
FROM_MEMORY_MIN = 45  # requests, by the server's audit log


def shard(*ranges, field="uid"):
    return "||".join(f"shardRange(object.metadata.{field}, '0x{a:016x}', '0x{b:016x}')" for a, b in ranges)


LOWER, UPPER = shard((0, 1 << 63)), shard((1 << 63, 1 << 64))
SELECTORS = {
    "lower half": LOWER, "upper half": UPPER, "two ranges": shard((0, 1 << 62), (1 << 63, 3 << 62)), "namespaces": shard((0, 1 << 63), field="namespace"),
    "no range": "shardRange(object.metadata.uid)", "blank": " ", "no shard": "foo",
}


@pytest.fixture(scope="module")
def stack(during):
    with during(Stack("gates", fixtures.with_widgets, audited=True, server_flags=GATES)) as stack:
        yield stack


def compare(check, stack, name, path, headers, cached=False):
    left, right = (wire.request(endpoint, "GET", path, headers) for endpoint in (stack.server, stack.plain))
    newest = fixtures.Api(stack.server).list_version(fixtures.pods())
    check(name, not (faults := compare_answers(Case(name, path, headers, cached=cached), left, right, newest)), "\n".join(faults))


def test_shards_and_cbor_are_as_at_the_server(check, stack):
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
                compare(check, stack, f"{kind}, {text}, {form}", wire.query(collection, resourceVersion=0, shardSelector=selector), headers, cached=True)
        compare(check, stack, f"{kind}, a page of a shard", wire.query(collection, resourceVersion=version, resourceVersionMatch="Exact", limit=3, shardSelector=LOWER), JSON)
        path = wire.query(collection, resourceVersion=version, resourceVersionMatch="Exact")
        answers = [wire.request(endpoint, "GET", path, CBOR) for endpoint in (stack.server, stack.plain)]
        responses = [(a.status, a.headers.get("content-type"), sorted(a.body)) for a in answers]  # the order of maps is not stable
        check(f"{kind} in CBOR", responses[0] == responses[1] and responses[0][:2] == (200, "application/cbor"), f"{[t[:2] for t in responses]}")
        halves = [len(json.loads(wire.request(stack.plain, "GET", wire.query(collection, resourceVersion=0, shardSelector=half), JSON).body)["items"]) for half in (LOWER, UPPER)]
        check(f"both halves of {kind} are all of them", sum(halves) == OBJECTS, f"{halves}")
        path = wire.query(collection, watch="true", timeoutSeconds=2, resourceVersion=0, allowWatchBookmarks="true", shardSelector=UPPER)
        left, right = (wire.Stream(endpoint, path, JSON) for endpoint in (stack.server, stack.plain))
        for stream in (left, right):
            stream.wait(lambda s: s.end is not None, 30, "its end")
        faults = compare_streams(Case("", path, JSON, watch=True), left, right)
        check(f"a watch of a shard of {kind}", not faults, "\n".join(faults))
    for half in ("lower half", "upper half"):
        name = fixtures.Api(stack.server).get(wire.query(fixtures.pods("default"), shardSelector=SELECTORS[half]))["items"][0]["metadata"]["name"]
        quiet.forms(check, f"watches of the {half}", api, stack, fixtures.pods("default"), name, shardSelector=SELECTORS[half])
    if not stack.direct:
        count = stack.answered_from_memory()
        check("requests are answered from memory", count >= FROM_MEMORY_MIN, count)
