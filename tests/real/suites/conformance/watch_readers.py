"""Entries 87, 90, 91, 94, 95, 99 and 101: clients that do not read, and clients that leave."""
import socket
import struct

from .. import fixtures, wire
from .framework import entry, pinned
from .streams import BOOKMARKS, INITIAL, StalledWatch, closed, expect, seeded, watch


# --- readers that stall --------------------------------------------------------------

PAD = 24_000


def padded(c, make, n):
    thing = make(f"o{n}")
    thing["metadata"]["annotations"] = {"pad": "x" * PAD}
    return thing


def is_prefix(t, stream, wanted):
    """What a stalled reader gets in the end: a contiguous beginning, then all the rest or the clean end; never an ERROR."""
    got = []
    while len(got) < len(wanted) and (event := stream.next()) is not None:
        got.append((event.type, event.name, event.version))
    t.check(got and got == wanted[:len(got)], f"a contiguous beginning: {got[-3:]}, {len(got)} of {len(wanted)}, wanted there {wanted[max(0, len(got) - 3):len(got)]}")
    t.check(len(got) == len(wanted) or stream.end == "clean", f"{len(got)} of {len(wanted)}, then {stream.end}")
    return got


@entry(87, "a_stalled_reader_holds_nobody_up_and_gets_a_contiguous_beginning", needs="alone", setup=seeded, live=True)
def stalled_reader(side, t):
    """Six megabytes of events to one that does not read and one that does."""
    stalled, reading = StalledWatch(side, watch(t.pods, resourceVersion=t.state[t.pods])), side.open(watch(t.pods, resourceVersion=t.state[t.pods]))
    versions = t.once(lambda: [t.create(t.pods, padded(t.pods, fixtures.pod, n)) for n in range(250)])
    wanted = [("ADDED", f"o{n}", v) for n, v in enumerate(versions)]
    expect(t, reading, wanted)
    is_prefix(t, stalled.go(), wanted)
    stalled.close()
    return closed(reading)


def much(t):
    return {t.pods: [t.create(t.pods, padded(t.pods, fixtures.pod, n)) for n in range(200)]}


@entry(90, "a_backlog_that_is_not_read_ends_without_an_error", needs="alone", setup=much, live=True)
def overtaken(side, t):
    """Five megabytes of history to a client that does not read, while more is written: a contiguous beginning, no ERROR."""
    versions = t.state[t.pods]
    streams = [StalledWatch(side, watch(t.pods, resourceVersion=versions[0])) for _ in range(3)]
    more = t.once(lambda: [t.label(f"{t.pods}/o0", n=str(n)) for n in range(60)])
    wanted = [("ADDED", f"o{n}", v) for n, v in enumerate(versions)][1:] + [("MODIFIED", "o0", v) for v in more]
    for stream in streams:
        is_prefix(t, stream.go(), wanted)
        stream.close()
    return "contiguous"


pinned(90, unit="watch::tests::a_client_who_fell_out_of_the_history_is_told_once_and_the_stream_ends",
       why="the history overtakes a reader only after 75 seconds with more events than it holds; the gateway then sends 410 in the stream")


@entry(94, "a_stalled_watch_list_gets_its_marker_only_after_the_whole_state", needs="alone", setup=much, live=True)
def draining(side, t):
    """Five megabytes of initial state, not read while more is written: the state in order, then the marker, then a contiguous
    beginning of what came after; where it breaks off the end is clean."""
    stream = StalledWatch(side, watch(t.pods, **INITIAL, **BOOKMARKS))
    more = t.once(lambda: [t.label(f"{t.pods}/o0", n=str(n)) for n in range(40)])
    state = sorted(f"o{n}" for n in range(200))
    got, live = [], []
    stream.go()
    while not (live and live[-1].version == more[-1]) and (event := stream.next()) is not None:
        t.check(event.type != "ERROR", f"{event.object}")
        if event.type == "ADDED":
            got.append(event.name)
        elif event.marker:
            t.check(got == state, f"the marker after {len(got)} of {len(state)}")
        elif event.type == "MODIFIED":
            live.append(event)
    t.check(got == state[:len(got)], f"the state in order: {got[:5]} … {got[-3:]}")
    t.check(not live or got == state, "live events only after the state")
    seen = [e.version for e in live]
    t.check(seen == [v for v in more if seen and v >= seen[0]][:len(seen)], f"contiguous: {seen} of {more}")
    stream.close()
    return "in order"


# --- leaving -------------------------------------------------------------------------

SERVICES = "/api/v1/namespaces/{}/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
GATEWAYS_OWN = 5  # watches of a resource: two gateways, each in two encodings, and one to spare


def open_watches(side, resource):
    """Watches of a resource at this side by its own metrics."""
    stack = side.world.stack
    if side.is_gateway and not stack.direct:
        where, name = wire.Endpoint("admin", "127.0.0.1", stack.gateway_ports["plain"][1]), "kube_fanout_longrunning_requests{"
    else:
        where, name = stack.server, "apiserver_longrunning_requests{"
    lines = wire.request(where, "GET", "/metrics").text().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name) and f'resource="{resource}"' in line)


def forgotten(t, side, resource):
    """What is left at the server is the gateway's own."""
    wire.poll(f"{side.name}: the watches of {resource} forgotten", lambda: open_watches(side, resource) <= (0 if side.is_gateway and not t.stack.direct else GATEWAYS_OWN), 30)


@entry(91, "a_watch_that_ended_is_forgotten", live=True, plain=True)
def forgotten_watches(side, t):
    """Ended by its time, closed by the client, or broken off: the side's own count of open watches goes back."""
    leases = LEASES.format(t.namespace)
    version = side.get(leases).version
    opened = [side.open(watch(leases, resourceVersion=version)) for n in range(20)]
    t.check(open_watches(side, "leases") >= 20, f"open: {open_watches(side, 'leases')}")
    timed = [side.open(watch(leases, resourceVersion=version), seconds=1) for n in range(10)]
    for n, stream in enumerate(opened):
        if n % 2:
            socket_reset(stream)
        stream.close()
    for stream in timed:
        stream.wait_end()
    t.once(lambda: None)
    forgotten(t, side, "leases")
    return "forgotten"


def socket_reset(stream):
    """The connection ends without a goodbye."""
    stream.stream._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@entry(95, "stalled_watches_that_break_off_leave_nothing_behind", live=True, plain=True)
def teardown(side, t):
    """Clients that never read go away while events are on their way: they are forgotten, and a new watch works."""
    services = SERVICES.format(t.namespace)
    version = side.get(services).version
    stalled = [StalledWatch(side, watch(services, resourceVersion=version)) for _ in range(20)]
    thing = lambda n: {"metadata": {"name": f"o{n}", "annotations": {"pad": "x" * PAD}}}
    versions = t.once(lambda: [t.create(services, thing(n)) for n in range(150)])
    for stream in stalled:
        socket_reset(stream)
        stream.close()
    t.once(lambda: None)
    forgotten(t, side, "services")
    again = side.open(watch(services, resourceVersion=versions[-3]))
    expect(t, again, [("ADDED", "o148", versions[-2]), ("ADDED", "o149", versions[-1])])
    return closed(again)


pinned(99, why="lengths of buffers inside the server; the gateway has no buffer per client. Entry 87 tests what a stalled reader notices", observable=False)
pinned(101, why="the time that the server grants to blocked watchers; the gateway waits for no client. Entries 73 and 87 test that a stalled reader delays no other client", observable=False)
