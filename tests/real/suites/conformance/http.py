"""Entries 122-127, 130-133 and 142: the HTTP surface of watches: refusals, parameters, representations."""
import json

from .. import fixtures, wire
from .framework import entry, pinned, query
from .streams import AS_TABLE, BOOKMARKS, FORMS, INITIAL, PB, FormWatch, closed, expect, kinds, seeded, status_of, watch
from .watches import an_event, etcd_delete, etcd_events, etcd_put, first_event

ONE = {"timeoutSeconds": 1}


# --- errors before and in a stream ---------------------------------------------------

@entry(122, "an_error_in_the_midst_of_a_stream_is_a_status_in_every_representation", setup=first_event, live=True)
def errors_in_stream(side, t):
    """An object that the server cannot read: the last frame is an ERROR with a plain v1 Status, whatever was asked for."""
    collection = f"/api/v1/namespaces/{t.namespace}/events"
    opened = [FormWatch(side, form, watch(collection, resourceVersion=t.state)).opened() for form in FORMS]

    def write():
        version = t.create(collection, an_event("e2"))
        etcd_put(t, etcd_events(t, "broken"), b"no object")
        return version
    version = t.once(write)
    out = []
    for stream in opened:
        good, bad = stream.next(), stream.next()
        t.check((good.type, good.version) == ("ADDED", version) and bad.type == "ERROR" and bad.kind == "Status", f"{stream.form}: {good}, {bad}")
        status = status_of(bad, stream.binary)
        t.check((status["status"], status["code"], status["reason"]) == ("Failure", 500, "InternalError"), f"{stream.form}: {status}")
        t.check(stream.next() is None and stream.end == "clean", f"{stream.form}: nothing follows: {stream.events()}, {stream.end}")
        out.append([stream.form, status, stream.status, stream.headers.get("content-type")])
    t.once(lambda: etcd_delete(t, etcd_events(t, "broken")))
    return out


REFUSED = {  # parameters of a watch: the status it is refused with
    400: [{"labelSelector": "==="}, {"fieldSelector": "spec.nope=1"}, {"fieldSelector": "a"}, {"limit": "abc"}, {"timeoutSeconds": "abc"}, {"timeoutSeconds": "1.5"}, {"labelSelector": "a in ()b"}],
    422: [{"sendInitialEvents": "true"}, {**INITIAL, "resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan", "resourceVersion": 1}, {**INITIAL, "continue": "x"}, {**INITIAL, "resourceVersionMatch": "Nope"}],
    500: [{"resourceVersion": "abc"}, {"resourceVersion": "-1"}, {"resourceVersion": "1.0"}, {"resourceVersion": "18446744073709551616"}, {**INITIAL, "resourceVersion": "abc"}],
}


@entry(123, "an_error_before_the_stream_is_an_http_status", setup=seeded)
def errors_before(side, t):
    """Nothing of a stream has begun: a Status with its code as the answer's, as a list would have it; then a good watch works."""
    out = []
    for c, _, _ in kinds(t):
        for code, refused in REFUSED.items():
            for params in refused:
                got = side.get(watch(c, **{**ONE, **params}))
                t.check(got.status == code and got.json()["kind"] == "Status" and got.json()["code"] == code, f"{params}: {got}")
                out.append(got)
        good = side.watch(watch(c, resourceVersion=t.state[c]), seconds=1)
        t.check(list(good) == [], f"{good}")
        out.append(good)
    return out


TYPES = {"json": "application/json", "json stream": "application/json", "protobuf": f"{PB};stream=watch", "protobuf stream": f"{PB};stream=watch", "table": "application/json", "metadata": "application/json", "metadata protobuf": f"{PB};stream=watch"}


@entry(124, "a_streams_content_type_is_one_that_clients_know", setup=seeded)
def content_types(side, t):
    """A client refuses what it cannot name: the exact types of all forms, on watches and on refusals of watches."""
    out = []
    for form, wanted in TYPES.items():
        stream = FormWatch(side, form, watch(t.pods, resourceVersion=t.state[t.pods], **ONE)).opened()
        t.check(stream.status == 200 and stream.headers["content-type"] == wanted, f"{form}: {stream.status} {stream.headers}")
        refused = side.get(watch(t.pods, labelSelector="==="), {"Accept": FORMS[form][0]} if FORMS[form][0] else {})
        t.check(refused.status == 400, f"{form}: {refused}")
        out += [stream.wait_end(), refused]
    return out


pinned(124, why="how a client fails on an unknown type depends on the client; the test checks that every type is one that clients know")


