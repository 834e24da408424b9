"""The restart suite: the API server is killed and started again under load, then history is compacted while it is away.

Clients behind the gateway keep their streams; what they got is compared with etcd's own history. Without a gateway the
suite checks that it would notice: a killed server ends its own streams.

After a restart the gateway may have to list again, and shows then the newest state instead of versions that it did not
see. So a version may be missing from a stream only if it lies in an outage and a newer one of its object came instead."""
import base64
import json
import threading
import time

from . import fixtures, quiet, wire
from .stack import Stack

CLIENTS = 12  # of each resource and kind of client
OBJECTS = 20
ROUNDS_BETWEEN = 100  # acknowledged writes before, and after, each restart
RESTARTS = 2
PREFIX = {"pods": "/registry/pods/", "widgets": "/registry/example.com/widgets/"}


def b64(text):
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


class History:
    """What etcd knows of a resource: {key: value}, and every revision with its key and whether it deletes."""

    def __init__(self, stack, name):
        self.stack, self.prefix = stack, PREFIX[name]
        self.range = {"key": b64(self.prefix), "range_end": b64(self.prefix[:-1] + "0")}  # '0' follows '/'

    def now(self):
        """(revision, {key: (value, its revision)})"""
        got = self.stack.etcd("/v3/kv/range", self.range)
        items = {base64.b64decode(kv["key"]).decode(): (kv["value"], int(kv["mod_revision"])) for kv in got.get("kvs", [])}
        return int(got["header"]["revision"]), items

    def since(self, revision):
        """[(revision, "namespace/name", deleted)] of all writes after a revision, up to now."""
        end, _ = self.now()
        body = json.dumps({"create_request": {"key": b64("/"), "range_end": b64("0"), "start_revision": str(revision + 1)}}).encode()
        self.stack.etcd("/v3/kv/put", {"key": b64("/the-end-of-history"), "value": b64("x")})  # tells that all has come
        out, etcd = [], wire.Endpoint("etcd", "127.0.0.1", self.stack.etcd_port)
        for message in post_lines(etcd, "/v3/watch", body):
            for event in message["result"].get("events", []):
                kv = event["kv"]
                if int(kv["mod_revision"]) > end:
                    return out
                if not (path := base64.b64decode(kv["key"]).decode()).startswith(self.prefix):
                    continue
                out.append((int(kv["mod_revision"]), path[len(self.prefix):], event.get("type") == "DELETE"))
        raise wire.WireError("etcd ended its history early")


def post_lines(endpoint, target, body):
    """JSON messages of a streamed answer, until the caller stops asking."""
    sock = wire._send(endpoint, "POST", target, {"Content-Type": "application/json"}, body, 30)
    try:
        with sock.makefile("rb") as reader:
            status, headers = wire._head(reader)
            rest = b""
            for piece in wire._pieces(reader, status, headers, "POST"):
                *lines, rest = (rest + piece).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
    finally:
        sock.close()


