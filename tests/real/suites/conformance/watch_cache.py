"""Entries 79-86, 93, 96-98, 100, 102 and 103: what a watch cache must keep to, as far as it shows outside."""
import copy
import re
import threading
from concurrent.futures import ThreadPoolExecutor

from .. import fixtures, wire
from .framework import Failed, entry, pinned, query
from .streams import BOOKMARKS, INITIAL, Follower, closed, expect, kinds, only_error, seeded, shape, watch
from .watches import an_event, etcd_delete, etcd_put


class Writer(threading.Thread):
    """Changes one of five objects after the other, COUNT times. `versions`: of these writes."""

    def __init__(self, t, collection, make, count):
        super().__init__(daemon=True)
        self.api, self.collection, self.count = t.api, collection, count
        self.versions = [self.api.create(collection, make(f"o{i}")) for i in range(5)]
        self.start()

    def run(self):
        for n in range(self.count):
            self.versions.append(self.api.label(f"{self.collection}/o{n % 5}", n=str(n)))

    def last(self):
        self.join(60)
        if len(self.versions) != self.count + 5:
            raise Failed(f"{len(self.versions)} of {self.count} writes")
        return self.versions[-1]


def writers(t, count=80):
    return t.once(lambda: {c: Writer(t, c, make, count) for c, make, _ in kinds(t)})


# --- where a history begins --------------------------------------------------------

def floor(t, side, collection):
    """The oldest version from which this side can resume, which it tells who asks for an older one."""
    side.get(query(collection, resourceVersion=0))
    status = only_error(t, side.watch(watch(collection, resourceVersion=1)), 410, "Expired")
    found = re.search(r"too old resource version: 1 \((\d+)\)", status["message"])
    t.check(found, status["message"])
    return int(found[1])


@entry(79, "a_history_begins_exactly_at_the_version_of_its_list", needs="compaction")
def history_begin(side, t):
    """On a resource that nobody writes: one before the list's version is too old, that version and the next are not."""
    jobs = f"/apis/batch/v1/namespaces/{t.namespace}/jobs"
    begin = floor(t, side, jobs)
    for version in (begin - 1, begin, begin + 1):
        got = side.watch(watch(jobs, resourceVersion=version), seconds=1)
        if version < begin:
            only_error(t, got, 410, "Expired")
        t.check(version < begin or got == [], f"{version} where the history begins at {begin}: {got}")
    return "exact"


@entry(80, "a_watch_from_the_future_shows_nothing_up_to_its_version", setup=seeded, live=True)
def starting_version(side, t):
    """From a version that is still to come: silence until it has passed, then every event."""
    start = t.once(lambda: t.revision() + 30)
    opened = {c: side.open(watch(c, resourceVersion=start)) for c, _, _ in kinds(t)}

    def write():
        done = {c: [] for c in opened}
        while any(not v or v[-1] <= start + 4 for v in done.values()):
            for c, versions in done.items():
                versions.append(t.label(f"{c}/seed", n=str(len(versions))))
        return done
    made = t.once(write)
    for c, stream in opened.items():
        later = [v for v in made[c] if v > start]
        expect(t, stream, [("MODIFIED", "seed", v) for v in later])
    return closed(*opened.values())


@entry(81, "history_and_live_events_neither_repeat_nor_go_back", setup=seeded, live=True)
def not_back_in_time(side, t):
    """Watches that begin in the midst of writes, each from where the one before had come: together every write once, in order."""
    busy, out = writers(t), []
    for c, _, _ in kinds(t):
        at, seen = t.state[c], []
        while at < busy[c].versions[-1] or busy[c].is_alive():
            stream = side.open(watch(c, resourceVersion=at))
            got = [stream.next() for _ in range(min(7, len(busy[c].versions) - len(seen)))]
            stream.close()
            seen += [e.version for e in got]
            at = max([at, *seen])
        t.check(seen == busy[c].versions[:len(seen)], f"every write once, in order: {seen} of {busy[c].versions}")
        whole = side.open(watch(c, resourceVersion=t.state[c]))
        versions = [e.version for e in whole.until(lambda e, last=busy[c].last(): e.version == last)]
        t.check(versions == busy[c].versions, f"all in one: {versions} of {busy[c].versions}")
        out.append(versions)
    return out


