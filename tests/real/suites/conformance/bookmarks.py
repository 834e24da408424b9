"""Entries 104-120: bookmarks, and the initial state as a stream (watch-list)."""
import threading

from .framework import Watch, entry, pinned, query
from .streams import BOOKMARKS, FUTURE, INITIAL, NONE_INITIAL, FormWatch, closed, expect, kinds, only_error, real, seeded, shape, watch

SHORT = 6  # seconds of a stream: its last bookmark comes about two seconds before the end


def plain(events):
    return [e for e in events if e.type == "BOOKMARK" and not e.marker]


def in_order(t, events):
    """Versions of events rise; a bookmark is not older than what came before it, and older than what comes after."""
    at = 0
    for e in events:
        t.check(e.version >= at if e.type == "BOOKMARK" else e.version > at, f"{e} after {at}: {events}")
        at = e.version
    return real(t, events)


# --- bookmarks -----------------------------------------------------------------------

@entry(104, "bookmarks_come_before_the_deadline_to_who_asked_for_them", setup=seeded, live=True)
def dispatched(side, t):
    """Of two short streams, the one with allowWatchBookmarks has a bookmark before its end, the other none."""
    opened = {(c, b): side.open(watch(c, resourceVersion=t.state[c], allowWatchBookmarks=b), seconds=SHORT) for c, _, _ in kinds(t) for b in (None, "false", "0", "true", "1", "")}
    made = t.once(lambda: {c: t.create(c, make("new")) for c, make, _ in kinds(t)})
    out = []
    for (c, asked), stream in opened.items():
        events = in_order(t, stream.wait_end())
        wanted = asked in ("true", "1", "")
        t.check(events and events[0].name == "new" and bool(plain(events)) == wanted, f"allowWatchBookmarks={asked!r}: {events}")
        t.check(not wanted or plain(events)[-1].version >= made[c], f"not older than the write: {events}")
        out.append(events)
    return out


@entry(105, "a_bookmark_is_not_older_than_what_was_sent_nor_newer_than_what_follows", setup=seeded, live=True)
def right_version(side, t):
    """Streams with selectors that see few or none of many writes: bookmarks in between keep the order."""
    selectors = (None, "n=3", "none=none", "app=seed,n in (1,2)")
    opened = {(c, s): side.open(watch(c, resourceVersion=t.state[c], labelSelector=s, **BOOKMARKS), seconds=SHORT) for c, _, _ in kinds(t) for s in selectors}

    def write():
        done, versions = threading.Event(), {c: [] for c, _, _ in kinds(t)}
        while not done.is_set() and len(versions[t.pods]) < 200:
            for c in versions:
                versions[c].append(t.label(f"{c}/seed", n=str(len(versions[c]) % 7)))
            done.wait(0.02)
        return versions
    made = t.once(write)
    for (c, selector), stream in opened.items():
        events = in_order(t, stream.wait_end())
        t.check(plain(events), f"{selector}: no bookmark in {len(events)} events")
        if selector is None:
            seen = [e.version for e in events if e.type != "BOOKMARK"]
            t.check(seen == made[c][:len(seen)], f"no event is missing below a bookmark: {seen} of {made[c]}")
    return "in order"


