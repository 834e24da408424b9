"""Entries 61-75 and 78: what a watch shows of single writes, where it starts, and how it breaks off."""
import base64
import json
import socket

from .. import fixtures
from .framework import Failed, Watch, entry, pinned, query
from .streams import BOOKMARKS, FUTURE, INITIAL, StalledWatch, closed, expect, kinds, only_error, seeded, shape, watch

q = query


def from_seed(side, t, **params):
    """{collection: a watch from the setup's object on}"""
    return {collection: side.open(watch(collection, resourceVersion=t.state[collection], **params)) for collection, _, _ in kinds(t)}


def for_both(t, write):
    """WRITE(collection, make, field) for pods and for widgets, once: {collection: what it returned}."""
    return t.once(lambda: {collection: write(collection, make, field) for collection, make, field in kinds(t)})


# --- single writes -----------------------------------------------------------------

@entry(61, "watch_shows_a_created_object_as_added", setup=seeded, live=True)
def created(side, t):
    """A new object is ADDED with the version of its creation."""
    opened = from_seed(side, t)
    made = for_both(t, lambda c, make, _: t.create(c, make("new", {"a": "b"})))
    for collection, stream in opened.items():
        [event] = expect(t, stream, [("ADDED", "new", made[collection])])
        t.check(event.meta["labels"] == {"a": "b"} and event.object["kind"] in ("Pod", "Widget"), f"the whole object: {event.frame[:300]}")
    return closed(*opened.values())


def unselected(t):
    seeded(t)
    return {c: t.create(c, make("one", {"app": "no"})) for c, make, _ in kinds(t)}


@entry(62, "watch_shows_an_object_changed_into_the_selector_as_added", setup=unselected, live=True)
def changed_into(side, t):
    """By labels and by a field: ADDED with the version of the change, though the object is older."""
    by_label, by_field = from_seed(side, t, labelSelector="app=yes"), {}
    for collection, _, _ in kinds(t):
        name = "spec.nodeName" if collection == t.pods else "spec.color"
        by_field[collection] = side.open(watch(collection, resourceVersion=t.state[collection], fieldSelector=f"{name}=there"))
    made = for_both(t, lambda c, _, field: (t.label(f"{c}/one", app="yes"), t.update(f"{c}/one", field("there"))))
    for collection in made:
        label, field = made[collection]
        expect(t, by_label[collection], [("ADDED", "one", label), ("MODIFIED", "one", field)])
        expect(t, by_field[collection], [("ADDED", "one", field)])
    return closed(*by_label.values(), *by_field.values())


@entry(63, "watch_shows_an_update_as_modified", setup=seeded, live=True)
def updated(side, t):
    """Metadata, spec and status alike; a write that changes nothing is no event."""
    opened = from_seed(side, t)

    def write(collection, _, field):
        first = t.update(f"{collection}/seed", {"metadata": {"annotations": {"n": "1"}}})
        same = t.update(f"{collection}/seed", {"metadata": {"annotations": {"n": "1"}}})
        if same != first:
            raise Failed("the server wrote what was not changed")
        second = t.update(f"{collection}/seed", field("elsewhere"))
        status = t.api.call("PATCH", f"{collection}/seed/status", {"status": {"phase": "Failed"}}, fixtures.MERGE)
        return first, second, fixtures.version(status)
    made = for_both(t, write)
    for collection, stream in opened.items():
        events = expect(t, stream, [("MODIFIED", "seed", version) for version in made[collection]])
        t.check(events[-1].object["status"]["phase"] == "Failed", f"the status of the last: {events[-1].frame[-300:]}")
    return closed(*opened.values())