@entry(93, "an_event_that_is_in_the_initial_state_is_not_repeated", setup=seeded, live=True)
def not_repeated(side, t):
    """Watch-lists that begin in the midst of writes: of each object the version of the initial state, then only newer ones."""
    busy, out = writers(t), []
    for c, _, _ in kinds(t):
        streams = []
        while busy[c].is_alive() and len(streams) < 12:
            streams.append(side.open(watch(c, **INITIAL, **BOOKMARKS, resourceVersion=[None, 0, busy[c].versions[-1]][len(streams) % 3])))
        streams.append(side.open(watch(c, **INITIAL, **BOOKMARKS)))
        last = busy[c].last()
        for stream in streams:
            initial = stream.until_marker()
            marker = initial[-1].version
            known, at = {e.name: e.version for e in initial[:-1]}, marker
            t.check(len(known) == len(initial) - 1 and max(known.values(), default=0) <= marker, f"initial: {initial}")
            while max(known.values()) < last:
                event = stream.next()
                t.check(event and (event.version >= at if event.type == "BOOKMARK" else event.version > at), f"{event} after {at}")
                at = event.version
                if event.type != "BOOKMARK":
                    known[event.name] = event.version
            missed = [v for v in busy[c].versions if v > marker and v not in [e.version for e in stream.events()]]
            t.check(not missed, f"after {marker} never told: {missed}")
            out.append(known)
            stream.close()
        t.check(all(k == out[-1] for k in out[-len(streams):]), f"all end with one state: {out}")
    return [out[-1], len({str(k) for k in out})]


def interleaved(t):
    first = t.create(t.pods, fixtures.pod("a"))
    between = t.create(t.widgets, fixtures.widget("w"))
    second = t.create(t.pods, fixtures.pod("b"))
    return [(between, [("ADDED", "b", second)]), (first, [("ADDED", "b", second)]), (first - 1, [("ADDED", "a", first), ("ADDED", "b", second)])]


@entry(96, "a_version_between_two_events_is_where_a_watch_may_begin", setup=interleaved)
def gap(side, t):
    """Versions are of all resources: from that of another resource's write, exactly the next of this one."""
    out = []
    for between, wanted in t.state:
        stream = side.open(watch(t.pods, resourceVersion=between))
        expect(t, stream, wanted)
        out += closed(stream)
    return out


def three_hundred(t):
    return {c: [t.create(c, make("o")), *(t.label(f"{c}/o", n=str(n)) for n in range(250))] for c, make, _ in kinds(t)}


@entry(97, "all_events_of_the_last_minute_can_be_resumed", setup=three_hundred)
def dynamic_history(side, t):
    """More events at once than a ring begins with: the first is still there."""
    out = []
    for c, versions in t.state.items():
        stream = side.open(watch(c, resourceVersion=versions[0]))
        expect(t, stream, [("MODIFIED", "o", v) for v in versions[1:]])
        out += closed(stream)
    return out


@entry(98, "a_history_that_grows_does_not_begin_earlier", needs="compaction", live=True)
def grown_history(side, t):
    """After more events than a ring begins with: what was too old still is, and from the old beginning every event comes."""
    sets = f"/apis/apps/v1/namespaces/{t.namespace}/replicasets"
    begin = floor(t, side, sets)
    make = lambda name: {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}}
    versions = t.once(lambda: [t.create(sets, make("o")), *(t.label(f"{sets}/o", n=str(n)) for n in range(150))])
    stream = side.open(watch(sets, resourceVersion=begin))
    expect(t, stream, [("ADDED", "o", versions[0])] + [("MODIFIED", "o", v) for v in versions[1:]])
    only_error(t, side.watch(watch(sets, resourceVersion=begin - 1)), 410, "Expired")
    return closed(stream)


pinned(97, unit="cache::ring::tests::young_events_stay_until_memory_or_count_says_otherwise", why="the ring's growth and shrinking are internal; a client observes that young events stay")


# --- caches that begin anew --------------------------------------------------------

def own_crd(t):
    """A custom resource of the test's own: (its CRD's path, its collection, a function that makes an object)."""
    group = f"{t.namespace}.example.com"
    crd = copy.deepcopy(fixtures.CRD)
    crd["metadata"]["name"], crd["spec"]["group"] = f"widgets.{group}", group
    t.api.create(fixtures.CRDS, crd)
    collection = f"/apis/{group}/v1/namespaces/{t.namespace}/widgets"
    path = f"{fixtures.CRDS}/{crd['metadata']['name']}"
    established = lambda: any(c["type"] == "Established" and c["status"] == "True" for c in t.api.get(path).get("status", {}).get("conditions") or [])
    for endpoint in (t.stack.server, t.stack.plain):
        wire.poll(f"{endpoint.name} {collection}", lambda: established() and wire.request(endpoint, "GET", query(collection, resourceVersion=0)).status == 200, 60)
    make = lambda name: {**fixtures.widget(name), "apiVersion": f"{group}/v1"}
    return path, collection, make, t.api.create(collection, make("seed"))


