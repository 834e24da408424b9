"""Requests to the API server and to the gateway in the same state: objects at rest, one series of writes while streams are open, and
history that was compacted."""
import time
from concurrent.futures import ThreadPoolExecutor

from .. import fixtures, wire
from ..comparison import Case, ask, attempt, compare_answers, compare_streams
from . import list_requests, watch_requests

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

    @classmethod
    def placeholder(cls):
        """For the names of cases, which do not depend on versions."""
        state = cls()
        state.versions = {n: dict.fromkeys(("created", "updated", "deleted", "now"), 999) for n in state.versions}
        state.count, state.compacted = dict.fromkeys(state.versions, 9), 999
        return state

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
        for length in (list_requests.LENGTH_PLAIN, list_requests.LENGTH_PLAIN + 1):
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


def resting(state):
    return [*list_requests.cases(state), *watch_requests.quiet(state)]


def live(state):
    return list(watch_requests.live(state, LIVE_SECONDS))


def expired(state):
    return list(list_requests.expired(state))


def chains(state):
    """8.1-35: [(case, page size)], pages with the tokens that each side returns."""
    return [(Case(f"8.1-35 {n} list, all pages of {limit}", everywhere), limit) for n, _, everywhere, _ in state.resources for limit in (1, 3)]


def ends(stack, case):
    """The two endpoints as the case's user."""
    if case.user == "admin":
        return stack.sides(case.name, case.target, case.headers)
    token = {"denied": lambda: stack.read_token("denied"), "nobody": lambda: "nope", "anonymous": lambda: None}[case.user]()
    return stack.server.with_token(token), stack.plain.with_token(token)  # the server closes HTTP/2 connections of unauthenticated clients


def answer_pair(stack, pool, case, newest_known):
    left, right = ends(stack, case)
    other = pool.submit(ask, right, case)
    return compare_answers(case, ask(left, case), other.result(), newest_known)


def stream_pair(case, left, right):
    """Differences between two streams, which are read to their end."""
    try:
        for stream in (left, right):
            stream.wait_end(60)
        return compare_streams(case, left, right)
    finally:
        left.close()
        right.close()


def opened(stack, case):
    return [wire.Stream(e, case.target, case.headers) for e in ends(stack, case)]


def compare_resting(stack, cases, newest_known, conclude):
    """Concurrently, on an unchanging state. CONCLUDE(case, differences)"""
    with ThreadPoolExecutor(AT_ONCE) as answers, ThreadPoolExecutor(STREAMS_AT_ONCE) as streams, ThreadPoolExecutor(AT_ONCE) as others:
        jobs = [(c, streams.submit(attempt, lambda c=c: stream_pair(c, *opened(stack, c))) if c.watch else answers.submit(attempt, lambda c=c: answer_pair(stack, others, c, newest_known)))
                for c in cases]
        for case, job in jobs:
            conclude(case, job.result())


def compare_live(stack, state, api, conclude):
    """Returns how long before the streams' end the writes ended."""
    pairs = [(c, opened(stack, c)) for c in live(state)]
    for stream in (s for _, pair in pairs for s in pair):
        stream.wait_open()
    watch_requests.write(state, api)
    done = time.monotonic()
    first = min((s.opened_at for _, pair in pairs for s in pair if s.opened_at), default=done)
    for case, pair in pairs:
        conclude(case, attempt(lambda: stream_pair(case, *pair)))
    return first + LIVE_SECONDS - done


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


def compare_chains(stack, state, conclude):
    for case, limit in chains(state):
        def compare():
            left, right = pages(stack.server, case.target, limit), pages(stack.plain, case.target, limit)
            return [] if left == right and len(right[1]) == 1 else [f"server: {left}", f"under test: {right}"]
        conclude(case, attempt(compare))