@entry(64, "an_object_filtered_out_is_deleted_with_its_old_content_and_the_new_version", setup=seeded, live=True)
def filtered_out(side, t):
    """DELETED is the object as the selector last saw it, but with the version of the change that took it out."""
    opened = from_seed(side, t, labelSelector="app=seed")
    made = for_both(t, lambda c, _, field: (t.update(f"{c}/seed", field("last")), t.update(f"{c}/seed", {"metadata": {"labels": {"app": "gone"}, "annotations": {"new": "yes"}}})))
    for collection, stream in opened.items():
        events = expect(t, stream, [("MODIFIED", "seed", made[collection][0]), ("DELETED", "seed", made[collection][1])])
        old = events[1].object
        t.check(old["metadata"]["labels"] == {"app": "seed"} and "annotations" not in old["metadata"], f"the old content: {events[1].frame[:400]}")
        before = json.loads(events[0].frame)["object"]
        before["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        t.check(before == old, f"the old object but for its version: {before} and {old}")
    return closed(*opened.values())


@entry(65, "watch_filters_a_whole_life_and_sees_no_other_namespace", setup=seeded, live=True)
def filtering(side, t):
    """In, changed, out, unseen change, in, deleted, made anew; the same name elsewhere is invisible."""
    opened = from_seed(side, t, labelSelector="app=demo")

    def life(collection, make, field):
        elsewhere = collection.replace(t.namespace, f"{t.namespace}-b")
        t.create(elsewhere, make("o", {"app": "demo"}))
        t.create(collection, make("o", {"app": "other"}))
        path, out = f"{collection}/o", []
        out.append(("ADDED", "o", t.label(path, app="demo")))
        t.label(f"{elsewhere}/o", more="yes")
        out.append(("MODIFIED", "o", t.update(path, field("a"))))
        out.append(("DELETED", "o", t.label(path, app="other")))
        t.update(path, field("b"))
        out.append(("ADDED", "o", t.label(path, app="demo")))
        t.delete(path)
        out.append(("DELETED", "o", None))
        out.append(("ADDED", "o", t.create(collection, make("o", {"app": "demo"}))))
        t.delete(f"{elsewhere}/o")
        out.append(("MODIFIED", "o", t.label(path, last="yes")))
        return out
    made = for_both(t, life)
    for collection, stream in opened.items():
        events = expect(t, stream, made[collection])
        t.check(events[4].meta["uid"] == events[0].meta["uid"] != events[5].meta["uid"], "made anew, it has another uid")
    return closed(*opened.values())


@entry(66, "watch_from_zero_begins_with_the_state_as_added", setup=seeded, live=True)
def from_zero(side, t):
    """Version 0: what the cache holds as ADDED, then what happens."""
    opened = {c: side.open(watch(c, resourceVersion=0)) for c, _, _ in kinds(t)}
    made = for_both(t, lambda c, _, field: t.update(f"{c}/seed", field("x")))
    for collection, stream in opened.items():
        got = stream.until(lambda e, v=made[collection]: e.version == v)
        t.check([(e.type, e.name) for e in got] in ([("ADDED", "seed"), ("MODIFIED", "seed")], [("ADDED", "seed")]), f"{got}")
        t.check(got[0].version == t.state[collection] or len(got) == 1, f"{got}")
    return closed(*opened.values())


def long_ago(t):
    return {c: (t.create(c, make("o")), t.label(f"{c}/o", n="1"), t.label(f"{c}/o", n="2")) for c, make, _ in kinds(t)}


@entry(66, "watch_from_before_the_compaction_is_told_410_in_the_stream", needs="compaction", setup=long_ago)
def compacted(side, t):
    """HTTP 200 and one ERROR with a Status 410 Expired, then the clean end; version 0 still gives the state."""
    out = []
    for collection, _, _ in kinds(t):
        for bookmarks in ({}, BOOKMARKS):
            got = side.watch(watch(collection, resourceVersion=t.state[collection][0], **bookmarks))
            status = only_error(t, got, 410, "Expired")
            t.check("too old resource version" in status["message"], status["message"])
            out.append(got)
        again = side.watch(watch(collection, resourceVersion=0))
        t.check([(e.type, e.version) for e in again] == [("ADDED", t.state[collection][2])], f"from zero: {again}")
        out.append(again)
    return out


@entry(67, "watch_shows_a_deletion_as_deleted", setup=seeded, live=True)
def deleted(side, t):
    """Once, and a pending deletion is only MODIFIED until the object is gone."""
    opened = from_seed(side, t)

    def write(collection, make, _):
        t.delete(f"{collection}/seed")
        held = t.create(collection, make("held", finalizers=["example.com/hold"]))
        t.delete(f"{collection}/held")
        t.update(f"{collection}/held", {"metadata": {"finalizers": None}})
        return held, t.create(collection, make("after"))
    made = for_both(t, write)
    for collection, stream in opened.items():
        held, after = made[collection]
        events = expect(t, stream, [("DELETED", "seed", None), ("ADDED", "held", held), ("MODIFIED", "held", None), ("DELETED", "held", None), ("ADDED", "after", after)])
        t.check("deletionTimestamp" in events[2].meta and "deletionTimestamp" in events[3].meta, f"{events[2].frame[:300]}")
    return closed(*opened.values())


def history(t):
    """Three writes of each kind, the versions of which are returned."""
    return {c: (t.create(c, make("a")), t.create(c, make("b")), t.label(f"{c}/a", n="1")) for c, make, _ in kinds(t)}


@entry(68, "watch_from_a_version_shows_only_what_came_after", setup=history)
def from_nonzero(side, t):
    """History after N in the order of versions; of N and before, nothing."""
    out = []
    for collection, _, _ in kinds(t):
        a, b, again = t.state[collection]
        whole = [("ADDED", "a", a), ("ADDED", "b", b), ("MODIFIED", "a", again)]
        streams = {skip: side.open(watch(collection, resourceVersion=version), seconds=2) for skip, version in enumerate((a - 1, a, b, again))}
        for skip, stream in streams.items():
            events = stream.wait_end()
            t.check([(e.type, e.name, e.version) for e in events] == whole[skip:], f"{stream.target}: {events}")
            out.append(events)
    return out


@entry(69, "what_was_written_before_the_client_read_is_delivered_in_order", setup=seeded, live=True)
def delayed(side, t):
    """A client that reads only when the stream's time is over gets all events that fit, in order, and the clean end."""
    streams = {c: StalledWatch(side, watch(c, resourceVersion=t.state[c], timeoutSeconds=12)) for c, _, _ in kinds(t)}
    made = for_both(t, lambda c, make, _: [t.create(c, make(f"o{i}")) for i in range(6)])
    probe = side.open(watch(t.pods, resourceVersion=made[t.pods][-1]), seconds=12)
    probe.wait_end()  # opened later with the same time: the others are over
    for collection, stream in streams.items():
        events = stream.go().wait_end()
        t.check([(e.name, e.version) for e in events] == [(f"o{i}", v) for i, v in enumerate(made[collection])], f"all in order: {events}")
        t.check(stream.end == "clean", f"the end: {stream.end}")
    return [s.wait_end() for s in streams.values()]


# --- storage that breaks -------------------------------------------------------------

def etcd_events(t, name):
    return f"/registry/events/{t.namespace}/{name}"


def etcd_put(t, key, value):
    return int(t.stack.etcd("/v3/kv/put", {"key": _b64(key.encode()), "value": _b64(value)})["header"]["revision"])


def etcd_delete(t, key):
    return int(t.stack.etcd("/v3/kv/deleterange", {"key": _b64(key.encode())})["header"]["revision"])


def _b64(data):
    return base64.b64encode(data).decode()


def an_event(name):
    return {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Test", "type": "Normal"}


def first_event(t):
    return t.create(f"/api/v1/namespaces/{t.namespace}/events", an_event("e1"))


@entry(70, "an_unreadable_object_in_the_storage_is_an_error_event", setup=first_event, live=True)
def storage_error(side, t):
    """On the one resource that is watched in etcd itself (events): ERROR with a Status 500, and the end."""
    collection = f"/api/v1/namespaces/{t.namespace}/events"
    stream = side.open(watch(collection, resourceVersion=t.state))

    def write():
        version = t.create(collection, an_event("e2"))
        etcd_put(t, etcd_events(t, "broken"), b"no object")
        return version
    version = t.once(write)
    expect(t, stream, [("ADDED", "e2", version)])
    events = stream.wait_end()
    status = only_error(t, events[1:], 500, "InternalError")
    t.check(status["status"] == "Failure" and status["message"], f"{status}")
    t.once(lambda: etcd_delete(t, etcd_events(t, "broken")))
    return events


@entry(71, "an_unreadable_object_that_is_deleted_is_an_error_event", setup=first_event, live=True)
def unsafe_delete(side, t):
    """Of a deletion whose last object cannot be read the stream tells an ERROR, never an event without an object."""
    broken = t.once(lambda: etcd_put(t, etcd_events(t, "broken"), b"no object"))
    stream = side.open(watch(f"/api/v1/namespaces/{t.namespace}/events", resourceVersion=broken))
    t.once(lambda: etcd_delete(t, etcd_events(t, "broken")))
    events = stream.wait_end()
    t.check(len(events) == 1 and events[0].type == "ERROR" and events[0].object["kind"] == "Status", f"one ERROR: {events}")
    t.check(events[0].object["code"] == 500, f"{events[0].object}")
    return events


# --- clients that go, and others that stall ------------------------------------------

def half_closed(stream):
    """The client says that it sends nothing more, which servers take for its end; it still reads."""
    socket.socket.shutdown(stream.stream._sock, socket.SHUT_WR)


@entry(72, "a_client_that_gives_up_gets_no_error_and_the_others_go_on", setup=seeded, live=True, plain=True)
def given_up(side, t):
    """One half of the connection closed, or all of it: the stream ends without an ERROR, another on the resource does not."""
    leaver, gone, stays = (side.open(watch(t.pods, resourceVersion=t.state[t.pods])) for _ in range(3))
    first = t.once(lambda: t.create(t.pods, fixtures.pod("first")))
    for stream in (leaver, gone, stays):
        expect(t, stream, [("ADDED", "first", first)])
    half_closed(leaver)
    gone.close()
    leaver.wait_end()
    second = t.once(lambda: t.create(t.pods, fixtures.pod("second")))
    expect(t, stays, [("ADDED", "second", second)])
    t.check([e.type for e in leaver.events()] == ["ADDED"], f"nothing more for who left: {leaver.events()}")
    return [shape(leaver.events()), *closed(stays)]


@entry(73, "fifty_clients_that_do_not_read_do_not_starve_one_that_does", needs="alone", setup=seeded, live=True)
def starving(side, t):
    """All events, in order, to the one that reads; to the others later as many as were kept for them, from the first on."""
    stalled = [StalledWatch(side, watch(t.pods, resourceVersion=t.state[t.pods])) for _ in range(50)]
    reading = side.open(watch(t.pods, resourceVersion=t.state[t.pods]))
    versions = t.once(lambda: [t.update(f"{t.pods}/seed", {"metadata": {"annotations": {"n": f"{i}", "pad": "x" * 2000}}}) for i in range(60)])
    expect(t, reading, [("MODIFIED", "seed", v) for v in versions])
    sample = stalled[0].go()
    got = [e.version for e in expect(t, sample, [("MODIFIED", "seed", v) for v in versions[:10]])]
    t.check(got == versions[:10], f"a contiguous beginning: {got}")
    return closed(reading)


@entry(74, "a_deleted_object_carries_the_version_of_its_deletion", setup=seeded, live=True)
def deletion_version(side, t):
    """Newer than the last change, not newer than the store after it; everything else is the last stored object."""
    opened = from_seed(side, t)
    made = for_both(t, lambda c, _, field: (t.update(f"{c}/seed", field("end")), t.delete(f"{c}/seed")))
    for collection, stream in opened.items():
        changed, after = made[collection]
        events = expect(t, stream, [("MODIFIED", "seed", changed), ("DELETED", "seed", None)])
        t.check(changed < events[1].version <= after, f"{changed} < {events[1].version} <= {after}")
        last, gone = json.loads(events[0].frame)["object"], json.loads(events[1].frame)["object"]
        last["metadata"]["resourceVersion"] = gone["metadata"]["resourceVersion"]
        t.check(last == gone, f"the last stored object: {gone}")
    return closed(*opened.values())


@entry(75, "open_watches_take_no_place_of_other_requests", setup=seeded)
def initialised(side, t):
    """The API server under test has no priority and fairness, so no seat to give back; what is left of it: with many idle
    watches open, whose headers and initial events have all come, lists and further watches are answered."""
    opened = [side.open(watch(t.pods, **INITIAL, **BOOKMARKS)) for _ in range(40)]
    for stream in opened:
        got = stream.until_marker()
        t.check([(e.type, e.name) for e in got] == [("ADDED", "seed"), ("BOOKMARK", None)], f"{got}")
    return [side.get(q(t.pods, resourceVersion=0)), shape(side.watch(watch(t.pods, resourceVersion=t.state[t.pods]), seconds=1))]


pinned(75, why="the seats of priority and fairness exist only in the API server, and the server under test runs without them")


# --- after an error ------------------------------------------------------------------

@entry(78, "nothing_follows_an_error", setup=seeded, live=True)
def error_is_last(side, t):
    """A watch-list of a version that does not come: while it waits objects are written; it tells the ERROR alone, and ends."""
    target = watch(t.pods, resourceVersion=FUTURE, **INITIAL, **BOOKMARKS)
    stream = side.watches(Watch(side.endpoint, target, side.marked({})))
    t.once(lambda: [t.create(t.pods, fixtures.pod(f"o{i}")) for i in range(20)])
    events = stream.wait_end()
    only_error(t, events, 504, "Timeout")
    t.check(stream.end == "clean", f"{stream.end}")
    return events
