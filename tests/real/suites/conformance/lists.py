"""Entries 1-13, 19, 25-27, 32-34, 39-41: the state that a list shows, and its scope."""
from .. import fixtures
from .list_requests import FUTURE, token
from .framework import entry, query
from .kinds import both, each, named

EXACT, NOT_OLDER = {"resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan"}


def story(t, k):
    """Eight writes; [(version, {name: its version})] after each. A deletion's version is the store's after it."""
    now, steps = {}, []

    def made(name, labels=None):
        now[name] = t.create(k.collection, k.make(name, labels or {"n": "1"}))
        steps.append((now[name], dict(now)))

    def changed(name, n):
        now[name] = t.label(k.at(name), n=n)
        steps.append((now[name], dict(now)))

    def gone(name):
        version = t.delete(k.at(name))
        del now[name]
        steps.append((version, dict(now)))

    made("a"), made("b"), changed("a", "2"), made("c"), gone("b"), made("d"), changed("d", "2"), gone("a")
    return steps


def contents(answer):
    return {i["metadata"]["name"]: int(i["metadata"]["resourceVersion"]) for i in answer.items}


def refused(t, answer, status, reason, words=""):
    t.check(answer.status == status and answer.reason == reason and words in answer.message, f"not {status} {reason} {words!r}: {answer}")
    return answer


def too_large(t, answer):
    """504 with the cause by which clients recognise it."""
    refused(t, answer, 504, "Timeout", "Too large resource version")
    cause = answer.json()["details"]["causes"][0]["reason"]
    t.check(cause == "ResourceVersionTooLarge", f"cause {cause}: {answer}")
    return answer