@entry(82, "over_the_new_start_of_a_cache_no_event_is_missed", setup=own_crd, live=True)
def reinitialized(side, t):
    """The definition of a custom resource changes, which ends the server's cache of it and its watches. A stream shows one
    generation without a hole; a client that goes on from its last version, or after a 410 from a new state, has it all."""
    crd, collection, make, start = t.state
    follower = Follower(side, collection, start).opened()

    def write():
        versions = [t.create(collection, make(f"o{i}")) for i in range(3)]
        t.api.patch(crd, {"spec": {"names": {"shortNames": ["wg"]}}})
        return versions + [t.label(f"{collection}/o{i % 3}", n=str(i)) for i in range(30)]
    versions = t.once(write)
    follower.until(versions[-1])
    seen = [e.version for e in follower.seen]
    t.check(follower.states or seen == versions, f"every write once: {seen} of {versions}")
    last = t.once(lambda: t.label(f"{collection}/o0", last="yes"))
    t.check(follower.until(last).seen[-1].version == last, f"the last write: {follower.seen}")
    return {n: follower.state[n] for n in ("o0", "o1", "o2")}


@entry(83, "a_cache_that_is_gone_ends_its_watches_and_refuses_new_ones", setup=own_crd, live=True)
def stopped(side, t):
    """The definition of a custom resource is deleted: every object is DELETED, the stream ends cleanly, then all is 404."""
    crd, collection, _, start = t.state
    stream = side.open(watch(collection, resourceVersion=start, **INITIAL, **BOOKMARKS))
    t.check([(e.type, e.name, e.version) for e in stream.until_marker()[:-1]] == [("ADDED", "seed", start)], f"{stream.events()}")
    t.once(lambda: t.api.delete(crd))
    events = [e for e in stream.wait_end() if e.type != "BOOKMARK"]
    t.check([(e.type, e.name) for e in events] == [("ADDED", "seed"), ("DELETED", "seed")], f"{events}: {stream.frames[-1]}")
    t.check(stream.end == "clean", stream.end)

    def gone(target):
        return wire.poll(f"{side.name} {target}: 404", lambda: (lambda got: got if got.status == 404 else None)(side.get(target)), 60)
    return [shape(events), gone(collection), gone(watch(collection)), gone(query(collection, resourceVersion=0))]


def put_broken(t):
    """An object of a kind that nobody else uses, which no server can read; server and gateway then start anew."""
    key = f"/registry/replicasets/{t.namespace}/broken"
    t.cleanup(lambda: etcd_delete(t, key))
    etcd_put(t, key, b"no object")
    t.stack.stop_gateways()
    t.stack.kill_server()
    t.stack.start_server()
    t.stack.start_gateways()
    return key


@entry(84, "a_cache_that_cannot_start_refuses_with_429_instead_of_hanging", needs="restart", setup=put_broken, live=True)
def startup_failure(side, t):
    """An object in the storage cannot be read, so the cache is never filled: watches and lists are told to come again."""
    sets, out = f"/apis/apps/v1/namespaces/{t.namespace}/replicasets", []
    for target in (watch(sets), watch(sets, resourceVersion=0), watch(sets, resourceVersion=0, **BOOKMARKS), query(sets, resourceVersion=0)):
        got = side.get(target)
        t.check(got.status == 429 and got.reason == "TooManyRequests" and 1 <= int(got.headers["retry-after"]) <= 30, f"{got} {got.headers}")
        t.check(got.message.startswith("storage is (re)initializing"), got.message)
        out.append([got.status, got.reason, sorted(got.headers), got.headers["content-type"], "retryAfterSeconds" in got.json()["details"]])
    t.once(lambda: etcd_delete(t, t.state))
    served = wire.poll("the resource", lambda: side.get(query(sets, resourceVersion=0)).status == 200, 60)
    return [*out, served]


pinned(85, why="it tests servers without resilient initialisation, which release 1.36 no longer has", observable=False)


def etcd_watchers(t):
    text = wire.request(wire.Endpoint("etcd", "127.0.0.1", t.stack.etcd_port), "GET", "/metrics").text()
    return float(re.search(r"^etcd_debugging_mvcc_watcher_total (\S+)$", text, re.M)[1])