@entry(106, "a_bookmark_is_an_object_of_the_kind_with_nothing_but_a_version", setup=seeded, live=True)
def empty_object(side, t):
    """In every representation; fields that a type always writes are there, empty."""
    opened = {(c, f): FormWatch(side, f, watch(c, resourceVersion=t.state[c], timeoutSeconds=SHORT, **BOOKMARKS)).opened()
              for c, _, _ in kinds(t) for f in ("json", "metadata", "table", "protobuf", "metadata protobuf") if c == t.pods or f != "protobuf"}
    t.once(lambda: [t.create(c, make("new")) for c, make, _ in kinds(t)])
    out = []
    for (c, form), stream in opened.items():
        out.append(stream.wait_end())
        [bookmark, *_] = plain(stream.events()) or [None]
        t.check(bookmark is not None, f"{form}: no bookmark in {stream.events()}")
        kind = {"table": "Table", "metadata": "PartialObjectMetadata", "metadata protobuf": "PartialObjectMetadata"}.get(form, "Pod" if c == t.pods else "Widget")
        t.check(bookmark.kind == kind and not bookmark.name and not bookmark.labels and bookmark.version > t.state[c], f"{form}: {bookmark.frame}")
        if form == "json":
            meta = {k: v for k, v in bookmark.object["metadata"].items() if v is not None}
            t.check(list(meta) == ["resourceVersion"] and set(bookmark.object) <= {"kind", "apiVersion", "metadata", "spec", "status"}, f"{bookmark.frame}")
    return out


# --- the initial state as a stream -----------------------------------------------------

@entry(107, "initial_events_without_bookmarks_work_and_have_no_marker", setup=seeded, live=True)
def backward_compatible(side, t):
    """sendInitialEvents without allowWatchBookmarks: the state, live events, never a bookmark."""
    opened = {c: side.open(watch(c, **INITIAL), seconds=SHORT) for c, _, _ in kinds(t)}
    made = t.once(lambda: {c: t.create(c, make("new")) for c, make, _ in kinds(t)})
    for c, stream in opened.items():
        events = stream.wait_end()
        t.check(shape(events) == [["ADDED", "seed", t.state[c]], ["ADDED", "new", made[c]]], f"{events}")
    return [s.wait_end() for s in opened.values()]


def semantics(t):
    """{case: (parameters, whether the state comes, whether the marker does)} of one resource; N is the setup's version."""
    out = {}
    for version in (None, "0", "N"):
        for bookmarks in ({}, BOOKMARKS):
            for initial in (INITIAL, NONE_INITIAL, {}):
                state = initial is INITIAL or not initial and version != "N"
                out[f"{version} {sorted(bookmarks)} {initial.get('sendInitialEvents')}"] = ({"resourceVersion": version, **bookmarks, **initial}, state, state and bool(bookmarks))
    for bookmarks in ({}, BOOKMARKS):
        out[f"1 {sorted(bookmarks)} true"] = ({"resourceVersion": 1, **bookmarks, **INITIAL}, True, bool(bookmarks))
    return out


@entry(108, "what_a_watch_begins_with_follows_from_version_initial_events_and_bookmarks", setup=seeded, live=True)
def watch_semantics(side, t):
    """Every combination: whether the state comes as ADDED, whether the marker does, then the same live event for all."""
    table = semantics(t)
    opened = {(c, case): side.open(watch(c, **{k: t.state[c] if v == "N" else v for k, v in params.items()})) for c, _, _ in kinds(t) for case, (params, _, _) in table.items()}
    for (c, case), stream in opened.items():
        _, state, marker = table[case]
        if state:
            expect(t, stream, [("ADDED", "seed", t.state[c])])
        if marker:
            t.check(stream.next().marker, f"{case}: the marker: {stream.events()}")
    made = t.once(lambda: {c: t.create(c, make("new")) for c, make, _ in kinds(t)})
    for (c, case), stream in opened.items():
        events = [stream.until(lambda e: e.type != "BOOKMARK")[-1]]
        t.check(shape(events) == [["ADDED", "new", made[c]]] and sum(e.marker for e in stream.events()) == table[case][2], f"{case}: {stream.events()}")
    return closed(*opened.values())


def old_and_new(t):
    return {c: (t.create(c, make("a")), t.label(f"{c}/a", n="1")) for c, make, _ in kinds(t)}