class Line:
    """Requests one after the other on one connection."""

    def __init__(self, side):
        self.side, self.sock = side, side.endpoint.connect(30)
        self.reader = self.sock.makefile("rb")

    def ask(self, target):
        endpoint = self.side.endpoint
        lines = [f"GET {target} HTTP/1.1", f"Host: {endpoint.host}:{endpoint.port}", f"Authorization: Bearer {endpoint.token}"]
        lines += [f"{k}: {v}" for k, v in self.side.marked({}).items()]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        status, headers = wire._head(self.reader)
        return status, headers, b"".join(wire._pieces(self.reader, status, headers, "GET"))

    def close(self):
        self.reader.close()
        self.sock.close()


@entry(125, "a_streams_timeout_ends_it_cleanly_and_the_connection_stays", setup=seeded, live=True)
def timeouts(side, t):
    """timeoutSeconds: a whole body, no last event, and the same connection takes the next request; negative: at once, empty."""
    line, out = Line(side), []
    try:
        for seconds in (1, -1, 2):
            status, headers, body = line.ask(watch(t.pods, resourceVersion=t.state[t.pods], timeoutSeconds=seconds))
            t.check((status, body) == (200, b""), f"{seconds}: {status} {headers} {body}")
            out.append([status, body.decode(), headers["content-type"]])
        status, _, body = line.ask(query(t.pods, resourceVersion=0))
        t.check(status == 200 and len(json.loads(body)["items"]) == 1, f"the next request: {status} {body[:200]}")
    finally:
        line.close()
    before = side.watch(watch(t.pods, resourceVersion=t.state[t.pods]), seconds=1)
    version = t.once(lambda: t.label(f"{t.pods}/seed", late="yes"))
    t.check(list(before) == [] and before.watch.end == "clean", f"no event after its end: {before}")
    return [*out, before, version]


@entry(125, "a_stream_is_chunked_even_if_it_ends_at_once", setup=seeded, plain=True)
def chunked(side, t):
    """No length is told of a body whose length nobody knows when it begins."""
    got = {seconds: side.get(watch(t.pods, resourceVersion=t.state[t.pods], timeoutSeconds=seconds)).headers for seconds in (-1, 1)}
    for seconds, headers in got.items():
        t.check(headers.get("transfer-encoding") == "chunked" and "content-length" not in headers, f"{seconds}: {headers}")
    return "chunked"


UNKNOWN = ["text/csv", "application/yaml", "application/cbor", "application/cbor-seq", "application/json;stream=nope", "application/json;as=Table;v=v9;g=meta.k8s.io", "application/xml,text/plain",
           f"{PB};as=Table;v=v1;g=meta.k8s.io", "application/json;as=Nope;v=v1;g=meta.k8s.io", "APPLICATION/JSON", "text/*", "json", ";", "application/json;sv=x"]


@entry(126, "a_watch_in_an_unknown_representation_is_406", setup=seeded)
def unknown_accept(side, t):
    """What cannot be streamed is refused before the stream; a fallback in the same header is taken."""
    out = []
    for c, _, _ in kinds(t):
        for accept in UNKNOWN:
            got = side.get(watch(c, resourceVersion=0, **ONE), {"Accept": accept})
            t.check(got.status == 406, f"{accept}: {got}")
            out.append(got)
        for accept in ("text/csv,application/json", "application/yaml;q=1,application/json;q=0.1", "application/json;as=Table;v=v9;g=meta.k8s.io,*/*"):
            stream = side.open(watch(c, resourceVersion=t.state[c]), {"Accept": accept}, seconds=1)
            ended = stream.wait_end()
            t.check(accept.startswith("application/yaml") == (stream.status == 406), f"{accept}: {stream.status}")
            out.append(ended)
    return out


# --- parameters and URL styles ---------------------------------------------------------

