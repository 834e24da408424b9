"""The quiet end: after the last write no further event occurs, and every open watch must have everything within a second.

A gateway that sends delayed data only together with the next event passes every suite that keeps writing. So suites end with
bursts of several sizes, each followed by silence. A client that misses an event when nothing more arrives is a failure with a
line of its own. While data still arrives, the client or the machine is slow, which is not
a failure of the gateway: then the suite waits."""
import time
from concurrent.futures import ThreadPoolExecutor

from . import fixtures, wire

METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
FORMS = {  # name: headers
    "JSON": {}, "protobuf": {"Accept": wire.PROTOBUF}, "metadata": {"Accept": f"application/json;{METADATA}"}, "metadata in protobuf": {"Accept": f"{wire.PROTOBUF};{METADATA}"},
    "Table": {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}, "WebSocket": wire.WEBSOCKET, "WebSocket, protobuf": {**wire.WEBSOCKET, "Accept": wire.PROTOBUF},
}
BOUND_SECONDS = 1.0  # nothing arrives for this long
LONGEST_SECONDS = 60  # limit even if data keeps arriving
LOOK_SECONDS = 0.02
LOOK_MAX = 0.25  # a longer interval counts only this much as silence: the machine may have stalled
WRITERS = 4  # per burst
CONFLICTS_MAX = 20  # per write, each of several attempts
BURSTS = [(1, 100), (2, 70_000), (4, 70_000), (20, 20_000)]  # writes, bytes; an object's annotations are limited to 256 KiB


def settle(behind, progress):
    """Waits until behind() is falsy or nothing more arrives. Returns (what is behind, elapsed seconds)."""
    began = looked = moved = time.monotonic()
    seen, silent = progress(), 0.0
    while missing := behind():
        now, then = time.monotonic(), looked
        looked = now
        if (newest := progress()) != seen:
            seen, silent, moved = newest, 0.0, now
        else:
            silent += min(now - then, LOOK_MAX)
        if silent >= BOUND_SECONDS or now - began > LONGEST_SECONDS:
            return missing, moved - began
        time.sleep(LOOK_SECONDS)
    return None, time.monotonic() - began


def end(check, name, behind, progress):
    """There are no more writes: every client must have everything."""
    missing, took = settle(behind, progress)
    lines = "\n".join(map(str, missing)) if isinstance(missing, (list, tuple)) else str(missing)
    return check(f"quiet end: {name}", not missing, f"behind at the end; nothing came for {BOUND_SECONDS:.0f} s, {took:.2f} s after the last write:\n{lines}")


def bursts(check, name, write, behind, progress):
    """Bursts, each followed by silence. write(count, length) writes; behind(its result) returns what is missing."""
    failures = []
    for count, length in BURSTS:
        written = write(count, length)
        missing, took = settle(lambda: behind(written), progress)
        if missing:
            failures.append(f"{count} × {length} B: behind at the end; nothing came for {BOUND_SECONDS:.0f} s, {took:.2f} s after the burst: {str(missing)[:2000]}")
    return check(f"quiet end: {name}", not failures, "\n".join(failures))


def annotate(api, target, count, length):
    """Changes an object COUNT times, with several concurrent writers so that events wait together; returns the versions in order."""
    def change(i):
        for _ in range(CONFLICTS_MAX):
            try:
                return api.patch(target, {"metadata": {"annotations": {"quiet-end": f"{i}".ljust(length, "x")}}})
            except fixtures.Refused as e:  # the server has already retried several times
                last = e
        raise last
    with ThreadPoolExecutor(WRITERS) as writers:
        return sorted(writers.map(change, range(count)))


def carries(frame, version):
    """Whether a frame, in JSON or protobuf, is an event of this version. A bookmark is not: it only claims that no older event is left."""
    text = str(version).encode()
    is_of_version = b'"resourceVersion":"%b"' % text in frame or b"\x32%c%b" % (len(text), text) in frame
    return is_of_version and b"BOOKMARK" not in frame[:32]


def without(streams, versions):
    """Streams without the last of these versions among their newest frames; a bookmark may follow it."""
    last = versions[-1]
    return [f"{s.endpoint.name} {s.target}: {len(s.frames)} frames, {s.end or 'open'}" for s in streams if not any(carries(frame, last) for frame in s.frames[-3:])]


def stream_bursts(check, name, api, target, streams):
    """The same for watches of one object."""
    bursts(check, name, lambda count, length: annotate(api, target, count, length), lambda versions: without(streams, versions), lambda: sum(s.received for s in streams))
    api.patch(target, {"metadata": {"annotations": {"quiet-end": None}}})


def forms(check, name, api, stack, collection, thing, endpoints=None, **params):
    """The same for watches in every form, over every transport or at these endpoints; they are opened here, without bookmarks."""
    since = api.list_version(collection)
    pairs = [(e, headers) for e in endpoints or stack.transports() for headers in FORMS.values() if not (e.http2 and "Upgrade" in headers)]
    streams = [wire.Stream(e, wire.query(collection, watch="true", resourceVersion=since, **params), headers) for e, headers in pairs]
    try:
        for stream in streams:
            stream.wait_open()
        stream_bursts(check, f"{len(streams)} {name}", api, f"{collection}/{thing}", streams)
    finally:
        for stream in streams:
            stream.close()
