"""The differential suite: the same requests to the API server and to the endpoint under test, in the same state."""
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import fixtures, memory, quiet, wire
from ..known import Known
from ..stack import Stack
from . import lists, watches
from .case import Case, compare_answers, compare_streams

KNOWN = Path(__file__).with_name("known-differences.txt")
AT_ONCE = 8  # pairs of requests in flight; the waits of three seconds overlap
STREAMS_AT_ONCE = 30
LIVE_SECONDS = 12
MARGIN_SECONDS = 4  # a bookmark is sent two seconds before the deadline
WARM = ["/api/v1/nodes", "/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/services", "/apis/apps/v1/deployments", fixtures.pods(), fixtures.widgets()]


class State:
    """The objects and versions that the cases use."""

    def __init__(self):
        self.resources = [("pods", fixtures.pods("default"), fixtures.pods(), fixtures.pods), ("widgets", fixtures.widgets("default"), fixtures.widgets(), fixtures.widgets)]
        self.first, self.last, self.fourth_last = {"pods": "p1", "widgets": "w1"}, {"pods": "p5", "widgets": "w5"}, {"pods": "p3", "widgets": "w3"}
        self.field = {"pods": "spec.nodeName=node-1", "widgets": "spec.color=blue"}
        self.existing = {"pods": fixtures.pod("p1"), "widgets": fixtures.widget("w1")}
        self.count, self.versions, self.compacted = {}, {"pods": {}, "widgets": {}}, None

    def fill(self, api):
        for n, c, _, inside in self.resources:
            v, letter = self.versions[n], n[0]
            make = (lambda name, labels, i: fixtures.pod(name, labels, f"node-{i % 2}")) if n == "pods" else (lambda name, labels, i: fixtures.widget(name, labels, "blue" if i % 2 else "red", i))
            v["created"] = api.create(c, make(f"{letter}1", {"app": "demo", "rank": "1"}, 1))
            for i in (2, 3, 4, 5):
                api.create(c, make(f"{letter}{i}", {"app": "demo" if i % 2 else "other", "rank": str(i)}, i))
            api.create(c, make(f"{letter}10", {}, 10))
            v["updated"] = api.patch(f"{c}/{letter}1", {"metadata": {"annotations": {"n": "<1>"}}})
            api.label(f"{c}/{letter}5", last="yes")
            api.delete(f"{c}/{letter}10")
            api.create(c, make(f"{letter}0", {"app": "demo"}, 0))
            for namespace in ("a", "a-b", "elsewhere"):
                for i in (1, 2):
                    api.create(inside(namespace), make(f"x{i}", {"app": "demo"} if i == 1 else {}, i))
            api.delete(f"{c}/{letter}0")
            v["deleted"] = api.create(c, make(f"{letter}4a", {"app": "none-of-these"}, 1))
            self.count[n] = len(api.get(c)["items"])
        for name in ("node-0", "node-1"):
            api.create("/api/v1/nodes", {"metadata": {"name": name}})
        api.create("/api/v1/namespaces", {"metadata": {"name": "default"}})
        d = "/api/v1/namespaces/default"
        api.create(f"{d}/configmaps", {"metadata": {"name": "c1"}, "data": {"k": "v"}})
        api.create(f"{d}/secrets", {"metadata": {"name": "s1"}, "type": "Opaque", "data": {"k": "dg=="}})
        api.create(f"{d}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
        for name in ("e1", "e2"):
            api.create(f"{d}/events", {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p1", "namespace": "default"}, "reason": "Test", "type": "Normal"})
        api.create("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d1"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}})
        for i in range(12):
            odd = {"odd": "yes"} if i != 4 else {}
            api.create("/api/v1/namespaces/big/configmaps", {"metadata": {"name": f"b{i}", "labels": odd}, "data": {"k": f"{i}" * 20000}})
        for length in (lists.LENGTH_PLAIN, lists.LENGTH_PLAIN + 1):
            list_of_length(api, f"/api/v1/namespaces/edge-{length}/configmaps", length)

    def settle(self, api, *endpoints):
        """Reads the newest version of each resource, and waits until the endpoints under test have it."""
        for n, c, everywhere, _ in self.resources:
            self.versions[n]["now"] = newest(api.get(everywhere))
        for collection in WARM:
            for endpoint in endpoints:
                fixtures.wait_served(endpoint, collection, newest(api.get(collection)))


def list_of_length(api, collection, length):
    """Writes one object that makes the list exactly LENGTH bytes long."""
    k = "x"
    api.create(collection, {"metadata": {"name": "edge"}, "data": {"k": k}})
    for _ in range(5):
        missing = length - len(wire.request(api.endpoint, "GET", collection).body)
        if not missing:
            return
        k = k + "x" * missing if missing > 0 else k[:missing]
        api.patch(f"{collection}/edge", {"data": {"k": k}})
    raise wire.WireError(f"no list of {length} bytes")


def newest(got):
    """The newest version of the items (not the list's, which writes to other resources change)."""
    return max((fixtures.version(i) for i in got["items"]), default=0)


def conclude(report, known, case, differences, by=""):
    reason = known.reason(case.name)
    if not differences:
        report.ok(case.name, "listed as a known difference, but does not differ: remove it from the list" if reason and not report.direct else "")
    elif reason:
        report.skip(case.name, f"known difference: {reason}")
    else:
        report.fail(case.name, "\n".join([f"{case.method} {case.target} {case.headers or ''} {by}", *differences]))


def ends(stack, case):
    """The two endpoints as the case's user."""
    if case.user == "admin":
        return stack.sides(case.name, case.target, case.headers)
    token = {"denied": lambda: stack.read_token("denied"), "nobody": lambda: "nope", "anonymous": lambda: None}[case.user]()
    return stack.server.with_token(token), stack.plain.with_token(token)  # the server closes HTTP/2 connections of unauthenticated clients


def ask(endpoint, case):
    answer = wire.request(endpoint, case.method, case.target, case.headers, case.body, timeout=40)
    if answer.headers.get("content-encoding") == "gzip":
        answer.body = one_member(answer.body)
    return answer


def one_member(body):
    """The contents of a gzip member, if the body is exactly one: clients need not look for a second."""
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    said = decoder.decompress(body)
    if not decoder.eof or decoder.unused_data:
        raise ValueError("the body is not one whole gzip member")
    return said


def attempt(compare):
    """The differences, or the error that prevented a response."""
    try:
        return compare()
    except (OSError, wire.WireError, ValueError, KeyError, IndexError) as e:
        return [f"no comparison: {type(e).__name__}: {e}"]


def answer_pair(stack, pool, case, newest_known):
    left, right = ends(stack, case)
    other = pool.submit(ask, right, case)
    return compare_answers(case, ask(left, case), other.result(), newest_known)


def stream_pair(stack, case):
    left, right = (wire.Stream(e, case.target, case.headers) for e in ends(stack, case))
    try:
        for stream in (left, right):
            stream.wait_end(60)
        return compare_streams(case, left, right)
    finally:
        left.close()
        right.close()


def run_quiet(stack, report, known, cases, newest_known):
    """Cases on an unchanging state: concurrently, reported in order."""
    with ThreadPoolExecutor(AT_ONCE) as answers, ThreadPoolExecutor(STREAMS_AT_ONCE) as streams, ThreadPoolExecutor(AT_ONCE) as others:
        jobs = [(c, streams.submit(attempt, lambda c=c: stream_pair(stack, c)) if c.watch else answers.submit(attempt, lambda c=c: answer_pair(stack, others, c, newest_known)))
                for c in cases]
        for case, job in jobs:
            conclude(report, known, case, job.result(), ends(stack, case)[1].name)


def run_live(stack, report, known, state, api):
    cases = list(watches.live(state, LIVE_SECONDS))
    pairs = [tuple(wire.Stream(e, c.target, c.headers) for e in ends(stack, c)) for c in cases]
    for stream in (s for pair in pairs for s in pair):
        stream.wait_open()
    watches.write(state, api)
    done = time.monotonic()
    first = min((s.opened_at for pair in pairs for s in pair if s.opened_at), default=done)
    report.check("8.2 the writes ended while all streams were open", done < first + LIVE_SECONDS - MARGIN_SECONDS, f"they took {done - first:.1f} s: this machine is too slow or LIVE_SECONDS too small")
    for case, (left, right) in zip(cases, pairs):
        for stream in (left, right):
            stream.wait_end(60)
        conclude(report, known, case, attempt(lambda: compare_streams(case, left, right)), right.endpoint.name)
        left.close()
        right.close()


def pages(endpoint, collection, limit):
    """All items' metadata and the lists' versions, with the endpoint's own tokens."""
    items, token, versions = [], None, set()
    while len(items) < 1000:
        got = fixtures.Api(endpoint).get(wire.query(collection, limit=limit, **({"continue": token} if token else {})))
        items += [i["metadata"] for i in got["items"]]
        versions.add(got["metadata"]["resourceVersion"])
        token = got["metadata"].get("continue")
        if not token:
            return items, versions
    raise wire.WireError("the pages do not end")


def run_chain(stack, report, known, state):
    """8.1-35: pages with the tokens that each side returns."""
    for n, _, everywhere, _ in state.resources:
        for limit in (1, 3):
            def compare():
                left, right = pages(stack.server, everywhere, limit), pages(stack.plain, everywhere, limit)
                return [] if left == right and len(right[1]) == 1 else [f"server: {left}", f"under test: {right}"]
            conclude(report, known, Case(f"8.1-35 {n} list, all pages of {limit}", everywhere), attempt(compare))


def run(report):
    known = Known(KNOWN)
    with Stack("differential", fixtures.with_widgets, audited=True) as stack:
        report.direct = stack.direct
        api, state = fixtures.Api(stack.server), State()
        for endpoint in (stack.plain, stack.tls):
            warm(endpoint)  # caches that have seen every write: their history equals the server's
        state.fill(api)
        state.settle(api, stack.plain, stack.tls)
        top = api.list_version("/api/v1/nodes")
        run_quiet(stack, report, known, lists.cases(state), top)
        run_chain(stack, report, known, state)
        run_quiet(stack, report, known, watches.quiet(state), top)
        report.check("the state rested during the comparison", api.list_version("/api/v1/nodes") == top, "another client wrote")
        run_live(stack, report, known, state, api)
        quiet.forms(report, "watches of every form", api, stack, fixtures.pods("default"), "p1")
        run_expired(stack, report, known, state, api)
        if not stack.direct:
            memory.judge(report, *stack.answered_from_memory())


def warm(endpoint):
    for collection in WARM:
        fixtures.wait_served(endpoint, collection)
        if collection != fixtures.widgets():
            fixtures.wait_served(endpoint, collection, accept=wire.PROTOBUF)


def run_expired(stack, report, known, state, api):
    state.compacted = api.list_version("/api/v1/nodes")
    stack.etcd("/v3/kv/compaction", {"revision": str(state.compacted), "physical": True})
    stack.stop_gateways()
    stack.kill_server()
    stack.start_server()
    stack.start_gateways()
    for collection in WARM:
        for endpoint in (stack.server, stack.plain, stack.tls):
            fixtures.wait_served(endpoint, collection)
    run_quiet(stack, report, known, lists.expired(state), state.compacted)