@entry(108, "from_the_first_version_only_initial_events_are_possible_after_a_compaction", needs="compaction", setup=old_and_new)
def semantics_of_version_one(side, t):
    """Version 1: with initial events the present state, without them 410."""
    out = []
    for c, _, _ in kinds(t):
        for bookmarks in ({}, BOOKMARKS):
            for initial in (NONE_INITIAL, {}):
                got = side.watch(watch(c, resourceVersion=1, **initial, **bookmarks))
                only_error(t, got, 410, "Expired")
                out.append(got)
            got = side.watch(watch(c, resourceVersion=1, **INITIAL, **bookmarks))
            t.check([e.version for e in got if e.type == "ADDED"] == [t.state[c][1]] and sum(e.marker for e in got) == bool(bookmarks), f"{got}")
            out.append(got)
    return out


def written_elsewhere(t):
    """An object here, then a newer write in another namespace: the version of that."""
    seeded(t)
    return {c: t.create(c.replace(t.namespace, f"{t.namespace}-b"), make("far")) for c, make, _ in kinds(t)}


@entry(109, "the_markers_version_counts_writes_in_other_namespaces", setup=written_elsewhere)
def extended(side, t):
    """The initial state of one namespace is marked with a version of the whole resource."""
    out = []
    for c, _, _ in kinds(t):
        for version in (None, t.state[c]):
            stream = side.open(watch(c, resourceVersion=version, **INITIAL, **BOOKMARKS))
            got = real(t, stream.until_marker())
            t.check([e.name for e in got] == ["seed", None] and got[-1].version >= t.state[c], f"marker not older than {t.state[c]}: {got}")
            out += closed(stream)
    return out


@entry(110, "a_watch_list_of_one_name_has_that_object_and_a_marker_of_all", setup=written_elsewhere)
def match_single(side, t):
    """By metadata.name, of an object that is there and one that is not."""
    out = []
    for c, _, _ in kinds(t):
        for name, wanted in (("seed", ["seed", None]), ("nope", [None])):
            stream = side.open(watch(c, fieldSelector=f"metadata.name={name}", **INITIAL, **BOOKMARKS))
            got = real(t, stream.until_marker())
            t.check([e.name for e in got] == wanted and got[-1].version >= t.state[c], f"{name}: {got}")
            out += closed(stream)
    return out


@entry(111, "the_marker_comes_exactly_once_and_only_to_who_asked_for_both", setup=seeded, live=True)
def marker_once(side, t):
    """Initial events and bookmarks: one marker, later bookmarks are plain. Without one of the two: no marker."""
    cases = {"both": {**INITIAL, **BOOKMARKS}, "no bookmarks": INITIAL, "no initial events": {**NONE_INITIAL, **BOOKMARKS}}
    opened = {(c, case): side.open(watch(c, **params), seconds=SHORT) for c, _, _ in kinds(t) for case, params in cases.items()}
    t.once(lambda: [t.create(c, make(f"o{n}")) for n in range(3) for c, make, _ in kinds(t)])
    for (c, case), stream in opened.items():
        events = real(t, stream.wait_end())
        at = [i for i, e in enumerate(events) if e.marker]
        t.check(at == ([1] if case == "both" else []), f"{case}: {events}")
        t.check(bool(plain(events)) == (case != "no bookmarks"), f"{case}: plain bookmarks of {events}")
        if case == "both":
            t.check(events[1].meta["annotations"] == {"k8s.io/initial-events-end": "true"}, events[1].frame)
    return [s.wait_end() for s in opened.values()]


@entry(112, "bookmarks_come_again_and_again", setup=seeded, live=True)
def cadence(side, t):
    """A stream of 66 seconds has a bookmark after about a minute and another before its end; what each speaks of was written."""
    opened = [side.open(watch(c, resourceVersion=t.state[c], labelSelector="none=none", **BOOKMARKS), seconds=66) for c, _, _ in kinds(t)]

    def write():
        """Until the streams are over, so that every bookmark has something new to tell."""
        versions, over = [], threading.Event()
        for n in range(64):
            versions += [t.label(f"{c}/seed", n=str(n)) for c, _, _ in kinds(t)]
            over.wait(1)
        return versions
    t.once(write)
    for stream in opened:
        events = in_order(t, stream.wait_end())
        versions = [e.version for e in events]
        t.check(len(events) >= 2 and all(e.type == "BOOKMARK" for e in events) and versions[-1] > versions[0], f"two or more, the last newer: {events}")
    return [s.wait_end() for s in opened]


