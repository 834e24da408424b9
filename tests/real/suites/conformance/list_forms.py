"""Entries 56-60: how tokens, versions and queries are parsed; compression and errors of lists."""
from .. import fixtures, wire
from .list_requests import PARTIALS, PB, TABLE, token
from .framework import entry, query
from .kinds import both, kinds, named
from .lists import NOT_OLDER, refused
from .pages import page

COMPRESSED_ABOVE = 131072  # bytes; shorter bodies and bodies of this length are not compressed


@entry(56, "a_token_cannot_leave_its_range", setup=named("a", "b"))
@both
def traversal(side, t, k):
    """Keys with dots and empty segments are rejected, as are options that are invalid with a token."""
    now = k.state[-1]
    out = {start: page(side, k, token(now, start)) for start in ("..", "../a\0", "/../a\0", "a/../b\0", "./a\0", "a/./b\0", "a//b\0", "a/..", "//a\0")}
    for start, got in out.items():
        refused(t, got, 400, "BadRequest", "continue key is not valid")
    fine = [page(side, k, token(now, start)) for start in ("a\0", "/a\0", "..a\0", "a..\0", "c/d\0")]
    for got in fine:
        t.check(got.status == 200, f"{got}")
    good = token(now, "a\0")
    odd = [page(side, k, text) for text in (good + "==", good + "\n", good[:-3], f" {good}", good.swapcase(), "e30", "bnVsbA", "W10")]
    for got in odd:
        t.check(got.status in (200, 400), f"{got}")
    matched = refused(t, page(side, k, good, resourceVersion=now, **NOT_OLDER), 422, "Invalid", "resourceVersionMatch is forbidden when continue is provided")
    return {"refused": out, "fine": fine, "odd": odd, "matched": matched}


@entry(57, "resource_versions_are_unsigned_decimals_of_64_bits", setup=named("p1"))
@both
def parsing(side, t, k):
    """Leading zeros are accepted; signs, blanks, other bases and digits, and numbers that are too long are not."""
    now = k.state[0]
    good = [side.get(query(k.collection, resourceVersion=v)) for v in ("", "0", "00", f"000{now}", now)]
    for got in good:
        t.check(got.names == ["p1"], f"{got}")
    bad = {v: side.get(query(k.collection, resourceVersion=v)) for v in ("-0", "+1", " 1", "1 ", "1_0", "1e3", "0x1f", "१", "18446744073709551616", '"1"', "<1>")}
    for text, got in bad.items():
        refused(t, got, 400, "BadRequest", "invalid resource version")
    ranges = side.get(query(k.collection, resourceVersion="18446744073709551616"))
    t.check("value out of range" in ranges.message, f"{ranges}")
    return {"good": good, "bad": bad, "ranges": ranges}


def squeezed(t, got, accepted):
    """A body is compressed exactly if it is long and the client accepts gzip."""
    wanted = accepted and len(got.body) > COMPRESSED_ABOVE
    t.check((got.headers.get("content-encoding") == "gzip") == wanted, f"{got.target}: {len(got.body)} bytes, Content-Encoding {got.headers.get('content-encoding')}")
    t.check((got.headers.get("vary") == "Accept-Encoding") == wanted, f"{got.target}: {len(got.body)} bytes, Vary {got.headers.get('vary')}")
    return got


def exact_sizes(t):
    """Two lists: one exactly as long as the threshold, one longer by a byte."""
    out = {}
    for size in (COMPRESSED_ABOVE, COMPRESSED_ABOVE + 1):
        collection = f"/api/v1/namespaces/{t.namespace}-{size}/configmaps"
        pad = 100000
        t.create(collection, {"metadata": {"name": "c"}, "data": {"k": "x" * pad}})
        for _ in range(5):  # the version may get more digits meanwhile
            missing = size - len(wire.request(t.stack.server, "GET", query(collection, resourceVersion=0)).body)
            if missing == 0:
                break
            pad += missing
            version = t.update(f"{collection}/c", {"data": {"k": "x" * pad}})
            fixtures.wait_served(t.stack.server, collection, version)
        out[size] = collection
    return out


