"""Whether two responses to a request are the same, by the rules of suites/comparison.py."""
import re
from types import SimpleNamespace

from .. import wire
from ..comparison import Case, compare_heads, compare_lists, compare_streams, differing, masked

OVERDUE = b"context deadline exceeded"
MISREAD = (ValueError, KeyError, IndexError, TypeError, AttributeError)


def number(text):
    return int(text) if text and text.isascii() and text.isdigit() else None


def cached(request):
    """(whether a cache may choose the list's version, the version that it must have reached). docs/PROTOCOL.md §3.1"""
    version, match = request.option("resourceVersion"), request.option("resourceVersionMatch") or ""
    at_least = number(version)
    if at_least is None or request.option("continue") or match == "Exact":
        return False, 0
    if at_least and (number(request.option("limit")) or 0) > 0 and not match:
        return "metadata.name=" in (request.option("fieldSelector") or ""), at_least  # exact, except for a single name
    return True, at_least


def as_case(request):
    a_cache, at_least = cached(request)
    return Case(str(request), request.target, list(request.headers), request.method, request.body, cached=a_cache, at_least=at_least,
                watch=request.asks_watch(), random_retry="events" in request.path, every_header=True)


def compare(request, left, right, newest_known):
    """The differences, the clearest first; an empty list if the responses are the same."""
    case = as_case(request)
    if case.watch and left.status == right.status in (200, 101) and (request.option("timeoutSeconds") or "").startswith("-"):
        return compare_expired(left, right)
    out = compare_heads(case, left, right)
    out += compare_audit_ids(request, left.headers.get("audit-id"), right.headers.get("audit-id"))
    if left.end != right.end:
        out.append(f"end: server {left.end}, under test {right.end}")
    if masked(left.body) != masked(right.body):
        out += compare_bodies(case, left, right, newest_known)
    return list(dict.fromkeys(out))


def compare_audit_ids(request, left, right):
    """An Audit-Id that the client sent is returned; an empty one is replaced by the server's own."""
    sent = request.values("audit-id")
    same = not sent or (left == right if sent[0] else bool(left) == bool(right))
    return [] if same else [f"header audit-id: server {left!r}, under test {right!r}"]


def compare_bodies(case, left, right, newest_known):
    try:
        if case.watch and {left.status, right.status} <= {200, 101}:
            return compare_streams(case, as_stream(left), as_stream(right))
        if case.cached and left.status == right.status == 200:
            return compare_lists(case, left, right, newest_known)
    except MISREAD as e:
        return [*differing(masked(left.body), masked(right.body)), f"not compared by their meaning: {type(e).__name__}: {e}"]
    return differing(masked(left.body), masked(right.body))


def compare_expired(left, right):
    """A watch whose timeout passes before it begins: how much the server sends is a race, including its Content-Type."""
    sides = [[f for f in side.frames()[0] if OVERDUE not in f] for side in (left, right)]
    short, long = sorted(sides, key=len)
    out = [] if long[:len(short)] == short else [f"event sequences differ: one is not the beginning of the other ({len(sides[0])} and {len(sides[1])} events)"]
    return out + ([f"end: server {left.end}, under test {right.end}"] if left.end != right.end else [])


def as_stream(side):
    """The frames without the head, which has been compared already."""
    frames, rest = side.frames()
    binary = bool(frames) and not frames[0].startswith(b"{")
    return SimpleNamespace(status=200, headers={"content-type": wire.PROTOBUF} if binary else {}, binary=binary, frames=frames, body=rest, end=side.end)


def kind(differences):
    """The first difference without its details: the part that stays the same while a request is made smaller."""
    first = differences[0] if differences else ""
    first = re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "UUID", first)
    return re.sub(r" from (byte|event) .*|: (OSError|ConnectionResetError|TimeoutError).*|(?<=list version) .*", "", first)