@entry(113, "bookmarks_tell_of_progress_without_events", setup=seeded, live=True)
def progress(side, t):
    """Nothing happens in the namespace that is watched; writes elsewhere move the version on."""
    opened = {c: side.open(watch(c, resourceVersion=t.state[c], **BOOKMARKS), seconds=SHORT) for c, _, _ in kinds(t)}
    made = t.once(lambda: {c: t.create(c.replace(t.namespace, f"{t.namespace}-b"), make("far")) for c, make, _ in kinds(t)})
    for c, stream in opened.items():
        events = in_order(t, stream.wait_end())
        t.check(events and all(e.type == "BOOKMARK" for e in events) and events[-1].version >= made[c], f"bookmarks up to {made[c]}: {events}")
    return [s.wait_end() for s in opened.values()]


@entry(114, "streams_that_stop_while_bookmarks_are_sent_harm_nothing", setup=seeded, live=True)
def concurrent_stop(side, t):
    """Sixty streams end by their time or by their client just when bookmarks are due; a new one works."""
    opened = [side.open(watch(c, resourceVersion=t.state[c], **BOOKMARKS), seconds=2 + n % 3) for n in range(30) for c, _, _ in kinds(t)]
    versions = t.once(lambda: [t.label(f"{c}/seed", n=str(n)) for n in range(20) for c, _, _ in kinds(t)])
    for n, stream in enumerate(opened):
        if n % 4 == 0:
            stream.close()
        else:
            in_order(t, stream.wait_end())
    after = side.open(watch(t.pods, resourceVersion=versions[-4]))
    expect(t, after, [("MODIFIED", "seed", versions[-2])])
    return closed(after)


@entry(115, "a_watch_list_waits_for_its_version", setup=seeded, live=True)
def waits(side, t):
    """Of a version that is written while it waits: the state at it or later."""
    start = t.once(lambda: t.revision() + 10)
    waiting = {c: side.watches(Watch(side.endpoint, watch(c, resourceVersion=start, **INITIAL, **BOOKMARKS), side.marked({}))) for c, _, _ in kinds(t)}

    def write():
        versions = {c: 0 for c in waiting}
        while min(versions.values()) < start:
            for c in versions:
                versions[c] = t.label(f"{c}/seed", n=str(versions[c]))
        return versions
    made = t.once(write)
    for c, stream in waiting.items():
        got = real(t, stream.until_marker())
        t.check(stream.status == 200 and got[0].name == "seed" and got[-1].version >= start, f"from {start}: {got}")
        if got[0].version < made[c]:
            stream.until(lambda e: e.version == made[c])
        stream.close()
    return "the state"


@entry(115, "a_watch_list_of_a_version_that_does_not_come_is_told_504", setup=seeded)
def waits_in_vain(side, t):
    """After three seconds one ERROR: 504 Timeout with the cause ResourceVersionTooLarge, and advice to come again."""
    out = []
    for c, _, _ in kinds(t):
        got = side.watch(watch(c, resourceVersion=FUTURE, **INITIAL, **BOOKMARKS), seconds=None)
        details = only_error(t, got, 504, "Timeout")["details"]
        t.check([x["reason"] for x in details["causes"]] == ["ResourceVersionTooLarge"] and details["retryAfterSeconds"] == 1, f"{details}")
        out.append(got)
    return out


@entry(116, "an_empty_resource_gets_its_marker_too")
def empty(side, t):
    """Of a namespace without objects, and of a resource that has none at all."""
    out = []
    sets = "/apis/apps/v1/statefulsets"
    for c in (t.pods, t.widgets, sets):
        for version in (None, 0):
            stream = side.open(watch(c, resourceVersion=version, **INITIAL, **BOOKMARKS))
            got = real(t, stream.until_marker())
            t.check(len(got) == 1 and got[0].version > 0, f"{c}: {got}")
            out += closed(stream)
    return out


