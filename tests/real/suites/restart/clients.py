"""The suite's clients: one watch each, in every encoding, transport and selector, and the state that each derives."""
import json

from .. import fixtures, protobuf, wire
from .judge import Event, applied

JSON, PROTOBUF = "application/json", wire.PROTOBUF
ENCODINGS = {"pods": (JSON, PROTOBUF), "widgets": (JSON, f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io")}  # custom resources have no protobuf of their own
COLLECTIONS = {"pods": fixtures.pods("default"), "widgets": fixtures.widgets("default")}
NODE, NAMELESS = "node-1", "o4"
OF_EACH = 2


class Selector:
    """`params` of the query, and the same selector as a function of an object in etcd."""

    def __init__(self, name, params, matches):
        self.name, self.params, self.matches = name, params, matches


def selectors(resource):
    return (Selector("", {}, lambda thing: True), Selector(" with labels", {"labelSelector": "app=demo"}, lambda thing: thing.labels.get("app") == "demo"),
            Selector(" on a node", {"fieldSelector": f"spec.nodeName={NODE}"}, lambda thing: thing.node == NODE) if resource == "pods" else
            Selector(" but one name", {"fieldSelector": f"metadata.name!={NAMELESS}"}, lambda thing: thing.name != NAMELESS))  # others are forwarded


def matching(resource, number, labels=True, node=True):
    """A merge patch after which an object matches selectors by its labels, by its node, or not at all."""
    return {"metadata": {"labels": {"app": "demo" if labels else "other", "turn": str(number)}}, **({"spec": {"nodeName": NODE if node else "node-0"}} if resource == "pods" else {})}


def key(meta):
    return f"{meta['namespace']}/{meta['name']}"


def parsed(frame, binary):
    """The Event of a frame; None for a bookmark."""
    if not binary:
        told = json.loads(frame)
        if told["type"] == "ERROR":
            return Event("ERROR", told["object"].get("message", ""), 0, "")
        meta = told["object"]["metadata"]
        return None if told["type"] == "BOOKMARK" else Event(told["type"], key(meta), int(meta["resourceVersion"]), meta["uid"])
    kind, raw = protobuf.event(frame)
    if kind == "ERROR":
        return Event(kind, repr(raw), 0, "")
    meta = protobuf.fields(protobuf.first(protobuf.fields(protobuf.unwrap(raw)[1]), 1))
    text = lambda number: protobuf.first(meta, number).decode()
    return None if kind == "BOOKMARK" else Event(kind, f"{text(3)}/{text(1)}", int(text(6)), text(5))


class Client:
    """One stream. STAMP() is recorded for each of its events."""

    def __init__(self, endpoint, resource, accept, selector, stamp):
        self.resource, self.selector, self.group = resource, selector, (endpoint.host, endpoint.port, resource, accept)
        self.name = f"{resource}{selector.name}, {'JSON' if accept == JSON else 'protobuf'}, {endpoint.name}"
        collection = COLLECTIONS[resource]
        listed = json.loads(wire.request(endpoint, "GET", wire.query(collection, **selector.params)).body)
        self.start = int(listed["metadata"]["resourceVersion"])
        self.initial = {key(i["metadata"]): (fixtures.version(i), i["metadata"]["uid"]) for i in listed["items"]}
        self._parsed, self._stamps = [], []
        target = wire.query(collection, watch="true", resourceVersion=self.start, allowWatchBookmarks="true", timeoutSeconds=600, **selector.params)
        self.stream = wire.Stream(endpoint, target, {"Accept": accept}, timeout=300, stamp=stamp)

    def stamped(self):
        """[(event, stamp)] without bookmarks; each frame is parsed once."""
        stamps = self.stream.stamps
        for frame, stamp in zip(self.stream.frames[len(self._stamps):], stamps[len(self._stamps):]):
            if event := parsed(frame, self.stream.binary):
                self._parsed.append((event, stamp))
            self._stamps.append(stamp)
        return self._parsed

    def events(self):
        return [event for event, _ in self.stamped()]

    def newest(self):
        return max((e.version for e in self.events()), default=0)

    def state(self):
        """{key: (version, uid)} after all events."""
        return applied(self.initial, [e for e in self.events() if e.kind != "ERROR"])

    def stamp_after(self, version):
        """The stamp of the first event above a version."""
        return next((stamp for event, stamp in self.stamped() if event.version > version), None)

    def faults(self):
        """Broken promises within this stream, independent of etcd's history. A deletion that was found by listing again has no
        version of its own, so it may share the list's version, or that of the recreated object."""
        out, last, before, known = [], self.start, "", {k: uid for k, (_, uid) in self.initial.items()}
        for event in self.events():
            kind, k = event.kind, event.key
            if kind == "ERROR":
                out.append(f"an ERROR event: {k}")
                continue
            if event.version < last or event.version == last and "DELETED" not in (kind, before):
                out.append(f"{event} after {before} {last}")
            if (kind == "ADDED") == (k in known):
                out.append(f"{kind} of {k}, which was {'there' if k in known else 'not there'}")
            if k in known and known[k] != event.uid:
                out.append(f"{kind} of {k} with another uid, without a DELETED between")
            last, before = max(last, event.version), kind
            if kind == "DELETED":
                known.pop(k, None)
            else:
                known[k] = event.uid
        return out


def endpoints(stack):
    """HTTP/1.1, TLS, and one connection of HTTP/2 for all."""
    return [stack.plain, stack.tls, stack.tls.over_http2()]


def warm(stack):
    """Starts the caches of all encodings, so that a list and a watch in different encodings have the same history."""
    for endpoint in (stack.plain, stack.tls):
        for resource, collection in COLLECTIONS.items():
            for accept in ENCODINGS[resource]:
                fixtures.wait_served(endpoint, collection, accept=accept.replace("PartialObjectMetadata;", "PartialObjectMetadataList;"))


def open_clients(stack, stamp=lambda: None):
    at = endpoints(stack)
    out = [Client(endpoint, resource, accept, selector, stamp)
           for resource in COLLECTIONS for selector in selectors(resource) for accept in ENCODINGS[resource] for endpoint in at for _ in range(OF_EACH)]
    for client in out:
        client.stream.wait_open()
    return out
