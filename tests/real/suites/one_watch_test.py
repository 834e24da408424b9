"""Many clients through the gateway cause one upstream watch per resource, by the server's own count."""
import gzip
import json
import threading

from . import fixtures, protobuf, quiet, wire
from .stack import Stack

CLIENTS = 200  # of each resource
WRITES = 5
GAUGE = "apiserver_longrunning_requests"


JSON = {"Accept": "application/json"}
PROTOBUF = {"Accept": "application/vnd.kubernetes.protobuf"}
PARTIAL = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
KUBECTL = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"}


class Crowd:
    """Clients of one collection: each lists, then watches from the list's version. With `initial`, half of them watch from 0."""

    def __init__(self, endpoint, collection, headers=JSON, initial=True, clients=CLIENTS):
        self.collection, self.streams = collection, []
        answer = wire.request(endpoint, "GET", wire.query(collection, resourceVersion=0))
        start = json.loads(answer.body)["metadata"]["resourceVersion"]
        for i in range(clients):
            params = {"resourceVersion": start} if i % 2 or not initial else {"resourceVersion": 0, "allowWatchBookmarks": "true"}
            self.streams.append(wire.Stream(endpoint, wire.query(collection, watch="true", timeoutSeconds=300, **params), headers))

    def wait_open(self):
        for stream in self.streams:
            stream.wait_open(60)
        return sum(s.status in (200, 101) for s in self.streams)

    def wait_all(self, versions):
        """The number of clients that received all of these versions, in order and once."""
        def good(stream):
            return [v for v in seen(stream) if v in versions] == versions
        for stream in self.streams:
            try:
                stream.wait(good, 30, "all events")
            except wire.WireError as e:
                print(f"     | {e}")
        return sum(good(s) for s in self.streams)

    def close(self):
        threads = [threading.Thread(target=s.close) for s in self.streams]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def seen(stream):
    out = []
    for frame in list(stream.frames):
        if stream.binary:
            kind, raw = protobuf.event(frame)
            out += [int(protobuf.object_version(protobuf.unwrap(raw)[1]))] if kind != "BOOKMARK" else []
            continue
        parsed = json.loads(frame)
        if parsed["type"] != "BOOKMARK":
            out.append(int(parsed["object"]["metadata"].get("resourceVersion", 0)))
    return out


class CountedStack(Stack):
    """Its gateways send no more requests than an operator's."""

    gateway_flags = ()


def test_many_clients_are_one_watch_upstream(check, during):
    with during(CountedStack("one-watch", fixtures.with_widgets)) as stack:
        api = fixtures.Api(stack.server)
        for i in range(5):
            api.create(fixtures.pods("default"), fixtures.pod(f"p{i}"))
            api.create(fixtures.widgets("default"), fixtures.widget(f"w{i}"))
        resources = {"pods": (fixtures.pods(), f"{fixtures.pods('default')}/p0"), "widgets": (fixtures.widgets(), f"{fixtures.widgets('default')}/w0")}
        before = {name: stack.metric(GAUGE, verb="WATCH", resource=name) for name in resources}

        def watches(name, expected):
            """The increase since the start, once it is as expected or after ten seconds; immediately if no increase is expected."""
            more = lambda: stack.metric(GAUGE, verb="WATCH", resource=name) - before[name]
            if expected is None:
                return more()
            try:
                wire.poll("the count of watches", lambda: more() == expected, 10, 0.3)
            except wire.WireError:
                pass
            return more()
        crowds = {name: Crowd(stack.plain, collection) for name, (collection, _) in resources.items()}
        try:
            for name, crowd in crowds.items():
                opened = crowd.wait_open()
                check(f"{CLIENTS} clients watch {name}", opened == CLIENTS, f"{opened} of {CLIENTS} streams answered 200")
                expected = CLIENTS if stack.direct else 1
                got = watches(name, expected)
                check(f"the server counts {expected} watch(es) of {name}", got == expected, f"before {before[name]:.0f}, now {got:.0f} more")
            for name, (_, target) in resources.items():
                versions = [api.label(target, n=str(i)) for i in range(WRITES)]
                good = crowds[name].wait_all(versions)
                check(f"all clients of {name} got {WRITES} events", good == CLIENTS, f"{good} of {CLIENTS}")
                end_in_quiet(check, f"clients of {name}", api, target, crowds[name], crowds)
                got = watches(name, expected)
                check(f"the server still counts {expected} watch(es) of {name}", got == expected, f"{got:.0f}")
            watch_in_other_forms(check, stack, api, crowds, watches)
            watch_by_socket(check, stack, api, crowds, watches)
            watch_tables(check, stack, api, crowds, watches)
            if not stack.direct:
                lists = stack.metric("apiserver_request_total", verb="LIST", resource="pods")
                check("lists of pods upstream are few", lists <= 8, f"{lists:.0f} lists")
        finally:
            for crowd in crowds.values():
                crowd.close()