@entry(117, "a_marker_is_not_older_than_what_was_asked_for", setup=seeded, live=True)
def marker_floor(side, t):
    """No version: the store's at the time of the request, whatever resource moved it. A version: that one. Zero: the cache's."""
    out = []
    for n in range(3):
        far = t.once(lambda: t.create(f"/api/v1/namespaces/{t.namespace}/configmaps", {"metadata": {"name": f"far{n}"}}))
        for c, _, _ in kinds(t):
            for version, least in ((None, far), (t.state[c], t.state[c]), (0, t.state[c])):
                stream = side.open(watch(c, resourceVersion=version, **INITIAL, **BOOKMARKS))
                got = real(t, stream.until_marker())
                t.check(got[-1].version >= least and shape(got[:-1]) == [["ADDED", "seed", t.state[c]]], f"version {version}: not older than {least}: {got}")
                out += closed(stream)
    return out


pinned(118, unit="watch::tests::a_bookmark_that_tells_nothing_new_is_left_out",
       why="the server's buckets of watchers are internal; a client observes when bookmarks arrive (104, 112) and that a marker arrives in the end")


@entry(118, "markers_come_at_last_however_much_is_written", setup=seeded, live=True)
def marker_under_load(side, t):
    """Twenty watch-lists, opened one after the other while objects are written without a pause."""
    busy = t.once(lambda: Churn(t))
    streams = []
    try:
        for n in range(20):
            streams.append(side.open(watch(t.pods, resourceVersion=(None, 0)[n % 2], **INITIAL, **BOOKMARKS)))
            got = streams[-1].until_marker()
            t.check(got[0].name == "seed" and got[0].version <= got[-1].version, f"{got}")
    finally:
        t.once(busy.stop)
    return "a marker each"


class Churn(threading.Thread):
    """Writes until it is told to stop."""

    def __init__(self, t):
        super().__init__(daemon=True)
        self.api, self.target, self.over = t.api, f"{t.pods}/seed", threading.Event()
        self.start()

    def run(self):
        n = 0
        while not self.over.wait(0.005) and n < 3000:
            self.api.label(self.target, n=str(n))
            n += 1

    def stop(self):
        self.over.set()
        self.join(30)


@entry(119, "a_watch_list_of_the_future_of_an_uncached_resource_is_refused_at_once")
def uncached_future(side, t):
    """Events: one ERROR 504 in the stream, with a positive advice when to come again."""
    got = side.watch(watch(f"/api/v1/namespaces/{t.namespace}/events", resourceVersion=FUTURE, **INITIAL, **BOOKMARKS), random_retry=True)
    details = only_error(t, got, 504, "Timeout")["details"]
    t.check(details["retryAfterSeconds"] > 0 and details["causes"][0]["reason"] == "ResourceVersionTooLarge", f"{details}")
    return got


@entry(120, "who_waits_for_a_quiet_resource_learns_of_its_progress", setup=seeded, live=True)
def progress_on_demand(side, t):
    """Nobody writes a resource, others move the version on: a consistent watch-list and list of it still come, as new as asked."""
    sets, out = f"/apis/apps/v1/namespaces/{t.namespace}/statefulsets", []
    for n in range(3):
        far = t.once(lambda: t.label(f"{t.pods}/seed", n=str(n)))
        stream = side.open(watch(sets, **INITIAL, **BOOKMARKS))
        got = real(t, stream.until_marker())
        t.check(len(got) == 1 and got[0].version >= far, f"not older than {far}: {got}")
        listed = side.get(query(sets))
        t.check(listed.status == 200 and listed.version >= far, f"not older than {far}: {listed}")
        out += [*closed(stream), listed]
    return out


pinned(120, why="no response shows that progress is requested only while a client waits")
