"""Entries 42-55: which store answers, how fresh, from which snapshot, in which order."""
import base64
import json
import os
import re
import signal
import threading

from .. import fixtures, wire
from .list_requests import FUTURE, token
from .framework import WAIT, Failed, entry, pinned, query
from .kinds import both, each, kinds, named
from .lists import EXACT, NOT_OLDER, contents, exactly, refused, story, too_large
from .pages import joined, page

@entry(42, "compacted_versions_are_refused_and_later_ones_served", needs="compaction", live=True, setup=each(story))
@both
def compacted(side, t, k):
    """Before the compaction: 410. At it and after it: the state."""
    gone = [side.get(query(k.collection, resourceVersion=k.state[i][0], **m)) for i in (0, 3, 7) for m in (EXACT, {"limit": 1})]
    for got in gone:
        refused(t, got, 410, "Expired", "The resourceVersion for the provided list is too old.")
        t.check("details" not in got.json() and "retry-after" not in got.headers, f"{got}")
    state = k.state[-1][1]
    at = exactly(side, t, k, t.compacted, state)
    version = t.once(lambda: t.label(k.at("c"), late="yes"))
    return [*gone, at, exactly(side, t, k, version, {**state, "c": version})]


def decided(state, newest, then, version, match, limit, continued):
    """The expected response: a status, or (names, the version that the list must have or None)."""
    if match and (not version or continued or (match == "Exact" and version == "0")):
        return 422
    if continued and version not in ("", "0"):
        return 400
    past = match == "Exact" or (not match and (continued and continued > 0 or not continued and limit and version not in ("", "0")))
    names = [n for n in sorted(state if past else newest) if not continued or n > "a"]
    return (names if version == "0" or not limit else names[:limit]), then if past else None


@entry(43, "every_mix_of_version_match_limit_and_token", setup=each(story))
@both
def every_mix(side, t, k):
    """Whichever store answers, the rules of the table determine the objects and the version."""
    then, state = k.state[3]
    now, newest = k.state[-1]
    out = []
    for version in ("", "0", str(then)):
        for match in ("", "Exact", "NotOlderThan"):
            for limit in (0, 1, 9):
                for continued in (0, then, -1):
                    given = {"resourceVersion": version, "resourceVersionMatch": match, "limit": limit or None, "continue": token(continued, "a\0") if continued else None}
                    got = side.get(query(k.collection, **given))
                    wanted = decided(state, newest, then, version, match, limit, continued)
                    if isinstance(wanted, int):
                        t.check(got.status == wanted, f"not {wanted}: {got}")
                    else:
                        t.check(got.names == wanted[0], f"{given}: {got.names}, not {wanted[0]}")
                        t.check(got.version == wanted[1] if wanted[1] else got.version >= max(newest.values()), f"{given}: version {got.version}")
                    out.append(got)
    return out


def stall(t, pid):
    os.kill(pid, signal.SIGSTOP)
    t.cleanup(lambda: os.kill(pid, signal.SIGCONT))


@entry(44, "without_the_store_a_consistent_list_fails_and_a_cached_one_works", needs="restart", live=True, setup=named("p1"))
def fallback(side, t):
    """While etcd is unreachable, version 0 is answered, and a request without a version fails rather than returning old data; then all
    recovers."""
    pid = int((t.stack.state / "run" / "etcd.pid").read_text())
    t.once(lambda: stall(t, pid))
    out = {}
    for k in kinds(t):
        out[k.name] = got = side.get(query(k.collection, resourceVersion=0))
        t.check(got.names == ["p1"], f"version 0: {got}")
    try:
        consistent = side.get(query(t.pods, timeout="4s"), timeout=20)
        t.check(consistent.status == 504, f"a list that nobody can know to be consistent: {consistent}")
    except TimeoutError:
        raise Failed("a list with timeout=4s has no answer after 20 s") from None
    except wire.WireError:
        pass  # the server cuts the connection when its deadline passes while it answers
    t.once(lambda: os.kill(pid, signal.SIGCONT))
    for k in kinds(t):
        out[f"{k.name} again"] = wire.poll("a consistent list", lambda: (g := side.get(k.collection)).status == 200 and g, WAIT)
    return out