def end_in_quiet(check, name, api, target, crowd, crowds):
    quiet.stream_bursts(check, name, api, target, crowd.streams)
    for one in crowds.values():  # hundreds of streams would hold hundreds of megabytes
        for stream in one.streams:
            stream.forget()


def watch_in_other_forms(check, stack, api, crowds, watches):
    """Metadata is derived from the existing cache, in either encoding; protobuf needs one more watch, for any number of clients."""
    pods, target = fixtures.pods(), f"{fixtures.pods('default')}/p0"
    for name, accept, more in (("metadata in JSON", JSON["Accept"] + PARTIAL, 0), ("protobuf", PROTOBUF["Accept"], 1), ("metadata in protobuf", PROTOBUF["Accept"] + PARTIAL, 0)):
        before = watches("pods", None)
        crowd = crowds.setdefault(name, Crowd(stack.plain, pods, {"Accept": accept}, clients=CLIENTS // 2))
        opened = crowd.wait_open()
        check(f"{CLIENTS // 2} clients watch pods as {name}", opened == CLIENTS // 2, f"{opened}")
        expected = CLIENTS // 2 if stack.direct else more
        got = watches("pods", before + expected) - before
        check(f"the server counts {expected} more watch(es) of pods", got == expected, f"{got:.0f}")
        versions = [api.label(target, form=f"{i}") for i in range(WRITES)]
        good = crowd.wait_all(versions)
        check(f"all of them got {WRITES} events", good == CLIENTS // 2, f"{good}")
        end_in_quiet(check, f"clients of pods as {name}", api, target, crowd, crowds)


def watch_by_socket(check, stack, api, crowds, watches):
    """Watches over WebSocket share the upstream watch; over TLS too, where the other gateway has a watch of its own."""
    pods, target = fixtures.pods(), f"{fixtures.pods('default')}/p0"
    before = watches("pods", None)
    here, over_tls = Crowd(stack.plain, pods, wire.WEBSOCKET), Crowd(stack.tls, pods, wire.WEBSOCKET, clients=20)
    crowds.update(sockets=here, sockets_over_tls=over_tls)
    opened = here.wait_open() + over_tls.wait_open()
    check(f"{CLIENTS} clients watch pods over WebSocket, 20 also over TLS", opened == CLIENTS + 20, f"{opened}")
    expected = CLIENTS + 20 if stack.direct else 1
    got = watches("pods", before + expected) - before
    check(f"the server counts {expected} more watch(es) of pods", got == expected, f"{got:.0f}")
    versions = [api.label(target, socket=str(i)) for i in range(WRITES)]
    for name, crowd in (("plain", here), ("TLS", over_tls)):
        good = crowd.wait_all(versions)
        check(f"all clients over WebSocket ({name}) got {WRITES} events", good == len(crowd.streams), f"{good}")
    for name in ("sockets", "sockets_over_tls"):
        end_in_quiet(check, f"clients over WebSocket ({name})", api, target, crowds[name], crowds)
        crowds.pop(name).close()


def watch_tables(check, stack, api, crowds, watches):
    """The Tables of kubectl get -w: one more watch for all clients, and each client receives the events of a direct watch."""
    pods, target = fixtures.pods(), f"{fixtures.pods('default')}/p0"
    expected = CLIENTS if stack.direct else 0
    before = watches("pods", None)
    halves = []
    for i in range(2):  # the second half connects later, from a version of its own
        halves.append(crowds.setdefault(f"tables{i}", Crowd(stack.plain, pods, KUBECTL, initial=False, clients=CLIENTS // 2)))
        opened = halves[-1].wait_open()
        check(f"{CLIENTS // 2} clients watch pods as Tables", opened == CLIENTS // 2, f"{opened}")
        api.label(target, half=str(i))
    got = watches("pods", before + (expected or 1)) - before
    check(f"the server counts {expected or 1} watch(es) of Tables", got == (expected or 1), f"{got:.0f}")
    start = min(int(s.target.split("resourceVersion=")[1]) for s in halves[0].streams)
    direct = crowds.setdefault("direct", Crowd(stack.server, pods, KUBECTL, initial=False, clients=0))
    direct.streams.append(wire.Stream(stack.server, wire.query(pods, watch="true", timeoutSeconds=300, resourceVersion=start), KUBECTL))
    versions = [api.label(target, table=str(i)) for i in range(WRITES)]
    streams = [s for half in halves for s in half.streams]
    quiet.end(check, "clients of Tables", lambda: quiet.without(streams, versions), lambda: sum(s.received for s in streams))
    direct.wait_all(versions)
    rows = [json.loads(f) for f in direct.streams[0].frames]
    columns = rows[0]["object"]["columnDefinitions"]
    for half in halves:
        good = half.wait_all(versions)
        check(f"all clients of Tables got {WRITES} events", good == len(half.streams), f"{good}")
        same = sum(as_direct(s, rows, columns) for s in half.streams)
        check("they are those of a direct watch, columns in the first", same == len(half.streams), f"{same} of {len(half.streams)}")


def as_direct(stream, rows, columns):
    after = int(stream.target.split("resourceVersion=")[1])
    got = [json.loads(f) for f in stream.frames]
    want = [row for row in rows if int(row["object"]["metadata"]["resourceVersion"]) > after]
    definitions = [row["object"]["columnDefinitions"] for row in got]
    bare = lambda some: [{**row, "object": {**row["object"], "columnDefinitions": None}} for row in some]
    return bare(got) == bare(want) and definitions[0] == columns and set(map(str, definitions[1:])) <= {"None"}


POLLERS = 12  # of Tables, as kubectl get lists them
ROUNDS = 20


def test_lists_of_tables_are_shared(check, during):
    """Whoever lists after a write sees it, whichever client's list is given; and lists cost fewer requests than there are clients."""
    with during(CountedStack("tables", fixtures.with_widgets)) as stack:
        api = fixtures.Api(stack.server)
        pods = fixtures.pods("default")
        for i in range(5):
            api.create(pods, fixtures.pod(f"p{i}"))
        crowd = Crowd(stack.plain, fixtures.pods(), clients=1)  # so that there is a cache, which tells whether pods have changed
        crowd.wait_open()
        written, stale, wrong, counted, stop = [0], [], [], [], threading.Event()
        target = wire.query(pods, limit=500)

        def lists(headers):
            while not stop.is_set():
                known = written[0]
                counted.append(1)
                answer = wire.request(stack.plain, "GET", target, headers)
                if answer.status != 200:
                    wrong.append((answer.status, answer.body))
                    return
                body = gzip.decompress(answer.body) if answer.headers.get("content-encoding") == "gzip" else answer.body
                version = max(int(row["object"]["metadata"]["resourceVersion"]) for row in json.loads(body)["rows"])
                if version < known:
                    stale.append((known, version))

        pollers = [threading.Thread(target=lists, args=({**KUBECTL, **({"Accept-Encoding": "gzip"} if i % 2 else {})},)) for i in range(POLLERS)]
        for poller in pollers:
            poller.start()
        try:
            for i in range(ROUNDS):
                written[0] = max(written[0], api.label(f"{pods}/p0", listed=str(i)))
                counted.append(1)
                once = wire.request(stack.plain, "GET", target, KUBECTL)
                version = max(int(row["object"]["metadata"]["resourceVersion"]) for row in json.loads(once.body)["rows"])
                if version < written[0]:
                    stale.append((written[0], version))
        finally:
            stop.set()
            for poller in pollers:
                poller.join()
            crowd.close()
        check("each list is answered", not wrong, f"{wrong[:3]}")
        check("each list has what was written before it", not stale, f"{stale[:3]}")
        asked, shared = (stack.gateway_metric("plain", f"kube_fanout_{name}", resource="pods") for name in ("upstream_table_lists_total", "table_lists_shared_total"))
        if not stack.direct:
            # Lists that are under way while the gateway looks for other servers of a resource are forwarded, and counted as neither.
            check("most lists are shared, and none is counted twice", shared > len(counted) / 2 and asked + shared <= len(counted), f"{asked:.0f} + {shared:.0f} of {len(counted)}")
        through, direct = (wire.request(end, "GET", target, KUBECTL) for end in (stack.plain, stack.server))
        bare = lambda answer: [row["object"] for row in json.loads(answer.body)["rows"]]
        check("the rows are those of a direct list", bare(through) == bare(direct), f"{len(through.body)} and {len(direct.body)} bytes")
        check("so are the headers", through.headers.get("content-type") == direct.headers.get("content-type"), f"{through.headers}")
