"""Entries 76, 77, 88, 89, 92 and 121: which clients receive an event, and with which type."""
from .. import fixtures
from .framework import entry
from .streams import BOOKMARKS, INITIAL, FormWatch, closed, expect, kinds, seeded, shape, watch


def node(name, labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def mine(t):
    """The label that separates a test's objects from others' in watches of everything."""
    return f"of={t.namespace}"


def labels(t, **more):
    return {"of": t.namespace, **more}


# --- 76, 77: scopes --------------------------------------------------------------------

def nodes_before(t):
    return t.create("/api/v1/nodes", node(f"{t.namespace}-seed", labels(t)))


@entry(76, "cluster_scoped_watches_select_by_name", setup=nodes_before, live=True)
def cluster_scoped(side, t):
    """Nodes by metadata.name, = and !=, and by the deprecated path."""
    a, b = f"{t.namespace}-a", f"{t.namespace}-b"
    wanted = {"": [a, b], f"metadata.name={a}": [a], f"metadata.name!={a}": [b], f"metadata.name={a},metadata.name!={b}": [a]}
    opened = {f: side.open(watch("/api/v1/nodes", resourceVersion=t.state, labelSelector=mine(t), fieldSelector=f or None)) for f in wanted}
    opened["path"] = side.open(f"/api/v1/watch/nodes/{a}?resourceVersion={t.state}")
    wanted["path"] = [a]

    def write():
        return [("ADDED", n, t.create("/api/v1/nodes", node(n, labels(t)))) for n in (a, b)] + [("MODIFIED", n, t.label(f"/api/v1/nodes/{n}", done="yes")) for n in (a, b)]
    made = t.once(write)
    for field, stream in opened.items():
        expect(t, stream, [m for m in made if m[1] in wanted[field]])
    return closed(*opened.values())


def everywhere(t):
    seeded(t)
    return t.create(t.pods, fixtures.pod("first", labels(t)))


# (namespace of the path, field selector; NS is the test's namespace, NS-b another): the pods that match it
PODS = {"NS/a": "n1", "NS/b": "n2", "NS-b/a": "n1", "NS-b/c": "n2"}  # and their nodes
SCOPES = [
    ("", "metadata.name=a"), ("", "metadata.name!=a"), ("", "spec.nodeName=n1"), ("", "spec.nodeName!=n1"), ("", "metadata.namespace=NS"), ("", "metadata.namespace!=NS"),
    ("", "metadata.name=a,spec.nodeName=n1"), ("", "metadata.namespace=NS,metadata.name=a"), ("", "metadata.namespace=NS,spec.nodeName=n2"), ("", "metadata.namespace=NS,metadata.name=b,spec.nodeName=n2"),
    ("NS", ""), ("NS", "metadata.name=a"), ("NS", "metadata.name!=a"), ("NS", "spec.nodeName=n1"), ("NS", "spec.nodeName!=n1"), ("NS", "metadata.name=b,spec.nodeName=n2"),
    ("NS", "metadata.namespace=NS"), ("NS", "metadata.namespace=NS,metadata.name=a"), ("NS-b", ""), ("NS-b", "metadata.name=c"),
]
CONTRADICTORY = [("NS", "metadata.namespace=NS-b"), ("NS", "metadata.name=a,metadata.name=b"), ("NS", "metadata.name=a,spec.nodeName=n2"), ("", "metadata.namespace=NS,metadata.name=c"), ("NS", "metadata.name=nope")]


def matching(scope):
    namespace, selector = scope
    found = []
    for key, where in PODS.items():
        fields = {"metadata.namespace": key.split("/")[0], "metadata.name": key.split("/")[1], "spec.nodeName": where}
        terms = [t.partition("!=") if "!=" in t else t.partition("=") for t in selector.split(",") if t]
        if namespace in ("", fields["metadata.namespace"]) and all((fields[f] == v) == (op == "=") for f, op, v in terms):
            found.append(key)
    return found


def opened_scopes(side, t, scopes, **params):
    own = lambda text: text.replace("NS", t.namespace)
    return {scope: side.open(watch(fixtures.pods(own(scope[0]) or None), labelSelector=mine(t), fieldSelector=own(scope[1]) or None, **params)) for scope in scopes}


def made_pods(t):
    """Creates each, then changes each: an event that does not belong into a stream precedes the last that does."""
    out = {key: [] for key in PODS}
    for kind in ("ADDED", "MODIFIED"):
        for key, where in PODS.items():
            namespace, name = key.replace("NS", t.namespace).split("/")
            collection = fixtures.pods(namespace)
            version = t.create(collection, fixtures.pod(name, labels(t), where)) if kind == "ADDED" else t.label(f"{collection}/{name}", done="yes")
            out[key].append((version, kind, name))
    return out


@entry(77, "namespaced_watches_see_what_path_and_fields_select", setup=everywhere, live=True)
def namespaced(side, t):
    """Every combination of the path's namespace, metadata.namespace, metadata.name and spec.nodeName, while objects are written."""
    opened = opened_scopes(side, t, SCOPES, resourceVersion=t.state)
    none = opened_scopes(side, t, CONTRADICTORY, resourceVersion=t.state, timeoutSeconds=5)
    made = t.once(lambda: made_pods(t))
    for scope, stream in opened.items():
        expect(t, stream, [(kind, name, version) for version, kind, name in sorted(e for key in matching(scope) for e in made[key])])
    for scope, stream in none.items():
        t.check(matching(scope) == [] and stream.wait_end() == [], f"{scope} selects nothing: {stream.events()}")
    return [*closed(*opened.values()), *(s.wait_end() for s in none.values())]


@entry(77, "namespaced_initial_events_are_what_path_and_fields_select", setup=made_pods)
def namespaced_initial(side, t):
    """The same combinations, with objects that exist when the watch begins."""
    opened = opened_scopes(side, t, SCOPES + CONTRADICTORY, **INITIAL, **BOOKMARKS)
    for scope, stream in opened.items():
        got = stream.until_marker()[:-1]
        wanted = sorted((key, t.state[key][-1][0]) for key in matching(scope))
        t.check([e.type for e in got] == ["ADDED"] * len(wanted) and sorted((f"{e.meta['namespace']}/{e.name}".replace(t.namespace, "NS"), e.version) for e in got) == wanted, f"{scope}: {got}")
    return [shape([e for e in s.events() if not e.marker]) for s in closed(*opened.values())]


# --- 88, 89: one event, many clients ---------------------------------------------------

@entry(88, "a_deletion_is_told_to_each_selector_by_what_it_had_seen", setup=seeded, live=True)
def deletions(side, t):
    """For clients that see all objects, the object before its last change, or the object after it: the right object, the right version."""
    opened = {c: {s: side.open(watch(c, resourceVersion=t.state[c], labelSelector=s)) for s in (None, "app=foo", "app=bar", "app in (foo,bar)")} for c, _, _ in kinds(t)}

    def write(c, make, _):
        return t.create(c, make("o", {"app": "foo"})), t.label(f"{c}/o", app="bar"), t.delete(f"{c}/o"), t.create(c, make("end", {"app": "foo"})), t.label(f"{c}/end", app="bar")
    made = t.once(lambda: {c: write(c, make, f) for c, make, f in kinds(t)})
    for c, streams in opened.items():
        foo, bar, after, end, end_bar = made[c]
        tail, both = [("ADDED", "end", end)], [("MODIFIED", "end", end_bar)]
        got = {s: expect(t, stream, wanted) for (s, stream), wanted in zip(streams.items(), (
            [("ADDED", "o", foo), ("MODIFIED", "o", bar), ("DELETED", "o", None), *tail, *both],
            [("ADDED", "o", foo), ("DELETED", "o", bar), *tail, ("DELETED", "end", end_bar)],
            [("ADDED", "o", bar), ("DELETED", "o", None), ("ADDED", "end", end_bar)],
            [("ADDED", "o", foo), ("MODIFIED", "o", bar), ("DELETED", "o", None), *tail, *both]))}
        t.check(got["app=foo"][1].meta["labels"] == {"app": "foo"}, f"who saw foo is shown foo: {got['app=foo'][1].frame}")
        gone = [got[None][2], got["app=bar"][1], got["app in (foo,bar)"][2]]
        t.check(all(g.meta["labels"] == {"app": "bar"} for g in gone) and len({g.frame for g in gone}) == 1, f"who saw bar is shown bar, all the same bytes: {gone}")
        t.check(bar < gone[0].version <= after, f"the version of the deletion: {gone}")
    return [s for streams in opened.values() for s in closed(*streams.values())]


@entry(89, "one_event_in_many_forms_is_in_each_what_it_is_alone", setup=seeded, live=True)
def shared_encodings(side, t):
    """Ten clients of one change, in four forms and with selectors that it leaves: no client sees another's form or version."""
    forms = ["json", "json", "table", "metadata", "protobuf", "metadata protobuf", "json stream"]
    target = watch(t.pods, resourceVersion=t.state[t.pods])
    opened = [FormWatch(side, form, target).opened() for form in forms]
    leaving = [FormWatch(side, form, watch(t.pods, resourceVersion=t.state[t.pods], labelSelector="app=seed")).opened() for form in ("json", "protobuf", "metadata")]
    versions = t.once(lambda: (t.label(f"{t.pods}/seed", n="1"), t.label(f"{t.pods}/seed", app="other")))
    kind = {"table": "Table", "metadata": "PartialObjectMetadata", "metadata protobuf": "PartialObjectMetadata"}
    for stream in opened + leaving:
        got = [stream.next(), stream.next()]
        wanted = ["MODIFIED", "DELETED" if stream in leaving else "MODIFIED"]
        t.check([e.type for e in got] == wanted and [e.version for e in got] == list(versions), f"{stream.form}: {got}")
        t.check(all(e.kind == kind.get(stream.form, "Pod") for e in got), f"{stream.form}: kinds {[e.kind for e in got]}")
        app = [e.labels["app"] for e in got]
        t.check(app == (["seed", "seed"] if stream in leaving else ["seed", "other"]), f"{stream.form}: labels {app}")
    t.check(opened[0].frames[:2] == opened[1].frames[:2] == opened[6].frames[:2], "two clients of one form see the same bytes")
    return closed(*opened, *leaving)


# --- 92: transitions -------------------------------------------------------------------

# selector terms on label app (and the field): what makes an object match, what does not
SELECTORS = {
    "app=yes": ("yes", "no"), "app!=no": ("yes", "no"), "app": ("yes", None), "!app": (None, "yes"), "app in (yes,other)": ("yes", "no"), "app notin (no)": ("yes", "no"), "app>5": ("6", "5"), "app<5": ("4", "5"),
}
STEPS = [(False, False, None), (False, True, "ADDED"), (True, True, "MODIFIED"), (True, False, "DELETED"), (False, True, "ADDED")]  # before, after, event type


def before_transitions(t):
    out = {}
    for c, make, _ in kinds(t):
        for i, (_, bad) in enumerate(SELECTORS.values()):
            out[c] = t.create(c, make(f"s{i}", {"app": bad} if bad else {}))
    return out


@entry(92, "an_events_type_follows_from_what_matched_before_and_after", setup=before_transitions, live=True)
def transitions(side, t):
    """Every label operator: no to no is nothing, no to yes ADDED, yes to yes MODIFIED, yes to no DELETED."""
    opened = {(c, s): side.open(watch(c, resourceVersion=t.state[c], labelSelector=s, fieldSelector=f"metadata.name=s{i}")) for c, _, _ in kinds(t) for i, s in enumerate(SELECTORS)}

    def write():
        out = {}
        for c, _, _ in kinds(t):
            for i, (s, (good, bad)) in enumerate(SELECTORS.items()):
                told = out[c, s] = []
                for n, (_, after, kind) in enumerate(STEPS):
                    version = t.label(f"{c}/s{i}", app=good if after else bad, step=str(n))
                    told += [(kind, f"s{i}", version)] if kind else []
        return out
    made = t.once(write)
    for key, stream in opened.items():
        expect(t, stream, made[key])
    return closed(*opened.values())


@entry(92, "a_deletion_is_told_only_to_who_saw_the_object", setup=seeded, live=True)
def deleted_unseen(side, t):
    """By a field: no event for the deletion of an object that did not match, DELETED for one that did."""
    opened = {}
    for c, _, _ in kinds(t):
        name = "spec.nodeName" if c == t.pods else "spec.color"
        opened[c] = side.open(watch(c, resourceVersion=t.state[c], fieldSelector=f"{name}=in"))

    def write(c, make, field):
        for name, value in (("unseen", "out"), ("seen", "in"), ("last", "in")):
            thing = make(name)
            thing["spec"].update(field(value)["spec"])
            t.create(c, thing)
        t.delete(f"{c}/unseen")
        t.delete(f"{c}/seen")
        return t.label(f"{c}/last", done="yes")
    made = t.once(lambda: {c: write(c, make, field) for c, make, field in kinds(t)})
    for c, stream in opened.items():
        expect(t, stream, [("ADDED", "seen", None), ("ADDED", "last", None), ("DELETED", "seen", None), ("MODIFIED", "last", made[c])])
    return closed(*opened.values())


# --- 121: filters ----------------------------------------------------------------------

@entry(121, "filters_join_prefix_and_labels_and_ignore_shards", setup=seeded, live=True)
def filters(side, t):
    """A namespace whose name is a prefix of another's is separate; labels apply within it; shardSelector, not enabled, is ignored."""
    longer = {c: c.replace(t.namespace, f"{t.namespace}x") for c, _, _ in kinds(t)}
    table = {"prefix": {}, "labels": {"labelSelector": "app=demo"}, "labels and name": {"labelSelector": "app=demo", "fieldSelector": "metadata.name=o"},
             "shard": {"shardSelector": "shardRange(object.metadata.uid, '0x0', '0x8')"}, "no shard": {"shardSelector": "nonsense("}}
    opened = {(c, what): side.open(watch(c, resourceVersion=t.state[c], **params)) for c, _, _ in kinds(t) for what, params in table.items()}

    def write(c, make, _):
        t.create(longer[c], make("o", {"app": "demo"}))
        return ("ADDED", "other", t.create(c, make("other", {"app": "other"}))), ("ADDED", "o", t.create(c, make("o", {"app": "demo"})))
    made = t.once(lambda: {c: write(c, make, f) for c, make, f in kinds(t)})
    for (c, what), stream in opened.items():
        expect(t, stream, made[c][1:] if "labels" in what else made[c])
    return closed(*opened.values())