@entry(127, "both_url_styles_hand_on_selectors_versions_and_namespaces", setup=seeded, live=True)
def parameters(side, t):
    """?watch and /watch/: the same events for the same selectors; the name in the path selects too."""
    def both(c, **params):
        return [watch(c, **params), query(c.replace("/v1/", "/v1/watch/", 1), **params), f"{query(c, **params)}&watch", query(c, watch="no", **params)]
    opened, wanted = {}, {}
    for c, _, _ in kinds(t):
        everywhere = fixtures.pods() if c == t.pods else fixtures.widgets()
        for collection, params, names in ((c, {}, "ab"), (c, {"labelSelector": "app=a"}, "a"), (c, {"fieldSelector": "metadata.name=b"}, "b"), (everywhere, {"labelSelector": f"of={t.namespace}"}, "ab"),
                                          (everywhere, {"fieldSelector": f"metadata.namespace={t.namespace},metadata.name=a"}, "a"), (c, {"labelSelector": "app in (a,b)", "fieldSelector": "metadata.name!=a"}, "b")):
            for target in both(collection, resourceVersion=t.state[c], **params):
                opened[target], wanted[target] = side.open(target), (c, names)
        by_name = query(f"{c.replace('/v1/', '/v1/watch/', 1)}/a", resourceVersion=t.state[c])
        opened[by_name], wanted[by_name] = side.open(by_name), (c, "a")

    def write(c, make, _):
        return [("ADDED", n, t.create(c, make(n, {"app": n, "of": t.namespace}))) for n in "ab"] + [("MODIFIED", n, t.label(f"{c}/{n}", done="yes")) for n in "ab"]
    made = t.once(lambda: {c: write(c, make, f) for c, make, f in kinds(t)})
    for target, stream in opened.items():
        c, names = wanted[target]
        expect(t, stream, [m for m in made[c] if m[1] in names])
    return closed(*opened.values())


@entry(127, "the_deprecated_style_judges_options_as_a_list", setup=seeded)
def prefix_options(side, t):
    """/watch/ forces a watch without setting the option: no initial-events rules, names that contradict are refused."""
    out = []
    for c, _, _ in kinds(t):
        old = c.replace("/v1/", "/v1/watch/", 1)
        for target, status in ((query(old, **INITIAL, **ONE), 422), (query(old, watch=1, **INITIAL, **BOOKMARKS, **ONE), 200), (query(f"{old}/seed", fieldSelector="metadata.name=other", **ONE), 400),
                               (query(f"{old}/seed", fieldSelector="metadata.name=seed", resourceVersion=0, **ONE), 200), (query(f"{old}/seed", fieldSelector=f"metadata.namespace={t.namespace}", **ONE), 400),
                               (query(old, resourceVersion=0, **BOOKMARKS, **ONE), 200), (query(old, resourceVersionMatch="Exact", **ONE), 422), (query(old, resourceVersion=0, resourceVersionMatch="NotOlderThan", **ONE), 200)):
            stream = side.open(target)
            t.check(stream.status == status, f"{target}: {stream.status}")
            out.append(stream.wait_end())
    return out


# --- representations ---------------------------------------------------------------------

def life(t, c, make, field):
    """What every representation must tell, for a selector app=demo."""
    path = f"{c}/o"
    out = [("ADDED", t.create(c, make("o", {"app": "demo"}))), ("MODIFIED", t.update(path, field("x"))), ("DELETED", t.label(path, app="other")), ("ADDED", t.label(path, app="demo"))]
    t.delete(path)
    return out + [("DELETED", None), ("ADDED", t.create(c, make("o", {"app": "demo"})))]


@entry(130, "every_representation_tells_the_same_events", setup=seeded, live=True)
def read_all(side, t):
    """JSON, protobuf, Table, metadata, each by HTTP and what of it by websocket, with and without the stream parameter:
    the same types, names and versions, leaving and entering the selector included."""
    opened = {(c, form): FormWatch(side, form, watch(c, resourceVersion=t.state[c], labelSelector="app=demo")).opened()
              for c, _, _ in kinds(t) for form in FORMS if c == t.pods or form not in ("protobuf", "protobuf stream", "websocket binary")}
    made = t.once(lambda: {c: life(t, c, make, field) for c, make, field in kinds(t)})
    for (c, form), stream in opened.items():
        t.check(stream.status == (101 if stream.upgraded else 200), f"{form}: {stream.status} {stream.body}")
        got = [stream.next() for _ in made[c]]
        t.check(all(e and (e.type, e.name) == (k, "o") and v in (None, e.version) for e, (k, v) in zip(got, made[c])), f"{form}: {got}, wanted {made[c]}")
        t.check(got[2].labels["app"] == "demo" and got[4].version > got[3].version, f"{form}: the object as it was: {got[2].labels}")
    return [s.raw() if s.upgraded else s for s in closed(*opened.values())]


