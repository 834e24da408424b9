"""Shared by the tests of watches: representations of a stream, readers that stall, clients that resume."""
import socket
import threading

from .. import fixtures, protobuf, wire
from .framework import WAIT, Event, Failed, Watch, query
from .websocket import Socket

INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
NONE_INITIAL = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
BOOKMARKS = {"allowWatchBookmarks": "true"}
FUTURE = 10**15

PB = wire.PROTOBUF
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AS_METADATA = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
FORMS = {  # name: (Accept or None, whether over WebSocket)
    "json": (None, False), "json stream": ("application/json;stream=watch", False), "protobuf": (PB, False), "protobuf stream": (f"{PB};stream=watch", False),
    "table": (AS_TABLE, False), "metadata": (f"application/json;{AS_METADATA}", False), "metadata protobuf": (f"{PB};{AS_METADATA}", False),
    "websocket text": (None, True), "websocket binary": (PB, True), "websocket metadata": (f"application/json;{AS_METADATA}", True),
}


def watch(collection, **params):
    return query(collection, watch="true", **params)


def kinds(t):
    """(collection, function that makes an object, function that makes the change of a selectable field)"""
    return [(t.pods, fixtures.pod, lambda node: {"spec": {"nodeName": node}}), (t.widgets, fixtures.widget, lambda color: {"spec": {"color": color}})]


def seeded(t):
    """One object of each kind: {collection: the version to start from}."""
    return {collection: t.create(collection, make("seed", {"app": "seed"})) for collection, make, _ in kinds(t)}


def expect(t, stream, wanted):
    """Takes as many events as are WANTED: (type, name, version or None), and checks that they are equal."""
    got = []
    for _ in wanted:
        got.append(stream.next())
        if got[-1] is None:
            break
    same = len(got) == len(wanted) and all(e and (e.type, e.name) == w[:2] and w[2] in (None, e.version) for e, w in zip(got, wanted))
    t.check(same, f"{stream.target}: wanted {wanted}, got {got}, then {stream.end}")
    return got


def closed(*streams):
    """Closes the streams, so that only the events that were taken are compared."""
    for stream in streams:
        stream.finish()
    return list(streams)


def shape(events):
    """[(type, name, version)] as JSON compares it."""
    return [[e.type, e.name, e.version] for e in events]


def real(t, events):
    """The events, after checking that none has a version that the store has not reached."""
    newest = t.revision()
    t.check(all(e.version <= newest for e in events), f"versions that do not exist yet: the store is at {newest}, {events}")
    return events


def only_error(t, events, code, reason):
    """The Status of a stream that consists of exactly one ERROR."""
    got = list(events)
    t.check(len(got) == 1 and got[0].type == "ERROR", f"one ERROR and nothing else: {got}")
    status = got[0].object
    t.check((status.get("kind"), status.get("code"), status.get("reason")) == ("Status", code, reason), f"a Status {code} {reason}: {status}")
    return status


# --- representations -------------------------------------------------------------

class Seen:
    """One event in any representation: its type, its object's name and version, and all of it as text."""

    def __init__(self, frame, binary):
        self.frame = frame
        if not binary:
            event = Event(frame)
            rows = event.object.get("rows")
            self.type, self.object, meta = event.type, event.object, event.meta
            if rows and rows[0].get("object"):
                meta = rows[0]["object"]["metadata"]
            self.name, self.version, self.kind = meta.get("name", ""), int(meta.get("resourceVersion") or 0), event.object.get("kind")
            self.labels, self.marker = meta.get("labels") or {}, "k8s.io/initial-events-end" in (meta.get("annotations") or {})
            return
        self.type, wrapped = protobuf.event(frame)
        about, raw = protobuf.unwrap(wrapped)
        self.kind = protobuf.first(protobuf.fields(about), 2).decode()
        meta = protobuf.fields(protobuf.first(protobuf.fields(raw), 1)) if self.type != "ERROR" else []
        self.object, self.name = raw, protobuf.first(meta, 1).decode()
        self.version, self.labels = int(protobuf.first(meta, 6) or 0), protobuf.strings(meta, 11)
        self.marker = "k8s.io/initial-events-end" in protobuf.strings(meta, 12)

    def __repr__(self):
        return f"{self.type} {self.name} {self.version}{' marker' if self.marker else ''}"


class FormWatch(Watch):
    """A watch in one of FORMS."""

    def __init__(self, side, form, target, narrow=False):
        accept, self.upgraded = FORMS[form]
        headers = side.marked({"Accept": accept} if accept else {})
        self.form, self.target, self.random_retry, self.taken = form, target, False, 0
        self.stream = (Socket if self.upgraded else wire.Stream)(Narrow(side.endpoint) if narrow else side.endpoint, target, headers)
        side.watches(self)
        self.binary = (accept or "").startswith(PB)

    def next(self, seconds=WAIT):
        frame = self.next_frame(seconds)
        return None if frame is None else Seen(frame, self.binary)

    def wait_end(self, seconds=WAIT):
        super().wait_end(seconds)
        return self

    def events(self):
        return [Seen(f, self.binary) for f in self.seen()]

    def raw(self):
        """The frames that were taken, for comparison: bytes as text."""
        return [f.decode("utf-8", "surrogateescape") for f in self.stream.frames[:self.taken]]


