"""The request of one case, and the comparison of the two responses.

Only those parts are masked that must differ between two servers in the same state:
- Date and the value of Audit-Id (its presence is compared);
- in reads that a cache may answer (`cached`): the list's own resource version and the one inside its continue token. They are
  checked against bounds instead: not older than requested (a consistent list: than etcd's version at the time of the request)
  or than any item, not newer than the server's;
- resource versions of bookmarks, which are checked against the stream's order instead, and the number of plain bookmarks;
- "current: N" and "(N)" in the texts about versions that are too large or too old, which show how far a cache has advanced;
- the framing of bodies, and the names of priority and fairness, when all headers are compared (`every_header`);
- Content-Encoding and Vary of watches that the gateway compresses for clients that accept it (docs/PROTOCOL.md §5.7); their events are
  compared decoded;
- ages in the cells of tables; and column definitions after the first event of a table stream, which the server
  repeats or not, depending on which stream encoded the event first.
"""
import base64
import json
import re
import zlib
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from . import protobuf, wire

COMPARED = ("upgrade", "sec-websocket-accept", "sec-websocket-protocol", "sec-websocket-version", "content-type", "cache-control", "retry-after", "warning", "vary", "content-encoding", "x-content-type-options")
PRESENT = ("audit-id",)
COMPRESSION = {"content-encoding": "gzip", "vary": "Accept-Encoding"}
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")
FREE = ("date", *PRESENT, *HOP_BY_HOP, "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid")
AGES = (re.compile(rb'("cells":\s*\[[^\[\]]*")\d+[smh](?:\d+[sm])?"'), rb'\1#"')
COLUMNS = (re.compile(rb'"columnDefinitions":\[.*?\],"rows"'), rb'"columnDefinitions":null,"rows"')
CONTROLS = {i: f"\\x{i:02x}" for i in range(32)}
CONTEXT = 40  # bytes before and after the first difference
YAML_VERSION = re.compile(rb'^  resourceVersion: "(\d+)"$', re.MULTILINE)  # the list's own: deeper ones belong to items
YAML_TOKEN = re.compile(rb'^  continue: ([\w-]+)$', re.MULTILINE)
YAML_ITEM_VERSION = re.compile(rb'^ {3,}resourceVersion: "(\d+)"$', re.MULTILINE)
RETRY = (re.compile(rb'("retryAfterSeconds":)\d+'), rb"\1#")
YAML_AGES = (re.compile(rb"^( *- )\d+[smh](?:\d+[sm])?$", re.MULTILINE), rb"\1#")
PROGRESS = [AGES, YAML_AGES, (re.compile(rb"(current: )\d+"), rb"\1#"), (re.compile(rb"(too old resource version: \d+ \()\d+"), rb"\1#")]


@dataclass
class Case:
    """`name` begins with the numbers of the conformance checklist."""
    name: str
    target: str
    headers: dict = field(default_factory=dict)
    method: str = "GET"
    body: bytes = None
    cached: bool = False  # a cache may answer: mask and bound the list's resource version
    at_least: int = 0  # the version that a cached response must have reached
    watch: bool = False
    bookmark: bool = False  # at least one plain bookmark must come
    random_retry: bool = False  # the server chooses the Retry-After delay at random
    user: str = "admin"
    every_header: bool = False  # compare all headers, not only the most important


def is_consistent(target):
    """Whether a list must be as new as the store is at the time of the request."""
    params = {k: v[0] for k, v in parse_qs(urlsplit(target).query, keep_blank_values=True).items()}
    return not params.get("resourceVersion") and not params.get("continue") and "watch" not in params


def masked(data):
    if data.startswith(protobuf.MAGIC) and b"current: " in data:  # a Status, whose lengths depend on the number
        kind, raw = protobuf.unwrap(data)
        data = repr((kind, protobuf.fields(raw))).encode()
    for pattern, instead in PROGRESS:
        data = pattern.sub(instead, data)
    return data


def shown(data, limit=1500):
    text = data.decode("utf-8", "backslashreplace").translate(CONTROLS) if isinstance(data, bytes) else str(data)
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text)} characters)"


def is_compressed_watch(case, left, right):
    """Whether the gateway has compressed a watch as it may, and the server has not."""
    accepted = next((v for k, v in (case.headers.items() if isinstance(case.headers, dict) else case.headers) if k.lower() == "accept-encoding"), "")
    accepts = "gzip" in map(str.strip, accepted.split(","))
    return case.watch and accepts and right.status == 200 and all(right.headers.get(k) == v and k not in left.headers for k, v in COMPRESSION.items())