@entry(130, "every_representation_of_the_initial_state_has_its_marker", setup=seeded)
def read_initial(side, t):
    """A watch-list in each form: the objects, then the marker."""
    out = []
    for c, _, _ in kinds(t):
        for form in FORMS:
            if c != t.pods and form in ("protobuf", "protobuf stream", "websocket binary"):
                continue
            stream = FormWatch(side, form, watch(c, **INITIAL, **BOOKMARKS)).opened()
            got = [stream.next(), stream.next()]
            t.check([e.type for e in got] == ["ADDED", "BOOKMARK"] and got[0].version == t.state[c] and got[1].marker, f"{form}: {got}")
            out += [] if stream.upgraded else closed(stream)
    return out


@entry(130, "a_watch_of_a_deprecated_version_warns", setup=seeded)
def warnings(side, t):
    """The header of lists is on watches too, in every form."""
    deprecated, out = f"/api/v1/namespaces/{t.namespace}/endpoints", []
    for form in ("json", "table", "metadata", "protobuf"):
        for target in (watch(deprecated, resourceVersion=0, **ONE), query(deprecated, resourceVersion=0)):
            got = side.get(target, {"Accept": FORMS[form][0]} if FORMS[form][0] and "watch" in target else {})
            t.check("deprecated" in got.headers.get("warning", ""), f"{form} {target}: {got.headers}")
            out.append(got.headers["warning"])
    return out


@entry(131, "a_table_stream_has_columns_first_and_objects_as_asked", setup=seeded, live=True)
def tables(side, t):
    """includeObject none, metadata and whole; columns with the first event only; DELETED is the row of the old object."""
    opened = {(c, include): side.open(watch(c, resourceVersion=t.state[c], includeObject=include, labelSelector="app=demo"), {"Accept": AS_TABLE}) for c, _, _ in kinds(t) for include in (None, "Metadata", "Object", "None")}
    made = t.once(lambda: {c: [t.create(c, make("o", {"app": "demo"})), t.label(f"{c}/o", n="1"), t.label(f"{c}/o", app="other")] for c, make, _ in kinds(t)})
    for (c, include), stream in opened.items():
        got = [stream.next() for _ in made[c]]
        t.check([e.type for e in got] == ["ADDED", "MODIFIED", "DELETED"] and all(e.object["kind"] == "Table" and len(e.object["rows"]) == 1 for e in got), f"{include}: {got}")
        t.check([e.version for e in got] == made[c], f"{include}: versions of the tables {got}, wanted {made[c]}")
        t.check(got[0].object["columnDefinitions"], f"{include}: columns first")
        inner = [e.object["rows"][0].get("object") for e in got]
        wanted = {"None": None, "Object": "Pod" if c == t.pods else "Widget"}.get(include, "PartialObjectMetadata")
        t.check(all((i or {}).get("kind") == wanted for i in inner), f"{include}: {inner}")
        t.check(all(e.object["rows"][0]["cells"][0] == "o" for e in got), f"{include}: cells")
    return closed(*opened.values())


@entry(131, "a_table_that_cannot_be_made_is_refused", setup=seeded)
def bad_tables(side, t):
    """Another version or an unknown includeObject, on lists, objects and watches; a fallback is taken."""
    out = []
    for c, _, _ in kinds(t):
        for target in (query(c, resourceVersion=0), f"{c}/seed", watch(c, resourceVersion=0, **ONE)):
            bad = side.get(target, {"Accept": "application/json;as=Table;v=v2;g=meta.k8s.io"})
            t.check(bad.status == 406, f"{target}: {bad}")
            good = side.get(target, {"Accept": "application/json;as=Table;v=v2;g=meta.k8s.io,application/json"})
            t.check(good.status == 200 and b'"Table"' not in good.body, f"{target}: {good}")
            out += [bad, good]
        for target in (query(c, limit=1, includeObject="Some"), query(f"{c}/seed", includeObject="Some")):
            bad = side.get(target, {"Accept": AS_TABLE})
            t.check(bad.status == 400 and "includeObject" in bad.message, f"{target}: {bad}")
            out.append(bad)
    return out