@entry(58, "lists_are_compressed_above_128_kibibytes", setup=exact_sizes)
def compressed(side, t):
    """Long and short, JSON and protobuf, and a byte below and above the threshold."""
    gzip, cases = {"Accept-Encoding": "gzip"}, t.cases(58)
    out = {c.name: squeezed(t, side.ask(c), c.headers["Accept-Encoding"] in ("gzip", "deflate, gzip")) for c in cases}
    t.check(any(len(got.body) > COMPRESSED_ABOVE for got in out.values()), "no long list")
    for name, accept in {"YAML": {"Accept": "application/yaml"}, "Table": TABLE, "Table with objects": TABLE, "metadata": PARTIALS}.items():
        objects = "Object" if "objects" in name else None
        out[name] = squeezed(t, side.get(query("/api/v1/namespaces/big/configmaps", resourceVersion=0, includeObject=objects), {**gzip, **accept}), True)
    for size, collection in t.state.items():
        got = squeezed(t, side.get(query(collection, resourceVersion=0), gzip), True)
        out[f"{size} bytes"] = got
        out[f"{size} bytes, protobuf"] = squeezed(t, side.get(query(collection, resourceVersion=0), {**gzip, **PB}), True)
    return out


def long_object(t):
    t.create(f"/api/v1/namespaces/{t.namespace}/configmaps", {"metadata": {"name": "long"}, "data": {"k": "x" * 2 * COMPRESSED_ABOVE}})
    t.create(f"/api/v1/namespaces/{t.namespace}/configmaps", {"metadata": {"name": "short"}, "data": {"k": "x"}})


@entry(59, "only_the_plain_word_gzip_asks_for_compression", setup=long_object)
def encodings(side, t):
    """Encodings of lists and of single objects; parameters, other cases and wildcards have no effect, and errors are never compressed."""
    collection, out = f"/api/v1/namespaces/{t.namespace}/configmaps", {}
    for accepted in ("gzip", "deflate, gzip", "gzip,br", " gzip ", "gzip;q=1.0", "gzip;q=0", "*", "GZIP", "identity", ""):
        plain = accepted.replace(" ", "").split(",")
        for target in (f"{collection}?resourceVersion=0", f"{collection}/long", f"{collection}/short", f"{collection}/nope"):
            out[f"{accepted!r} {target}"] = squeezed(t, side.get(target, {"Accept-Encoding": accepted}), "gzip" in plain)
    return out


@entry(60, "wrong_queries_are_told_and_lists_have_metadata")
def queries(side, t):
    """Invalid numbers are 400 with the parser's own text; unknown resources are 404; a list has its kind and version."""
    cases = t.cases(60)
    t.check(len(cases) >= 10, f"{len(cases)} cases")
    out = {c.name: side.ask(c) for c in cases}
    for name, got in out.items():
        t.check(got.status == 400 and ("timeout" in name or got.message.startswith("strconv.ParseInt: parsing")), f"{name}: {got}")
    out["unknown resource"] = refused(t, side.get("/api/v1/nopes"), 404, "NotFound", "the server could not find the requested resource")
    out["unknown group"] = unknown = side.get("/apis/nope.io/v1/nopes")
    t.check(unknown.status == 404 and unknown.text() == "404 page not found\n", f"{unknown}")
    for k in kinds(t):
        out[k.name] = got = side.get(query(k.collection, limit=1))
        meta = {key: got.json()[key] for key in ("kind", "apiVersion")}
        t.check(meta in ({"kind": "PodList", "apiVersion": "v1"}, {"kind": "WidgetList", "apiVersion": "example.com/v1"}) and got.version > 0, f"{got}")
    return out