class Client:
    """One stream and what it makes of the state."""

    def __init__(self, endpoint, name, collection, selector=None):
        self.name, self.selector = name, selector
        listed = json.loads(wire.request(endpoint, "GET", wire.query(collection, labelSelector=selector)).body)
        self.start = int(listed["metadata"]["resourceVersion"])
        self.initial = {key(i["metadata"]): i["metadata"] for i in listed["items"]}
        self._parsed = []
        self.stream = wire.Stream(endpoint, wire.query(collection, watch="true", resourceVersion=self.start, allowWatchBookmarks="true", timeoutSeconds=600, labelSelector=selector), timeout=300)

    def events(self):
        """[(type, key, version, uid)] without bookmarks; each frame is parsed once."""
        for frame in self.stream.frames[len(self._parsed):]:
            parsed = json.loads(frame)
            meta = parsed["object"].get("metadata", {})
            if parsed["type"] == "ERROR":
                self._parsed.append(("ERROR", parsed["object"].get("message", ""), 0, ""))
            elif parsed["type"] == "BOOKMARK":
                self._parsed.append(None)
            else:
                self._parsed.append((parsed["type"], key(meta), int(meta["resourceVersion"]), meta["uid"]))
        return [e for e in self._parsed if e]

    def newest(self):
        return max((e[2] for e in self.events()), default=0)

    def state(self):
        """{key: (version, uid)} after all events."""
        state = {k: (int(m["resourceVersion"]), m["uid"]) for k, m in self.initial.items()}
        for kind, k, version, uid in self.events():
            if kind == "DELETED":
                state.pop(k, None)
            elif kind != "ERROR":
                state[k] = (version, uid)
        return state

    def faults(self):
        """Broken promises inside this stream, whatever the truth is. A deletion that was found by listing again has no
        version of its own, so it may share the list's, or that of the object made anew."""
        out, last, before, known = [], self.start, "", {k: m["uid"] for k, m in self.initial.items()}
        for kind, k, version, uid in self.events():
            if kind == "ERROR":
                out.append(f"an ERROR event: {k}")
                continue
            if version < last or version == last and "DELETED" not in (kind, before):
                out.append(f"{kind} {k} at {version} after {before} {last}")
            if (kind == "ADDED") == (k in known):
                out.append(f"{kind} of {k}, which was {'there' if k in known else 'not there'}")
            if k in known and known[k] != uid:
                out.append(f"{kind} of {k} with another uid, without a DELETED between")
            last, before = max(last, version), kind
            if kind == "DELETED":
                known.pop(k, None)
            else:
                known[k] = uid
        return out

    def missing(self, history, outages):
        """Versions of the history that this stream had to carry and did not."""
        if self.selector:
            return []  # etcd's history does not tell labels; state() and faults() do
        got = {(k, v) for _, k, v, _ in self.events()}
        ends = {}
        for _, k, v, _ in self.events():
            ends[k] = max(ends.get(k, 0), v)
        lost = []
        for version, k, deleted in history:
            if version <= self.start or (k, version) in got:
                continue
            away = any(low <= version <= high for low, high in outages)
            replaced = ends.get(k, 0) > version or (deleted and k not in self.initial)
            born_and_gone = k not in ends and k not in self.initial and away  # a short life inside an outage
            if not (away and (replaced or born_and_gone)):
                lost.append(f"{'deletion' if deleted else 'version'} {version} of {k}")
        return lost


def key(meta):
    return f"{meta['namespace']}/{meta['name']}"