@entry(132, "metadata_alone_has_the_objects_metadata_and_the_lists", setup=seeded)
def metadata_only(side, t):
    """PartialObjectMetadata of a list, an object and a watch, in both versions and in JSON and protobuf; pages keep their token."""
    out = []
    for c, make, _ in kinds(t):
        whole = side.get(f"{c}/seed").json()["metadata"]
        for version in ("v1", "v1beta1"):
            many, one = (f"as=PartialObjectMetadata{x};v={version};g=meta.k8s.io" for x in ("List", ""))
            listed = side.get(query(c, resourceVersion=0), {"Accept": f"application/json;{many}"})
            t.check(listed.json()["kind"] == "PartialObjectMetadataList" and [i["metadata"] for i in listed.items] == [whole] and listed.version >= t.state[c], f"{version}: {listed}")
            got = side.get(f"{c}/seed", {"Accept": f"application/json;{one}"})
            t.check(got.json()["kind"] == "PartialObjectMetadata" and got.json()["metadata"] == whole and "spec" not in got.json(), f"{version}: {got}")
            seen = side.open(watch(c, resourceVersion=0, **BOOKMARKS), {"Accept": f"application/json;{one}"}).until_marker()
            t.check(seen[0].object["metadata"] == whole and seen[0].object["apiVersion"] == f"meta.k8s.io/{version}", f"{version}: {seen[0].frame}")
            binary = side.get(query(c, resourceVersion=0), {"Accept": f"{PB};{many}"})
            t.check(binary.status == 200 and binary.body.startswith(b"k8s\x00") and binary.headers["content-type"] == PB, f"{version}: {binary.headers}")
            wrong = [side.get(c, {"Accept": f"application/json;{one}"}), side.get(f"{c}/seed", {"Accept": f"application/json;{many}"})]
            t.check(all(w.status in (406, 500) for w in wrong), f"{version}: {[str(w) for w in wrong]}")
            out += [listed, got, [e.frame.decode() for e in seen[:1]], binary, *wrong]
    return out


def five(t):
    return {c: [t.create(c, make(f"o{n}")) for n in range(5)] for c, make, _ in kinds(t)}


@entry(132, "pages_of_metadata_copy_token_and_count", setup=five)
def metadata_pages(side, t):
    """The list's own metadata of a page is that of the whole objects' page."""
    out = []
    for c, _, _ in kinds(t):
        for accept in ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", AS_TABLE):
            first = side.get(query(c, limit=2), {"Accept": accept})
            t.check(first.remaining == 3 and first.token, f"{first}")
            rest = side.get(query(c, **{"continue": first.token}), {"Accept": accept})
            t.check(rest.version == first.version and not rest.token and len(rest.json().get("items") or rest.json()["rows"]) == 3, f"{rest}")
            out += [first, rest]
    return out


# --- sizes and frames ----------------------------------------------------------------------

BIG = 700_000


@entry(133, "all_clients_of_one_form_get_the_same_bytes_whatever_their_size", setup=seeded, live=True)
def same_bytes(side, t):
    """Three clients each of four forms; events from hundreds of bytes to most of a megabyte."""
    forms = ("json", "protobuf", "table", "metadata")
    opened = {(form, n): FormWatch(side, form, watch(t.pods, resourceVersion=t.state[t.pods], **({"labelSelector": "app=seed"} if n == 2 else {}))).opened() for form in forms for n in range(3)}
    versions = t.once(lambda: [t.update(f"{t.pods}/seed", {"metadata": {"annotations": {"pad": "é" * (size // 2)}}}) for size in (0, 100, 5_000, 100_000, 240_000)])
    for (form, n), stream in opened.items():
        got = [stream.next() for _ in versions]
        t.check([e.version for e in got] == versions, f"{form}: {got}")
        if form != "table":  # whose later columns come or not
            t.check(stream.frames[:5] == opened[form, 0].frames[:5], f"{form}: client {n} sees other bytes than client 0")
    return closed(*opened.values())


def big(t):
    make = lambda name: {"metadata": {"name": name}, "data": {"k": "\u2028<é" * (BIG // 12)}}
    collection = f"/api/v1/namespaces/{t.namespace}/configmaps"
    return [t.create(collection, make(f"o{n}")) for n in range(3)]


@entry(142, "frames_are_whole_however_they_are_cut", setup=big)
def short_reads(side, t):
    """Events of most of a megabyte through a small receive buffer, in every framing: each is one whole frame, nothing between."""
    collection, out = f"/api/v1/namespaces/{t.namespace}/configmaps", []
    for form in ("json", "protobuf", "websocket text", "websocket binary"):
        stream = FormWatch(side, form, watch(collection, resourceVersion=t.state[0] - 1, timeoutSeconds=4), narrow=True).opened()
        got = [stream.next() for _ in t.state]
        t.check([e.version for e in got] == t.state and all(len(e.frame) > BIG // 2 for e in got), f"{form}: {got} of {[len(e.frame) for e in got]} bytes")
        stream.wait_end()
        t.check(stream.end == "clean" and not stream.body and len(stream.frames) == 3, f"{form}: {stream.end}, rest {stream.body[:100]}")
        out.append(stream.raw())
    return out