@entry(86, "watches_without_a_version_and_from_zero_cost_the_storage_nothing", needs="alone", setup=seeded, live=True)
def bypass(side, t):
    """Forty of them are no watch in etcd; behind the gateway they are none at the server either."""
    stack, everywhere = t.stack, fixtures.pods()
    before = t.once(lambda: (etcd_watchers(t), stack.metric("apiserver_longrunning_requests", resource="pods", verb="WATCH")))
    opened = [side.open(watch(everywhere, resourceVersion=version, **BOOKMARKS)) for version in (None, 0) * 10]
    for stream in opened:
        t.check(any(e.name == "seed" for e in stream.until_marker()), "the state")
    after = t.once(lambda: (etcd_watchers(t), stack.metric("apiserver_longrunning_requests", resource="pods", verb="WATCH")))
    t.check(after[0] <= before[0], f"watches in etcd: {before[0]}, then {after[0]}")
    t.check(stack.direct or after[1] - before[1] <= 22, f"watches at the server: {before[1]}, then {after[1]}, of which 20 are our own")
    return "none"


# --- order ---------------------------------------------------------------------------

def backwards(t):
    """Names and namespaces against their order, in ways that joining them matters for."""
    for c, make, _ in kinds(t):
        for suffix in ("", "-b", ".c", "0"):
            where = c.replace(t.namespace, f"{t.namespace}{suffix}".replace(".", "-dot"))
            for name in ("z", "b", "a.b", "a-b", "a", "a0"):
                t.create(where, make(name, {"of": t.namespace}))
        t.label(f"{c}/b", again="yes")


@entry(100, "initial_events_come_in_the_order_of_keys", setup=backwards)
def key_order(side, t):
    """Of the joined namespace/name, not of versions, nor of the pair."""
    out = []
    for c, _, _ in kinds(t):
        everywhere = fixtures.pods() if c == t.pods else fixtures.widgets()
        for version in (None, 0):
            stream = side.open(watch(everywhere, labelSelector=f"of={t.namespace}", resourceVersion=version, **BOOKMARKS))
            got = stream.until_marker()[:-1]
            keys = [f"{e.meta['namespace']}/{e.name}" for e in got]
            t.check(len(keys) == 24 and keys == sorted(keys), f"in order: {keys}")
            t.check([e.version for e in got] != sorted(e.version for e in got), "which is not that of versions")
            out.append(shape(got))
            stream.close()
    return out


EVENTS = "/api/v1/namespaces/{}/events"


@entry(102, "the_initial_state_of_an_uncached_resource_is_of_one_version", live=True)
def uncached_initial(side, t):
    """Events, while they are written: the state is that of the marker's version, and everything after it follows."""
    collection = EVENTS.format(t.namespace)
    busy = t.once(lambda: Writer(t, collection, an_event, 100))
    streams = [side.open(watch(collection, **INITIAL, **BOOKMARKS, resourceVersion=v)) for v in (None, 0, None, None)]
    last = busy.last()
    for stream in streams:
        initial = stream.until_marker()
        marker, versions = initial[-1].version, [e.version for e in initial[:-1]]
        newest = {f"o{n}": max(v for i, v in enumerate(busy.versions) if i % 5 == n and v <= marker) for n in range(5)}
        t.check({e.name: e.version for e in initial[:-1]} == newest and max(versions) <= marker, f"the state at {marker}: {initial}, wanted {newest}")
        live = stream.until(lambda e: e.version == last) if last > marker else []
        t.check([e.version for e in live] == [v for v in busy.versions if v > marker], f"then everything: {live}")
        stream.close()
    return busy.versions


pinned(102, why="the server reads from etcd in pages only above 10,000 objects, more than this suite writes")


@entry(103, "events_of_parallel_writers_come_in_the_order_of_their_versions", setup=seeded, live=True)
def parallel_writers(side, t):
    """Eight writers at once, on resources with and without a cache: every event once, versions rising."""
    events = EVENTS.format(t.namespace)
    begin = t.once(lambda: t.create(events, an_event("seed")))
    opened = {t.pods: side.open(watch(t.pods, resourceVersion=t.state[t.pods])), events: side.open(watch(events, resourceVersion=begin))}

    def write():
        with ThreadPoolExecutor(8) as pool:
            jobs = {c: [pool.submit(t.api.create, c, make(f"o{n}")) for n in range(80)] for c, make in ((t.pods, fixtures.pod), (events, an_event))}
            return {c: sorted((j.result(), f"o{n}") for n, j in enumerate(found)) for c, found in jobs.items()}
    made = t.once(write)
    for c, stream in opened.items():
        expect(t, stream, [("ADDED", name, version) for version, name in made[c]])
    return closed(*opened.values())