def compare_heads(case, left, right):
    out, names = [], COMPARED
    if left.status != right.status:
        out.append(f"status: server {left.status}, under test {right.status}")
    if case.every_header:
        names = [n for n in dict.fromkeys([*left.headers, *right.headers]) if n not in FREE]
    compressed = COMPRESSION if is_compressed_watch(case, left, right) else {}
    for name in names:
        a, b = left.headers.get(name), right.headers.get(name)
        if a != b and name not in compressed:
            out.append(f"header {name}: server {a!r}, under test {b!r}")
    for name in PRESENT:
        if (name in left.headers) != (name in right.headers):
            out.append(f"header {name}: server {'has' if name in left.headers else 'lacks'} it")
    return out


# --- lists ---------------------------------------------------------------------

def _token(text):
    """A continue token with its version masked."""
    raw = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return json.dumps({"v": raw["v"], "rv": "#", "start": raw["start"]}), raw["rv"]


def is_yaml(body):
    return not body.startswith(b"{")


def list_without_version(body, case):
    """(body with the list's version and ages masked, that version, the newest item's)."""
    if not body.startswith(protobuf.MAGIC):
        for pattern, instead in (AGES, YAML_AGES):
            body = pattern.sub(instead, body)
    if body.startswith(protobuf.MAGIC):
        kind, raw = protobuf.unwrap(body)
        parts = protobuf.fields(raw)
        meta_at, items_at = (2, 1) if b"meta.k8s.io/v1beta1" in kind else (1, 2)
        meta = protobuf.fields(protobuf.first(parts, meta_at))
        items = [v for n, v in parts if n == items_at]
        version = int(protobuf.first(meta, 2))
        token = protobuf.first(meta, 3).decode()
        rest = (kind, protobuf.without(meta, 2, 3), _token(token)[0] if token else "", items)
        return repr(rest).encode(), version, max((int(protobuf.object_version(i)) for i in items), default=0)
    if is_yaml(body):
        version = YAML_VERSION.findall(body)[-1]
        body = YAML_TOKEN.sub(lambda m: b"  continue: " + _token(m.group(1).decode())[0].encode(), body)
        return YAML_VERSION.sub(b'  resourceVersion: "#"', body), int(version), max(map(int, YAML_ITEM_VERSION.findall(body)), default=0)
    parsed = json.loads(body)
    version = parsed["metadata"]["resourceVersion"]
    items = [i.get("object") or {} if "rows" in parsed else i for i in parsed.get("items") or parsed.get("rows") or []]
    newest = max((int(i.get("metadata", {}).get("resourceVersion", 0)) for i in items), default=0)
    keys = list(parsed)
    first = keys.index("metadata") < keys.index("rows" if "rows" in parsed else "items")
    spots = [m.span(1) for m in re.finditer(rb'"resourceVersion":\s*"(\d+)"', body) if m.group(1) == version.encode()]
    a, b = spots[0] if first else spots[-1]
    body = body[:a] + b"#" + body[b:]
    if token := parsed["metadata"].get("continue"):
        body = body.replace(token.encode(), _token(token)[0].encode())
    return body, int(version), newest


def compare_lists(case, left, right, newest_known):
    """Bodies of a cached read."""
    try:
        (a, _, _), (b, version, newest) = list_without_version(left.body, case), list_without_version(right.body, case)
    except (ValueError, KeyError, IndexError) as e:
        return [f"not a list: {e!r}", f"server: {shown(left.body)}", f"under test: {shown(right.body)}"]
    out = []
    if not max(case.at_least, newest) <= version <= newest_known:
        out.append(f"list version {version}: asked for {case.at_least}, newest item {newest}, server's newest {newest_known}")
    return out + differing(a, b)


def differing(a, b):
    """The first byte that differs, with its surroundings on both sides."""
    if a == b:
        return []
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    out = [f"bodies differ from byte {at} on ({len(a)} and {len(b)} bytes)"]
    for name, data in (("server:     ", a), ("under test: ", b)):
        out += [f"{name}{shown(data[max(0, at - CONTEXT):], 600)}", f"{' ' * len(name)}{data[max(0, at - CONTEXT):at].hex()} > {data[at:at + CONTEXT].hex()}"]
    return out