pinned(44, "serve::tests::a_consistent_list_waits_for_what_it_must_have_seen_or_is_forwarded", "a lagging watch cache cannot be produced from outside, so the test stops the store instead")


@entry(45, "exact_lists_outlive_restarts_of_server_and_gateway", needs="restart", live=True, setup=each(story))
@both
def without_snapshots(side, t, k):
    """With the snapshots of every cache, without the server's, without any: the same states."""
    def server():
        t.stack.kill_server()
        t.stack.start_server()
        for endpoint in (t.stack.server, t.stack.plain):
            t.stack.warm(endpoint)

    def gateway():
        t.stack.restart_gateways()
        t.stack.warm(t.stack.plain)
    out = [[exactly(side, t, k, *step) for step in k.state]]
    for restart in (server, gateway):
        t.once(restart)
        out.append([exactly(side, t, k, *step) for step in k.state])
    return out


pinned(45, "serve::tests::exact_versions_come_from_memory_as_far_as_it_reaches", "a snapshot that disappears during the request cannot be observed: the server then reads from the store and gives the same response")


@entry(46, "a_consistent_list_of_one_object_has_its_newest_version", live=True, setup=named("p1"))
@both
def one_consistent(side, t, k):
    """After each write, with and without a limit; and its absence after the deletion."""
    target = query(k.collection, fieldSelector="metadata.name=p1")
    for turn in range(3):
        version = t.once(lambda: t.label(k.at("p1"), turn=str(turn)))
        for got in (side.get(target), side.get(target + "&limit=1")):
            t.check(contents(got) == {"p1": version} and got.version >= version, f"after {version}: {got}")
    t.once(lambda: t.delete(k.at("p1")))
    gone = side.get(target)
    t.check(gone.items == [], f"{gone}")
    return [got.names, gone]


def painted(t, k):
    """Objects of four values of the kind's indexed field; one moved from a value to another."""
    for i in range(12):
        t.create(k.collection, k.make(f"o{i:02}", {"odd": str(i % 2)}, **k.paint(["v-a", "v-b", "v-c", "v-ab"][i % 4])))
    return t.create(k.collection, k.make("last", {}, **k.paint("v-a")))


@entry(48, "an_indexed_selector_finds_what_a_scan_finds", setup=each(painted))
@both
def index(side, t, k):
    """A field with an index selects the same as filtering the whole list, also with labels, limits and in the past."""
    whole = side.get(query(k.collection, resourceVersion=k.state, **EXACT)).items
    value = lambda i: i["spec"][k.field.partition(".")[2]]
    out = []
    for wanted in ("v-a", "v-ab", "v-d"):
        for mode in ({"resourceVersion": k.state, **EXACT}, {"resourceVersion": 0}, {}):
            got = side.get(query(k.collection, fieldSelector=f"{k.field}={wanted}", **mode))
            t.check(got.names == [i["metadata"]["name"] for i in whole if value(i) == wanted], f"{got.target}: {got.names}")
            out.append(got)
    odd = side.get(query(k.collection, fieldSelector=f"{k.field}=v-b", labelSelector="odd=1", limit=2))
    t.check(odd.names == ["o01", "o05"] and odd.token, f"{odd.names}")
    other = side.get(query(k.collection, fieldSelector=f"{k.field}!=v-a", resourceVersion=0))
    t.check(other.names == [i["metadata"]["name"] for i in whole if value(i) != "v-a"], f"{other.names}")
    return [*out, odd, other]


