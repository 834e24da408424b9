"""etcd's history: every write to a resource with its value, from which follows what a watch had to carry, also with a selector."""
import base64
import json

from .. import protobuf, wire

PREFIX = {"pods": "/registry/pods/", "widgets": "/registry/example.com/widgets/"}


def b64(text):
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


class Thing:
    """The parts of a stored object that selectors read. `node`: only for pods."""

    def __init__(self, key, value):
        self.name, self.node = key.rpartition("/")[2], None
        if value.startswith(protobuf.MAGIC):
            thing = protobuf.fields(protobuf.unwrap(value)[1])
            meta = protobuf.fields(protobuf.first(thing, 1))
            self.uid, self.labels = protobuf.first(meta, 5).decode(), protobuf.strings(meta, 11)
            self.node = protobuf.first(protobuf.fields(protobuf.first(thing, 2)), 10).decode()
        else:
            thing = json.loads(value)
            self.uid, self.labels = thing["metadata"]["uid"], thing["metadata"].get("labels") or {}


class History:
    """The writes to one resource."""

    def __init__(self, stack, name):
        self.stack, self.prefix = stack, PREFIX[name]
        self.range = {"key": b64(self.prefix), "range_end": b64(self.prefix[:-1] + "0")}  # '0' follows '/'

    def _read(self, **options):
        got = self.stack.etcd("/v3/kv/range", {**self.range, **options})
        return int(got["header"]["revision"]), {base64.b64decode(kv["key"]).decode(): kv for kv in got.get("kvs", [])}

    def now(self):
        """(revision, {key: (value, its revision)})"""
        revision, items = self._read()
        return revision, {k: (kv["value"], int(kv["mod_revision"])) for k, kv in items.items()}

    def at(self, revision):
        """{"namespace/name": (version, Thing)}"""
        _, items = self._read(revision=str(revision))
        return {k[len(self.prefix):]: (int(kv["mod_revision"]), Thing(k, base64.b64decode(kv["value"]))) for k, kv in items.items()}

    def since(self, revision):
        """[(version, "namespace/name", Thing, or None where it is deleted)] of all writes after a revision, up to now."""
        end, _ = self.now()
        body = json.dumps({"create_request": {"key": b64("/"), "range_end": b64("0"), "start_revision": str(revision + 1)}}).encode()
        self.stack.etcd("/v3/kv/put", {"key": b64("/the-end-of-history"), "value": b64("x")})  # its event marks the end of the history
        out, etcd = [], wire.Endpoint("etcd", "127.0.0.1", self.stack.etcd_port)
        for message in post_lines(etcd, "/v3/watch", body):
            for event in message["result"].get("events", []):
                kv = event["kv"]
                if int(kv["mod_revision"]) > end:
                    return out
                if not (path := base64.b64decode(kv["key"]).decode()).startswith(self.prefix):
                    continue
                deleted = event.get("type") == "DELETE"
                out.append((int(kv["mod_revision"]), path[len(self.prefix):], None if deleted else Thing(path, base64.b64decode(kv["value"]))))
        raise wire.WireError("etcd ended its history early")


def post_lines(endpoint, target, body):
    """JSON messages of a streamed response, until the caller stops reading."""
    exchange = wire.Exchange(endpoint, "POST", target, {"Content-Type": "application/json"}, body, 30)
    try:
        rest = b""
        for piece in exchange.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            yield from (json.loads(line) for line in lines if line.strip())
    finally:
        exchange.close()