# --- readers that stall ------------------------------------------------------------

class Narrow(wire.Endpoint):
    """The same endpoint over connections with a small receive buffer: a stalled reader is noticed early."""

    def __init__(self, other):
        self.__dict__.update(other.__dict__)

    def connect(self, timeout):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(timeout)
        sock.connect((self.host, self.port))
        return self.tls.wrap_socket(sock, server_hostname=self.host) if self.tls else sock


class _Gate:
    """A reader that stops after the head of the response until it is released."""

    def __init__(self, reader, go):
        self._reader, self._go, self._head = reader, go, True

    def _wait(self):
        if not self._head:
            self._go.wait()

    def readline(self, size):
        self._wait()
        line = self._reader.readline(size)
        if line in (b"\r\n", b""):
            self._head = False
        return line

    def read(self, size):
        self._wait()
        return self._reader.read(size)

    def read1(self, size):
        self._wait()
        return self._reader.read1(size)


class _StalledStream(wire.Stream):
    def __init__(self, endpoint, target, headers):
        self.go = threading.Event()
        super().__init__(Narrow(endpoint), target, headers)

    def _read(self, reader):
        super()._read(_Gate(reader, self.go))

    def close(self):
        self.go.set()
        super().close()


class StalledWatch(Watch):
    """A watch that reads only its headers until go()."""

    def __init__(self, side, target):
        self.target, self.random_retry, self.taken = target, False, 0
        self.stream = _StalledStream(side.endpoint, target, side.marked({}))
        side.watches(self)
        self.opened()

    def go(self):
        self.stream.go.set()
        return self


# --- clients that resume -------------------------------------------------------------

class ResumingClient:
    """Watches from a version on; when the stream ends, again from the last version it saw, and after a 410 from a new
    state, as every client does. `state`: the version of each object; `seen`: the events since the last new state."""

    def __init__(self, side, collection, version, **params):
        self.side, self.collection, self.version, self.params = side, collection, version, params
        self.seen, self.state, self.ends, self.states = [], {}, 0, 0
        self._watch, self._initial = None, False

    def opened(self):
        start = INITIAL if self._initial else {"resourceVersion": self.version}
        target = watch(self.collection, **start, **self.params, **BOOKMARKS)

        def attempt():
            self._watch = self.side.watches(Watch(self.side.endpoint, target, self.side.marked({}))).opened()
            return self._watch.status == 200
        if not self._watch:
            wire.poll(f"{self.side.name} {target}", attempt, 60)
        return self

    def _new_state(self):
        """Reads an initial state, which must not be older than anything seen before."""
        got = self._watch.until_marker()
        now = {e.name: e.version for e in got[:-1]}
        back = {n for n, v in now.items() if v < self.state.get(n, 0)}
        if back or got[-1].version < self.version:
            raise Failed(f"{self.side.name}: the state went back to {got}, after {self.state}")
        self.state, self.version, self.seen, self._initial, self.states = now, got[-1].version, [], False, self.states + 1

    def until(self, version, seconds=90):
        """Waits until an event with at least this version was seen."""
        while self.version < version:
            self.opened()
            if self._initial:
                self._new_state()
                continue
            event = self._watch.next(seconds)
            if event is None or event.type == "ERROR":
                self.ends, self._watch = self.ends + 1, None
                self._initial = event is not None and event.object["code"] == 410
                if event and not self._initial:
                    raise Failed(f"{self.side.name}: {event.object}")
                continue
            if event.version < self.version or event.version == self.version and event.type != "BOOKMARK":
                raise Failed(f"{self.side.name}: {event} after version {self.version}: {self.seen}")
            self.version = event.version
            if event.type == "DELETED":
                self.state.pop(event.name, None)
            elif event.type != "BOOKMARK":
                self.state[event.name] = event.version
            self.seen += [event] if event.type != "BOOKMARK" else []
        return self


def status_in_protobuf(raw):
    """{code, reason, message, status} of a v1 Status message."""
    parts = protobuf.fields(raw)
    text = lambda n: protobuf.first(parts, n).decode()
    return {"status": text(2), "message": text(3), "reason": text(4), "code": protobuf.first(parts, 6, 0)}


def status_of(seen, binary):
    return status_in_protobuf(seen.object) if binary else {k: seen.object.get(k) for k in ("status", "message", "reason", "code")}