class Load(threading.Thread):
    """Writes to both resources by turns, through restarts: a write that fails is tried again later."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.done, self.ending, self.newest = api, 0, threading.Event(), 0

    def run(self):
        turn = 0
        while not self.ending.is_set():
            turn += 1
            collection, make = ((fixtures.pods, fixtures.pod), (fixtures.widgets, fixtures.widget))[turn % 2]
            where, i = collection("default"), turn % OBJECTS
            try:
                if turn % 7 == 0:
                    self.api.call("DELETE", f"{where}/t{i % 3}", good=(200, 404))
                elif turn % 5 == 0:
                    self.api.call("POST", where, make(f"t{i % 3}", {"app": "demo"}), good=(201, 409))
                else:
                    self.newest = self.api.label(f"{where}/o{i}", turn=str(turn), app="demo" if turn % 3 else "other")
                self.done += 1
            except (OSError, wire.WireError, ValueError):
                self.ending.wait(0.05)  # the server is away
            self.ending.wait(0.01)  # a bounded pace: at most a hundred writes a second

    def wait_more(self, count):
        goal = self.done + count
        wire.poll(f"{count} more writes", lambda: self.done >= goal, 90, 0.05)

    def end(self):
        self.ending.set()
        self.join(60)


def converge(clients, api, seconds=60):
    """Wait until every client's state is the server's; [what differs]."""
    where = {"pods": fixtures.pods("default"), "widgets": fixtures.widgets("default")}

    def differing():
        out = []
        truth = {}
        for c in clients:
            if (c.name, c.selector) not in truth:
                items = api.get(wire.query(where[c.name], labelSelector=c.selector))["items"]
                truth[c.name, c.selector] = {key(i["metadata"]): (fixtures.version(i), i["metadata"]["uid"]) for i in items}
            state, wanted = c.state(), truth[c.name, c.selector]
            if state != wanted:
                odd = {k: (state.get(k), wanted.get(k)) for k in state.keys() | wanted.keys() if state.get(k) != wanted.get(k)}
                out.append(f"{c.name} {c.selector or ''}: (client, server) {dict(list(odd.items())[:5])}; stream: {c.stream.end or 'open'}")
        return out
    try:
        wire.poll("the same state", lambda: not differing(), seconds, 0.3)
    except wire.WireError:
        return differing()
    return []


def judge(report, when, clients, stack):
    """What must hold after each disturbance."""
    ended = [c for c in clients if c.stream.end]
    if stack.direct:
        report.check(f"{when}: without a gateway all streams end", len(ended) == len(clients), f"{len(ended)} of {len(clients)}", "the suite would notice")
        return False
    report.check(f"{when}: all {len(clients)} streams are open", not ended, "\n".join(f"{c.name} {c.selector}: {c.stream.end}" for c in ended[:5]))
    faults = [f"{c.name} {c.selector or ''}: {f}" for c in clients for f in c.faults()]
    report.check(f"{when}: versions increase, no event twice, no ERROR", not faults, "\n".join(faults[:10]))
    return True


def end_in_quiet(report, when, clients, api):
    for name, collection in (("pods", fixtures.pods("default")), ("widgets", fixtures.widgets("default"))):
        target = f"{collection}/o1"
        api.label(target, app="demo")  # for those with a selector too
        quiet.stream_bursts(report, f"{when}: clients of {name}", api, target, [c.stream for c in clients if c.name == name])


def open_clients(endpoint):
    out = []
    for name, collection in (("pods", fixtures.pods("default")), ("widgets", fixtures.widgets("default"))):
        for selector in (None, "app=demo"):
            out += [Client(endpoint, name, collection, selector) for _ in range(CLIENTS)]
    for client in out:
        client.stream.wait_open()
    return out


def restarts(report, stack, api):
    """The server is killed with writes under way."""
    clients, load = open_clients(stack.plain), Load(api)
    start = min(c.start for c in clients)
    load.start()
    outages, behind = [], []
    try:
        for _ in range(RESTARTS):
            load.wait_more(ROUNDS_BETWEEN)
            low = load.newest - 20  # acknowledged, but perhaps not yet on its way to the watchers
            stack.kill_server()
            began = time.monotonic()
            stack.start_server()
            away = time.monotonic() - began
            load.wait_more(3)
            after, ready = load.newest, time.monotonic()
            if not stack.direct:  # the outage ends for a client when it sees what came after it
                for c in clients:
                    c.stream.wait(lambda s, c=c: s.end or c.newest() >= after, 60, "events after the restart")
            behind.append(time.monotonic() - ready)
            load.wait_more(ROUNDS_BETWEEN)
            outages.append((low, load.newest))
        load.end()
        if judge(report, f"{RESTARTS} restarts of the server under load", clients, stack):
            odd = converge(clients, api)
            report.check("after the restarts: every client has the server's state", not odd, "\n".join(odd[:10]), f"{load.done} writes, server away {away:.1f} s, all clients caught up after {', '.join(f'{b:.1f} s' for b in behind)}")
            end_in_quiet(report, "after the restarts", clients, api)
            for name in PREFIX:
                history = History(stack, name).since(start)
                lost = [f"{l} ({c.name})" for c in clients if c.name == name for l in c.missing(history, outages)]
                report.check(f"after the restarts: nothing of the {name} was lost", not lost, "\n".join(lost[:10]), f"{len(history)} writes in etcd")
    finally:
        load.end()
        for c in clients:
            c.stream.close()


def rewrite(stack, name):
    """Writes to etcd while no API server runs: changes, deletions, an object made anew with another uid, a new one."""
    _, items = History(stack, name).now()
    put = lambda k, value: stack.etcd("/v3/kv/put", {"key": b64(k), "value": b64(value)})
    drop = lambda k: stack.etcd("/v3/kv/deleterange", {"key": b64(k)})
    keys = [f"{PREFIX[name]}default/o{i}" for i in range(10)]
    value = {k: base64.b64decode(items[k][0]) for k in keys}
    for k in keys[:5]:  # the same value under a new revision: MODIFIED
        put(k, value[k])
    for k in keys[5:8]:
        drop(k)
    drop(keys[8])
    put(keys[8], other_uid(value[keys[8]]))
    put(f"{PREFIX[name]}default/n9", other_uid(value[keys[9]]).replace(b"o9", b"n9", 1))


def other_uid(value):
    uid = uid_in(value)
    return value.replace(uid, bytes(reversed(uid[:8])) + uid[8:])


def uid_in(value):
    """The uid in a stored protobuf object: 36 characters with dashes at their places."""
    for at in range(len(value) - 36):
        text = value[at:at + 36]
        if all(text[i] == 45 for i in (8, 13, 18, 23)) and all(c in b"0123456789abcdef-" for c in text):
            return text
    raise ValueError("no uid")


def compaction(report, stack, api):
    """What changed while the server was away is compacted: nobody can resume."""
    clients = open_clients(stack.plain)
    targets = {"pods": fixtures.pods("default"), "widgets": fixtures.widgets("default")}
    marks = {name: api.label(f"{c}/o1", mark="before") for name, c in targets.items()}
    try:
        for c in clients:
            if not c.selector:
                c.stream.wait(lambda s, c=c: any(e[2] == marks[c.name] for e in c.events()), 30, "the last event before")
        stack.kill_server()
        for name in targets:
            rewrite(stack, name)
        revision, _ = History(stack, "pods").now()
        stack.etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        stack.start_server()
        after = {name: wire.poll(f"a write to the {name}", lambda c=c: api.label(f"{c}/o2", mark="after"), 30) for name, c in targets.items()}
        if not stack.direct:
            for c in clients:
                if not c.selector:
                    c.stream.wait(lambda s, c=c: s.end or any(e[2] == after[c.name] for e in c.events()), 60, "an event after the compaction")
        if judge(report, "compaction while the server is away", clients, stack):
            odd = converge(clients, api)
            report.check("after the compaction: every client has the server's state", not odd, "\n".join(odd[:10]))
            end_in_quiet(report, "after the compaction", clients, api)
            for name in targets:
                got = [[e[0] for e in c.events() if e[1] == "default/o8"] for c in clients if c.name == name and not c.selector]
                report.check(f"after the compaction: an object of the {name} made anew is DELETED and ADDED", all(g == ["DELETED", "ADDED"] for g in got), f"{got[:3]}")
                born = [[e[0] for e in c.events() if e[1] == "default/n9"] for c in clients if c.name == name and not c.selector]
                report.check(f"after the compaction: a new object of the {name} is ADDED", all(b == ["ADDED"] for b in born), f"{born[:3]}")
                gone = [{e[1] for e in c.events() if e[0] == "DELETED"} for c in clients if c.name == name and not c.selector]
                report.check(f"after the compaction: deletions of the {name} were told", all({"default/o5", "default/o6", "default/o7"} <= g for g in gone), f"{gone[:3]}")
    finally:
        for c in clients:
            c.stream.close()


def run(report):
    with Stack("restart", fixtures.with_widgets) as stack:
        api = fixtures.Api(stack.server)
        for i in range(OBJECTS):
            api.create(fixtures.pods("default"), fixtures.pod(f"o{i}", {"app": "demo"}))
            api.create(fixtures.widgets("default"), fixtures.widget(f"o{i}", {"app": "demo"}))
        restarts(report, stack, api)
        compaction(report, stack, api)