@entry(1, "list_rejects_an_invalid_resource_version", setup=named("p1"))
@both
def invalid_version(side, t, k):
    """A version that is not an unsigned 64-bit number is a bad request, with the parser's own text."""
    got = {text: side.get(query(k.collection, resourceVersion=text)) for text in ("abc", "-1", "1.5", "99999999999999999999")}
    for text, answer in got.items():
        refused(t, answer, 400, "BadRequest", f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint')
    return got


@entry(2, "list_rejects_a_resource_version_beside_a_continue_token", setup=named("p1", "p2"))
@both
def version_and_token(side, t, k):
    """A token contains a version, so a request cannot have both."""
    now = k.state[-1]
    answers = [side.get(query(k.collection, resourceVersion=now, limit=limit, **{"continue": token(now, "p1\0")})) for limit in (None, 1)]
    return [refused(t, a, 400, "BadRequest", "specifying resource version is not allowed when using continue") for a in answers]


@entry(3, "list_from_the_future_is_a_timeout_with_its_cause", setup=named("p1"))
@both
def future(side, t, k):
    """The server waits for a version that never arrives, then refuses with a retry delay."""
    got = too_large(t, side.get(query(k.collection, resourceVersion=FUTURE)))
    t.check(got.headers.get("retry-after") == "1", f"Retry-After {got.headers.get('retry-after')}")
    t.check(got.json()["details"]["retryAfterSeconds"] == 1, f"{got}")
    return got


def events(t):
    """The collection of a resource for which the server has no cache."""
    return f"/api/v1/namespaces/{t.namespace}/events"


def event_story(t):
    """Three events; returns their versions."""
    about = {"kind": "Pod", "name": "p", "namespace": t.namespace}
    return [t.create(events(t), {"metadata": {"name": name}, "involvedObject": about, "reason": "Test", "type": "Normal"}) for name in "abc"]


@entry(3, "list_from_the_future_of_an_uncached_resource_is_refused", setup=event_story)
def uncached_future(side, t):
    """The same error, without a retry delay."""
    out = [too_large(t, side.get(query(events(t), resourceVersion=FUTURE, **m))) for m in ({}, NOT_OLDER, EXACT)]
    for got in out:
        t.check("retry-after" not in got.headers and "retryAfterSeconds" not in got.json()["details"], f"{got}")
    return out


@entry(4, "list_from_zero_shows_what_the_cache_has", setup=each(story))
@both
def from_zero(side, t, k):
    """Objects that existed before the request are in the response."""
    got = side.get(query(k.collection, resourceVersion=0))
    version, state = k.state[-1]
    t.check(contents(got) == state, f"{contents(got)}, not {state}")
    t.check(got.version >= max(state.values()), f"the list's version {got.version} is older than its items")
    return got


def exactly(side, t, k, version, state):
    got = side.get(query(k.collection, resourceVersion=version, **EXACT))
    t.check(contents(got) == state, f"at {version}: {contents(got)}, not {state}")
    t.check(got.version == version, f"asked for {version}, the list says {got.version}")
    return got


@entry(5, "exact_list_before_an_update_shows_the_old_content", setup=each(story))
@both
def before_update(side, t, k):
    """The object in its earlier state, with its old version."""
    (_, _), (before, state), _ = k.state[:3]
    got = exactly(side, t, k, before, state)
    t.check(got.items[0]["metadata"]["labels"] == {"n": "1"}, f"labels {got.items[0]['metadata']['labels']}")
    return got


@entry(6, "exact_list_before_a_creation_lacks_the_object", setup=each(story))
@both
def before_creation(side, t, k):
    """One version before its creation an object is absent."""
    return [exactly(side, t, k, k.state[0][0] - 1, {}), exactly(side, t, k, k.state[1][0] - 1, k.state[0][1])]


@entry(7, "exact_list_at_a_creation_has_the_object", setup=each(story))
@both
def at_creation(side, t, k):
    """At the version of its creation an object is there."""
    return exactly(side, t, k, *k.state[0])


@entry(8, "exact_list_of_a_version_that_is_gone_is_expired", needs="compaction", setup=each(story))
@both
def before_first_write(side, t, k):
    """Neither the first version of the store nor one before the first write is available any more."""
    versions = [1, k.state[0][0] - 1, k.state[0][0]]
    return [refused(t, side.get(query(k.collection, resourceVersion=v, **EXACT)), 410, "Expired", "The resourceVersion for the provided list is too old.") for v in versions]


@entry(9, "list_not_older_than_zero_is_legal", setup=each(story))
@both
def not_older_than_zero(side, t, k):
    """The same as version 0 alone."""
    got = side.get(query(k.collection, resourceVersion=0, **NOT_OLDER))
    t.check(contents(got) == k.state[-1][1], f"{contents(got)}")
    return got


@entry(10, "list_rejects_an_unknown_match", setup=named("p1"))
@both
def unknown_match(side, t, k):
    """resourceVersionMatch has three values; they are case-sensitive."""
    answers = {m: side.get(query(k.collection, resourceVersion=k.state[0], resourceVersionMatch=m)) for m in ("Invalid", "exact", "NotOlder")}
    for match, answer in answers.items():
        refused(t, answer, 422, "Invalid", f'resourceVersionMatch: Unsupported value: "{match}"')
        t.check(answer.json()["details"]["causes"][0]["reason"] == "FieldValueNotSupported", f"{answer}")
    return answers


@entry(11, "list_of_the_current_version_in_three_modes", setup=each(story))
@both
def three_modes(side, t, k):
    """No match and NotOlderThan may return a newer state, Exact returns the requested version."""
    now, state = k.state[-1]
    exact = exactly(side, t, k, now, state)
    others = [side.get(query(k.collection, resourceVersion=now, **match)) for match in ({}, NOT_OLDER)]
    for got in others:
        t.check(contents(got) == state and got.version >= now, f"asked for {now}: {got.version} {contents(got)}")
    return [exact, *others]


@entry(12, "an_empty_list_has_items_and_a_version", setup=named("p1"))
@both
def empty(side, t, k):
    """`items` is an empty array, not null, in every mode."""
    now, nowhere = k.state[0], k.inside(f"{t.namespace}-empty")
    modes = ({}, {"resourceVersion": 0}, {"resourceVersion": now}, {"resourceVersion": now, **EXACT}, {"resourceVersion": now, **NOT_OLDER}, {"limit": 5})
    out = [side.get(query(nowhere, **m)) for m in modes] + [side.get(query(k.collection, labelSelector="no=such"))]
    for got in out:
        t.check(got.status == 200 and b'"items":[]' in got.body and got.version > 0, f"{got}")
    return out


@entry(13, "list_of_one_name_by_field_selector", setup=named("p1", "p10"))
@both
def one_name(side, t, k):
    """metadata.name selects one object; versions work as for any list."""
    now = k.state[-1]
    modes = ({}, {"resourceVersion": 0}, {"resourceVersion": now, **NOT_OLDER}, {"resourceVersion": now, **EXACT})
    out = [side.get(query(k.collection, fieldSelector="metadata.name=p1", **m)) for m in modes]
    for got in out:
        t.check(got.names == ["p1"], f"{got}")
    missing = side.get(query(k.collection, fieldSelector="metadata.name=p"))
    t.check(missing.status == 200 and missing.names == [], f"{missing}")
    return [*out, missing]


def spread(t, k):
    """Objects of two namespaces whose keys interleave with the names of the namespaces."""
    for where in (t.namespace, f"{t.namespace}-b", f"{t.namespace}0"):
        for name in ("x", "a", "a-1", "a.1"):
            t.create(k.inside(where), k.make(name, {"world": t.namespace}))


@entry(19, "all_namespaces_are_listed_in_the_order_of_keys", setup=each(spread))
@both
def key_order(side, t, k):
    """namespace/name is ordered bytewise as one string, so namespace n-b comes before n."""
    out = [side.get(query(k.everywhere, labelSelector=f"world={t.namespace}", **m)) for m in ({}, {"resourceVersion": 0})]
    for got in out:
        t.check(len(got.keys) == 12 and got.keys == sorted(got.keys, key=str.encode), f"{got.keys}")
        t.check(got.keys[0] == f"{t.namespace}-b/a", f"{got.keys[0]}")
    return out


def nodes(t):
    for name in ("b", "a", "a-b", "a.b", "a0"):
        t.create("/api/v1/nodes", {"metadata": {"name": f"{t.namespace}.{name}", "labels": {"world": t.namespace}}})


@entry(19, "cluster_scoped_objects_are_listed_in_the_order_of_names", setup=nodes)
def node_order(side, t):
    """Bytewise, in lists and pages."""
    target = query("/api/v1/nodes", labelSelector=f"world={t.namespace}")
    wanted = [f"{t.namespace}.{n}" for n in ("a", "a-b", "a.b", "a0", "b")]
    out = [side.get(target), side.get(target + "&resourceVersion=0"), side.get(target + "&limit=2")]
    t.check([g.names for g in out] == [wanted, wanted, wanted[:2]], f"{[g.names for g in out]}")
    return out


@entry(25, "the_latest_list_has_updates_and_no_deleted_objects", setup=each(story))
@both
def latest(side, t, k):
    """Consistent, current and not older: all show the newest state."""
    out = [side.get(query(k.collection, **m)) for m in ({}, {"resourceVersion": k.state[-1][0]}, {"limit": 10})]
    for got in out:
        t.check(contents(got) == k.state[-1][1], f"{contents(got)}, not {k.state[-1][1]}")
        t.check([i["metadata"]["labels"]["n"] for i in got.items] == ["1", "2"], "an update is missing")
    return out


@entry(26, "exact_lists_travel_through_every_write", setup=each(story))
@both
def time_travel(side, t, k):
    """The state after each of eight creations, updates and deletions."""
    return [exactly(side, t, k, version, state) for version, state in k.state]


@entry(27, "exact_list_from_the_future_is_too_large", setup=named("p1"))
@both
def exact_future(side, t, k):
    """The same error as without a match."""
    return too_large(t, side.get(query(k.collection, resourceVersion=FUTURE, **EXACT)))


@entry(32, "a_consistent_list_has_every_write_that_ended_before_it", live=True, setup=named("p1"))
@both
def consistent(side, t, k):
    """Without a version a list is at least as new as any acknowledged write, every time."""
    for turn in range(4):
        version = t.once(lambda: t.label(k.at("p1"), turn=str(turn)))
        got = side.get(k.collection)
        t.check(got.version >= version and contents(got) == {"p1": version}, f"after the write {version}: list {got.version} with {contents(got)}")
    t.once(lambda: t.delete(k.at("p1")))
    got = side.get(k.collection)
    t.check(got.items == [], f"a deleted object: {contents(got)}")
    return got


@entry(33, "lists_of_a_single_key_in_every_mode", setup=each(story))
@both
def single_key(side, t, k):
    """The object or nothing; a second selector applies too."""
    (first, _), (second, _), (third, _) = k.state[:3]
    now, state = k.state[-1]
    asked = [  # (name, other parameters, the object's expected version or None)
        ("c", {}, state["c"]), ("c", {"resourceVersion": 0}, state["c"]), ("c", {"resourceVersion": now}, state["c"]), ("c", {"limit": 1}, state["c"]),
        ("c", {"resourceVersion": now, **NOT_OLDER}, state["c"]), ("c", {"resourceVersion": now, **EXACT}, state["c"]), ("c", {"resourceVersion": now, "limit": 1}, state["c"]),
        ("a", {"resourceVersion": second, **EXACT}, first), ("a", {"resourceVersion": third, **EXACT}, third), ("a", {"resourceVersion": first - 1, **EXACT}, None),
        ("a", {}, None), ("a", {"resourceVersion": 0}, None), ("nope", {}, None), ("nope", {"resourceVersion": now, **EXACT}, None),
        ("c", {"labelSelector": "n=1"}, state["c"]), ("c", {"labelSelector": "n=2"}, None), ("c", {"labelSelector": "n=2", "resourceVersion": 0}, None)]
    out = []
    for name, params, version in asked:
        got = side.get(query(k.collection, **{"fieldSelector": f"metadata.name={name}", **params}))
        t.check(contents(got) == ({name: version} if version else {}), f"{got.target}: {contents(got)}, not {version}")
        t.check(not got.token, f"a token: {got}")
        out.append(got)
    return out


@entry(34, "a_name_or_namespace_does_not_match_a_longer_one", setup=each(spread))
@both
def boundaries(side, t, k):
    """n is neither n-b nor n0, a is neither a-1 nor a.1."""
    out = []
    for where in (t.namespace, f"{t.namespace}-b", f"{t.namespace}0"):
        got = side.get(query(k.inside(where), resourceVersion=0))
        t.check({key.partition("/")[0] for key in got.keys} == {where} and len(got.items) == 4, f"{got.keys}")
        one = side.get(query(k.inside(where), fieldSelector="metadata.name=a"))
        t.check(one.keys == [f"{where}/a"], f"{one.keys}")
        out += [got, one]
    prefix = side.get(query(k.inside(t.namespace[:-1]), resourceVersion=0, labelSelector=f"world={t.namespace}"))
    t.check(prefix.items == [], f"{prefix.keys}")
    return [*out, prefix]


@entry(39, "a_list_not_older_than_a_version_never_is", live=True, setup=each(story))
@both
def not_older(side, t, k):
    """A request for an old version may return a newer state; a version that was just written is waited for."""
    out = [side.get(query(k.collection, resourceVersion=v, **NOT_OLDER)) for v, _ in k.state] + [side.get(query(k.collection, resourceVersion=1, **NOT_OLDER))]
    for (version, _), got in zip([*k.state, (1, None)], out):
        t.check(got.version >= max(version, max(contents(got).values())), f"asked for {version}: {got.version}")
    for turn in range(3):
        version = t.once(lambda: t.label(k.at("c"), turn=str(turn)))
        got = side.get(query(k.collection, resourceVersion=version, **NOT_OLDER))
        t.check(got.version >= version and contents(got)["c"] == version, f"asked for {version}: {got}")
    return [*out, got]


def two_namespaces(t, k):
    for where in (t.namespace, f"{t.namespace}-two"):
        for name, value in (("one", "red"), ("two", "blue")):
            t.create(k.inside(where), k.make(name, {"world": t.namespace}, **k.paint(value)))


@entry(41, "path_namespace_and_fields_select_together", setup=each(two_namespaces))
@both
def scopes(side, t, k):
    """Every combination of the path's namespace, metadata.namespace, metadata.name and a field of the kind; contradictions are empty."""
    here, there, out = t.namespace, f"{t.namespace}-two", []
    for path in (here, None):
        for namespace in (None, here, there):
            for name in (None, "one", "none"):
                for value in (None, "red"):
                    terms = {"metadata.namespace": namespace, "metadata.name": name, k.field: value}
                    fields = ",".join(f"{f}={v}" for f, v in terms.items() if v)
                    wanted = [f"{n}/{m}" for n in (there, here) for m in ("one", "two")
                              if path in (None, n) and namespace in (None, n) and name in (None, m) and value in (None, "red" if m == "one" else "blue")]
                    got = side.get(query(k.inside(path), resourceVersion=0, labelSelector=f"world={t.namespace}", fieldSelector=fields or None))
                    t.check(sorted(got.keys) == sorted(wanted), f"{got.target}: {got.keys}, not {wanted}")
                    out.append(got)
    return out