def compare_answers(case, left, right, newest_known):
    out = compare_heads(case, left, right)
    if case.cached and left.status == right.status == 200:
        return out + compare_lists(case, left, right, newest_known)
    return out + differing(masked(left.body), masked(right.body))


# --- requests ------------------------------------------------------------------

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


# --- watches -------------------------------------------------------------------

@dataclass
class Event:
    kind: str
    version: int  # 0 for ERROR
    shape: bytes  # the compared part
    marker: bool = False

    def __str__(self):
        return f"{self.kind} {self.version} {shown(self.shape, 260)}"


def event(frame, binary):
    if binary:
        kind, raw = protobuf.event(frame)
        if kind == "ERROR":
            return Event(kind, 0, masked(raw))
        meta, thing = protobuf.unwrap(raw)
        version = int(protobuf.object_version(thing))
        if kind != "BOOKMARK":
            return Event(kind, version, raw)
        parts = protobuf.fields(thing)
        shape = repr((meta, protobuf.without(protobuf.fields(protobuf.first(parts, 1)), 6), protobuf.without(parts, 1))).encode()
        return Event(kind, version, shape, b"initial-events-end" in raw)
    frame = AGES[0].sub(AGES[1], frame)
    parsed = json.loads(frame)
    kind = parsed["type"]
    if kind == "ERROR":
        return Event(kind, 0, masked(frame))
    version = int(parsed["object"]["metadata"]["resourceVersion"])
    shape = re.sub(rb'("resourceVersion":)"\d+"', rb'\1"#"', frame) if kind == "BOOKMARK" else frame
    return Event(kind, version, shape, b"k8s.io/initial-events-end" in frame)


def events(stream):
    got = [event(f, stream.binary) for f in stream.frames]
    for later in [e for e in got if e.kind != "BOOKMARK"][1:] + [e for e in got[1:] if e.kind == "BOOKMARK"]:
        later.shape = COLUMNS[0].sub(COLUMNS[1], later.shape)
    return got


def order_faults(got):
    """Violations of a stream's guarantees: versions of live events increase, bookmarks never go back."""
    out, last, live = [], 0, not any(e.marker for e in got)
    for e in got:
        if e.marker:
            live = True
        if e.kind == "ERROR":
            continue
        if e.kind == "BOOKMARK" and e.version < last:
            out.append(f"bookmark {e.version} after version {last}")
        if e.kind in ("MODIFIED", "DELETED") and live and e.version <= last:
            out.append(f"{e.kind} {e.version} after version {last}")
        last = max(last, e.version)
    return out


def compare_streams(case, left, right):
    out = compare_heads(case, left, right)
    if left.status not in (200, 101) or right.status != left.status:
        return out + differing(masked(left.body), masked(right.body))
    a, b = events(left), events(right)
    if case.random_retry:
        for e in a + b:
            e.shape = RETRY[0].sub(RETRY[1], e.shape)
    plain = lambda got: [e for e in got if e.kind == "BOOKMARK" and not e.marker]
    steady = lambda got: [(e.kind, e.shape) for e in got if e not in plain(got)]
    if steady(a) != steady(b):
        at = next((i for i, (x, y) in enumerate(zip(steady(a), steady(b))) if x != y), min(len(steady(a)), len(steady(b))))
        out.append(f"event sequences differ from event {at} on (server {len(steady(a))} events, under test {len(steady(b))})")
        for name, got in (("server", a), ("under test", b)):
            out += [f"{name}: {e}" for e in [e for e in got if e not in plain(got)][max(0, at - 1):at + 4]] or [f"{name}: no events"]
    if {e.shape for e in plain(a)} != {e.shape for e in plain(b)} and plain(a) and plain(b):
        out.append(f"bookmarks differ: server {plain(a)[0]}, under test {plain(b)[0]}")
    if case.bookmark:
        out += [f"{name}: no bookmark" for name, got in (("server", a), ("under test", b)) if not plain(got)]
    out += [f"under test: {fault}" for fault in order_faults(b)]
    if left.end != right.end:
        out.append(f"end of stream: server {left.end}, under test {right.end}")
    if left.body != right.body:
        out.append(f"rest after the last event: server {shown(left.body)}, under test {shown(right.body)}")
    return out