def gadgets(t):
    """A custom resource whose cache cannot be filled: the store contains a value that is not an object."""
    group = f"{t.namespace}.example.com"
    crd = json.loads(json.dumps(fixtures.CRD).replace("example.com", group))
    text = lambda s: base64.b64encode(s.encode()).decode()
    key = text(f"/registry/{group}/widgets/{t.namespace}/bad")
    t.stack.etcd("/v3/kv/put", {"key": key, "value": text("no object")})
    fixtures.Api(t.stack.server).create(fixtures.CRDS, crd)
    collection = f"/apis/{group}/v1/namespaces/{t.namespace}/widgets"
    wire.poll("the custom resource", lambda: wire.request(t.stack.server, "GET", collection + "?resourceVersion=0").status != 404, WAIT)
    return {"collection": collection, "repair": lambda: t.stack.etcd("/v3/kv/deleterange", {"key": key})}


@entry(49, "a_cache_that_is_not_ready_asks_to_come_again_ever_later", live=True, setup=gadgets, lasts=15)
def not_ready(side, t):
    """429 with the delay in header and body, between 1 and 30 seconds, which grows while the cache is unavailable."""
    target, delays = t.state["collection"] + "?resourceVersion=0", []

    def grown():
        got = side.get(target)
        if got.status == 404:
            return False  # such a new resource may not be known yet
        refused(t, got, 429, "TooManyRequests", "storage is (re)initializing")
        delays.append(int(got.headers.get("retry-after", 0)))
        t.check(got.json()["details"]["retryAfterSeconds"] == delays[-1] and 1 <= delays[-1] <= 30, f"{delays[-1]}: {got}")
        return delays[-1] > 1
    wire.poll("a longer delay", grown, WAIT, 0.5)
    t.check(delays == sorted(delays), f"{delays}")
    t.once(t.state["repair"])
    last = wire.poll("the cache", lambda: (g := side.get(target)).status == 200 and g, 2 * WAIT, 0.5)
    return [delays[0], last]


pinned(49, "serve::tests::while_the_cache_is_being_filled_clients_are_asked_to_come_again")


@entry(50, "a_version_that_comes_during_the_wait_is_answered", live=True, setup=named("p1"))
@both
def waits(side, t, k):
    """Not refused immediately: a write during the wait satisfies the request."""
    def start():
        goal = t.revision() + 30

        def write():
            while t.label(k.at("p1"), turn=str(len(t.versions["p1"]))) < goal:
                pass
            reached.set()
        reached = threading.Event()
        threading.Thread(target=lambda: t.writing(write), daemon=True).start()
        return goal, reached
    goal, reached = t.once(start)
    got = side.get(query(k.collection, resourceVersion=goal, **NOT_OLDER))
    t.check(got.status == 200 and got.version >= goal, f"asked for {goal}: {got}")
    t.check(reached.wait(WAIT), "the writes did not end")
    newest, written = t.once(lambda: (t.versions["p1"][-1], list(t.versions["p1"])))
    t.check(contents(got)["p1"] == max(v for v in written if v <= got.version), f"not the state at {got.version}: {contents(got)}")
    refusal = too_large(t, side.get(query(k.collection, resourceVersion=FUTURE, **NOT_OLDER)))
    current = int(re.search(r"current: (\d+)", refusal.message)[1])
    t.check(newest <= current < FUTURE, f"current {current}, written {newest}")
    return [got.names, refusal]


@entry(51, "a_get_is_as_fresh_as_it_was_asked_to_be", live=True, setup=named("p1"))
@both
def gets(side, t, k):
    """Single reads: newest without a version, not older than a version, from the cache at 0."""
    one = k.at("p1")
    for turn in range(3):
        version = t.once(lambda: t.label(one, turn=str(turn)))
        for got in (side.get(f"{one}?resourceVersion={version}"), side.get(one)):
            t.check(got.status == 200 and got.version == version, f"after {version}: {got}")
    zero = side.get(f"{one}?resourceVersion=0")
    t.check(zero.version == version, f"{zero}")
    ahead = too_large(t, side.get(f"{one}?resourceVersion={FUTURE}"))
    missing = refused(t, side.get(k.at("nope")), 404, "NotFound")
    return [zero, ahead, missing, side.get(f"{one}?resourceVersion=abc")]


UPDATES = 130  # more than a new history holds


def busy(t, k):
    """One object changed often; its versions."""
    t.create(k.collection, k.make("other", {}))
    versions = [t.create(k.collection, k.make("busy", {"n": "0"}))]
    return versions + [t.label(k.at("busy"), n=str(i)) for i in range(1, UPDATES)]


@entry(52, "exact_lists_reach_past_the_history_in_memory", setup=each(busy))
@both
def snapshots(side, t, k):
    """After more writes than a history initially holds, old states and pages are still correct."""
    out = []
    for i in (0, 1, 29, 64, 100, UPDATES - 2, UPDATES - 1):
        got = side.get(query(k.collection, resourceVersion=k.state[i], **EXACT))
        t.check(got.version == k.state[i] and contents(got)["busy"] == k.state[i], f"at {k.state[i]}: {got.version} {contents(got)}")
        t.check(got.items[0]["metadata"]["labels"]["n"] == str(i), f"{got.items[0]['metadata']['labels']}")
        first = page(side, k, limit=1, resourceVersion=k.state[i])
        second = page(side, k, first.token)
        t.check(joined([first, second]) == ["busy", "other"] and second.version == k.state[i], f"{first} {second}")
        out += [got, first, second]
    return out


pinned(53, "", "only an inconsistent cache loses its snapshots, and a client cannot make a cache inconsistent; the gateway answers "
       "from its own history, which entries 26, 45, 52 and 55 compare with the server's at every version", observable=False)


def ordered(t, k):
    """Names with characters that sort before and after each other; a write to another resource in between."""
    versions = []
    for name in ("b", "a.b", "a0", "a-b", "a", "ab", "z9"):
        versions.append(t.create(k.collection, k.make(name, {})))
        between = t.create(f"/api/v1/namespaces/{t.namespace}/configmaps", {"metadata": {"name": f"{k.name}-{name}"}})
    return versions, between


@entry(54, "lists_are_ordered_and_continue_between_keys", setup=each(ordered))
@both
def order(side, t, k):
    """Bytewise order; a token may name a key that does not exist; between two versions the older state is shown."""
    versions, between = k.state
    names = ["a", "a-b", "a.b", "a0", "ab", "b", "z9"]
    got = side.get(query(k.collection, resourceVersion=0))
    t.check(got.names == names, f"{got.names}")
    out = [got]
    for start, rest in (("a-a\0", names[1:]), ("a\0", names[1:]), ("a-b", names[1:]), ("aa", names[4:]), ("zz\0", []), ("\0", names)):
        got = page(side, k, token(versions[-1], start))
        t.check(got.status == 200 and got.names == rest, f"from {start!r}: {got.names}, not {rest}")
        out.append(got)
    for version, count in ((versions[2], 3), (versions[2] + 1, 3), (versions[3] - 1, 3), (between, 7)):
        got = side.get(query(k.collection, resourceVersion=version, **EXACT))
        t.check(len(got.items) == count and got.version == version, f"at {version}: {got.version} {got.names}")
        out.append(got)
    return out


@entry(55, "cache_and_store_show_the_same_objects_in_the_same_order", setup=each(story))
@both
def same(side, t, k):
    """Namespace, name and version of each object, with every way to read the newest state."""
    now = k.state[-1][0]
    ways = ({"resourceVersion": 0}, {}, {"resourceVersion": now, **EXACT}, {"resourceVersion": now, **NOT_OLDER}, {"resourceVersion": now, "limit": 9}, {"limit": 9})
    out = [side.get(query(k.collection, **w)) for w in ways]
    digest = lambda got: [(i["metadata"]["namespace"], i["metadata"]["name"], i["metadata"]["resourceVersion"]) for i in got.items]
    t.check(len({str(digest(g)) for g in out}) == 1, f"{[digest(g) for g in out]}")
    return out
