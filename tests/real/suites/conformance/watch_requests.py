"""Cases of watches: `quiet` ones on an unchanging state, `live` ones with one series of writes while all are open."""
from .. import fixtures, wire
from ..comparison import Case
from .list_requests import FUTURE, PARTIAL, PARTIALS, PB, TABLE, token

q = wire.query
SIE = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
PB_STREAM = {"Accept": "application/vnd.kubernetes.protobuf;stream=watch"}
PB_PARTIAL = {"Accept": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"}


def w(name, collection, headers=None, bookmark=False, seconds=2, **params):
    params.setdefault("watch", "true")
    return Case(name, q(collection, timeoutSeconds=seconds, **params), headers or {}, watch=True, bookmark=bookmark)


def starts(s, n, c):
    """8.2, 8.3: every start point with and without bookmarks and initial events."""
    now, created = s.versions[n]["now"], s.versions[n]["created"]
    awb = {"allowWatchBookmarks": "true"}
    for version in (None, 0, 1, now):
        at = "no version" if version is None else f"version {'now' if version == now else version}"
        for bookmarks in ({}, awb):
            end = "with bookmarks" if bookmarks else "no bookmarks"
            yield w(f"8.3-108 {n} watch-list, {at}, {end}", c, resourceVersion=version, **SIE, **bookmarks)
            if version != 1:  # how much history since 1 is left depends on when a cache was filled
                yield w(f"8.3-108 {n} watch, sendInitialEvents false, {at}, {end}", c, resourceVersion=version, **{**SIE, "sendInitialEvents": "false"}, **bookmarks)
                yield w(f"8.3-107,108 {n} watch, {at}, {end}", c, resourceVersion=version, **bookmarks)
    yield w(f"8.2-68,96 {n} watch, from the first write: history", c, resourceVersion=created - 1)
    yield w(f"8.2-68 {n} watch, from the first update: history", c, resourceVersion=s.versions[n]["updated"] - 1)
    yield w(f"8.2-80 {n} watch, from the future", c, resourceVersion=FUTURE)
    yield w(f"8.2-80 {n} watch, from the future, with bookmarks", c, resourceVersion=FUTURE, **awb)
    yield w(f"8.3-115 {n} watch-list, from the future", c, resourceVersion=FUTURE, seconds=6, **SIE)
    for bad in ("abc", "-1", "99999999999999999999"):
        yield w(f"8.2-127 {n} watch, resource version {bad}", c, resourceVersion=bad)
        yield w(f"8.2-127 {n} watch-list, resource version {bad}", c, resourceVersion=bad, **SIE)


def options(s, n, c):
    """8.4: options that are rejected or ignored."""
    now = s.versions[n]["now"]
    for what, params in {
            "sendInitialEvents without a match": {"sendInitialEvents": "true"}, "sendInitialEvents false without a match": {"sendInitialEvents": "false"},
            "sendInitialEvents with Exact": {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, "sendInitialEvents with a bad match": {"sendInitialEvents": "true", "resourceVersionMatch": "X"},
            "match without sendInitialEvents": {"resourceVersionMatch": "NotOlderThan", "resourceVersion": now}, "Exact without sendInitialEvents": {"resourceVersionMatch": "Exact", "resourceVersion": now},
            "watch-list with continue": {**SIE, "continue": token(now, "p2\0")}, "continue is ignored": {"continue": "garbage", "resourceVersion": now},
            "limit is ignored": {"limit": 1, "resourceVersion": 0}, "limit abc": {"limit": "abc"}, "bad labels": {"labelSelector": "==="}, "bad fields": {"fieldSelector": "spec.nope=1"},
            "bad labels in a watch-list": {**SIE, "labelSelector": "a/b/c=1"}, "watch=1": {"watch": "1", "resourceVersion": now}, "watch=no is true": {"watch": "no", "resourceVersion": now},
            "watch= is true": {"watch": "", "resourceVersion": now}, "pretty is ignored": {"pretty": "true", "resourceVersion": 0}}.items():
        yield w(f"8.4-137 {n} watch, {what}", c, **params)
    for value in ("0", "false", "FALSE"):
        yield Case(f"8.4-127 {n} watch={value} is a list", q(c, watch=value, resourceVersion=0), cached=True)
    yield Case(f"8.4-125 {n} watch, negative timeout", q(c, watch="true", resourceVersion=now, timeoutSeconds=-1), watch=True)
    yield Case(f"8.4-125 {n} watch, timeoutSeconds abc", q(c, watch="true", resourceVersion=now, timeoutSeconds="abc"), watch=True)
    deprecated = c.replace("/v1/", "/v1/watch/", 1)
    yield w(f"8.4-127 {n} /watch/, from now", deprecated, watch=None, resourceVersion=now)
    yield w(f"8.4-127 {n} /watch/, no version", deprecated, watch=None, allowWatchBookmarks="true")
    yield w(f"8.4-127 {n} /watch/, version 0", deprecated, watch=None, resourceVersion=0)
    yield w(f"8.4-127 {n} /watch/ of one name", f"{deprecated}/{s.first[n]}", watch=None, resourceVersion=0)
    yield w(f"8.4-127 {n} /watch/ of one name, other name selected", f"{deprecated}/{s.first[n]}", watch=None, resourceVersion=0, fieldSelector="metadata.name=x")
    yield w(f"8.4-127 {n} /watch/ with sendInitialEvents", deprecated, watch=None, **SIE)
    yield w(f"8.4-127 {n} /watch/ with watch=1", deprecated, watch="1", **SIE)


def forms(s, n, c):
    """8.4: representations of a stream."""
    awb = {"allowWatchBookmarks": "true", **SIE}
    for what, headers in {"Table": TABLE, "metadata": PARTIAL, "protobuf or JSON": {"Accept": PB["Accept"] + ",application/json"}, "protobuf stream": PB_STREAM, "protobuf only": PB,
                          "metadata in protobuf": PB_PARTIAL, "JSON stream": {"Accept": "application/json;stream=watch"}, "anything": {"Accept": "*/*"}, "gzip": {"Accept-Encoding": "gzip"},
                          "kubectl's Accept": {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"},
                          "list metadata": PARTIALS, "curl's user agent": {"User-Agent": "curl/8.5.0"}}.items():
        yield w(f"8.4-130,131,132 {n} watch-list, {what}", c, headers, **awb)
    yield w(f"8.4-131 {n} watch as Table without objects", c, TABLE, includeObject="None", **awb)
    yield w(f"8.4-131 {n} watch as Table with objects", c, TABLE, includeObject="Object", **awb)
    for accept in ("application/yaml", "text/csv", "application/cbor", "application/json;stream=nope"):
        yield w(f"8.4-126 {n} watch, Accept {accept}", c, {"Accept": accept}, resourceVersion=0)


def sockets(s):
    """8.4: watches over WebSocket, rejected ones, and requests that do not count as WebSocket."""
    pods, widgets, awb = fixtures.pods("default"), fixtures.widgets("default"), {"allowWatchBookmarks": "true", **SIE}
    socket = lambda drop="", **more: {k: v for k, v in {**wire.WEBSOCKET, **{k.replace("_", "-"): v for k, v in more.items()}}.items() if k != drop}
    yield w("8.4-128,129 websocket: a watch-list", pods, socket(), **awb)
    yield w("8.4-128,129 websocket: a watch-list of custom resources", widgets, socket(), **awb)
    yield w("8.4-130 websocket: protobuf", pods, socket(Accept=PB["Accept"]), **awb)
    yield w("8.4-130 websocket: metadata in protobuf", pods, socket(**PB_PARTIAL), **awb)
    yield w("8.4-130 websocket: metadata", pods, socket(**PARTIAL), **awb)
    yield w("8.4-131 websocket: Table", pods, socket(**TABLE), **awb)
    yield w("8.4-129 websocket: from the first write", pods, socket(), resourceVersion=s.versions["pods"]["created"] - 1)
    yield Case("8.4-129 websocket: negative timeout", q(pods, watch="true", timeoutSeconds=-1, resourceVersion=s.versions["pods"]["now"]), socket(), watch=True)
    for what, more in {"another's origin": {"Origin": "https://example.com:8443"}, "a path as origin": {"Origin": "/x"}, "null origin": {"Origin": "null"}, "origin without a scheme": {"Origin": "example.com"},
                       "origin with a bad port": {"Origin": "http://a:b"}, "origin with a blank": {"Origin": "http://a b"}, "origin in brackets": {"Origin": "http://[::1]:80"}, "origin with a user": {"Origin": "http://u@a"},
                       "version 8": {"Sec_WebSocket_Version": "8"}, "a protocol": {"Sec_WebSocket_Protocol": "base64.binary.k8s.io"}, "two protocols": {"Sec_WebSocket_Protocol": "a, b"},
                       "two wishes": {"Connection": "keep-alive, Upgrade"}, "other case": {"Connection": "UPGRADE", "Upgrade": "WebSocket"}, "an odd key": {"Sec_WebSocket_Key": "x"},
                       "no upgrade in Connection": {"Connection": "keep-alive"}, "SPDY": {"Upgrade": "SPDY/3.1"}, "h2c": {"Upgrade": "h2c"}, "yaml": {"Accept": "application/yaml"}}.items():
        yield w(f"8.4-128 websocket: {what}", pods, socket(**more), resourceVersion=0)
    for missing in ("Origin", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Connection", "Upgrade"):
        yield w(f"8.4-128 websocket: without {missing}", pods, socket(missing), resourceVersion=0)
    yield w("8.4-128 websocket: a mistake is told first", pods, socket("Origin"), labelSelector="===")
    yield Case("8.4-128 websocket: a list ignores it", q(pods, resourceVersion=0), socket(), cached=True)
    yield w("8.4-128 websocket: /watch/", pods.replace("/v1/", "/v1/watch/", 1), socket(), watch=None, resourceVersion=0)


def scopes(s, n, c, everywhere, inside):
    """8.2: the initial events of each scope on an unchanging state."""
    one = s.first[n]
    awb = {"allowWatchBookmarks": "true", **SIE}
    for what, collection, params in (
            ("all namespaces", everywhere, {}), ("empty namespace", inside("empty"), {}), ("namespace a", inside("a"), {}), ("one name", c, {"fieldSelector": f"metadata.name={one}"}),
            ("a missing name", c, {"fieldSelector": "metadata.name=nope"}), ("labels", c, {"labelSelector": "app=demo"}), ("no match", c, {"labelSelector": "app=none"}),
            ("a field", everywhere, {"fieldSelector": s.field[n]}), ("not a field", everywhere, {"fieldSelector": s.field[n].replace("=", "!=", 1)}),
            ("another namespace", c, {"fieldSelector": "metadata.namespace=elsewhere"}), ("a name everywhere", everywhere, {"fieldSelector": "metadata.name=x1"})):
        yield w(f"8.2-76,77 {n} watch-list, {what}", collection, **awb, **params)
    yield w(f"8.2-109 {n} watch by name, version 0", c, resourceVersion=0, fieldSelector=f"metadata.name={one}")


def quiet(s):
    for n, c, everywhere, inside in s.resources:
        for table in (starts, options, forms):
            yield from table(s, n, c)
        yield from scopes(s, n, c, everywhere, inside)
    events = "/api/v1/namespaces/default/events"
    yield w("8.3-119 events (uncached), watch-list", events, allowWatchBookmarks="true", **SIE)
    yield Case("8.3-119 events (uncached), watch-list from the future", q(events, watch="true", timeoutSeconds=2, resourceVersion=FUTURE, **SIE), watch=True, random_retry=True)
    yield w("8.2-76 nodes, watch-list", "/api/v1/nodes", allowWatchBookmarks="true", **SIE)
    yield w("8.2-76 nodes, /watch/ of one name", "/api/v1/watch/nodes/node-0", watch=None, resourceVersion=0)
    yield from sockets(s)
    yield w("8.4-136 an unknown resource, watch", "/api/v1/nopes")
    yield w("8.4-136 an unknown group, watch", "/apis/nope.io/v1/nopes")


def live(s, seconds):
    """Streams that are open during the writes of `write`; all end by their own timeout."""
    for n, c, everywhere, inside in s.resources:
        now, field = s.versions[n]["now"], s.field[n]
        awb = {"allowWatchBookmarks": "true"}
        table = {
            "61,63,67,74 live, from now": (c, {}), "104,105 live, with bookmarks": (c, awb), "61 live, all namespaces": (everywhere, {}), "77 live, namespace a": (inside("a"), {}),
            "62,64,65,92 live, labels": (c, {"labelSelector": "app=demo"}), "92 live, labels !=": (c, {"labelSelector": "app!=demo"}), "92 live, labels exist": (everywhere, {"labelSelector": "app"}),
            "92 live, labels in": (c, {"labelSelector": "app in (demo,other)"}), "92 live, rank>5": (c, {"labelSelector": "rank>5"}),
            "76,77,88 live, a field": (everywhere, {"fieldSelector": field}), "76 live, not a field": (everywhere, {"fieldSelector": field.replace("=", "!=", 1)}),
            "77 live, one name": (c, {"fieldSelector": "metadata.name=live1"}), "77 live, not one name": (c, {"fieldSelector": "metadata.name!=live1"}),
            "77 live, one name everywhere": (everywhere, {"fieldSelector": "metadata.name=live1"}), "77 live, a namespace by field": (everywhere, {"fieldSelector": "metadata.namespace=a"}),
            "92 live, field and labels": (everywhere, {"fieldSelector": field, "labelSelector": "app=demo"}), "77 live, nothing": (inside("empty"), {})}
        for what, (collection, params) in table.items():
            yield w(f"8.2-{what}: {n}", collection, resourceVersion=now, seconds=seconds, bookmark="allowWatchBookmarks" in params, **params)
        yield w(f"8.3-111 live, watch-list: {n}", c, seconds=seconds, bookmark=True, **awb, **SIE)
        yield w(f"8.3-109 live, watch-list of one name: {n}", c, seconds=seconds, fieldSelector="metadata.name=live1", **awb, **SIE)
        yield w(f"8.2-66,86 live, version 0: {n}", everywhere, seconds=seconds, resourceVersion=0, labelSelector="app=demo")
        yield w(f"8.2-86 live, no version: {n}", c, seconds=seconds)
        yield w(f"8.4-131 live, Table: {n}", c, TABLE, seconds=seconds, resourceVersion=now)
        yield w(f"8.4-131 live, Table, labels: {n}", c, TABLE, seconds=seconds, resourceVersion=0, labelSelector="app=demo")
        yield w(f"8.4-132 live, metadata: {n}", c, PARTIAL, seconds=seconds, resourceVersion=now)
        yield w(f"8.4-132 live, metadata, labels: {n}", c, PARTIAL, seconds=seconds, resourceVersion=now, labelSelector="app=demo")
        yield w(f"8.4-132 live, metadata in protobuf: {n}", c, PB_PARTIAL, seconds=seconds, resourceVersion=now)
        yield w(f"8.4-127 live, /watch/ of one name: {n}", c.replace("/v1/", "/v1/watch/", 1) + "/live1", seconds=seconds, watch=None, resourceVersion=now)
    pods = fixtures.pods("default")
    now = s.versions["pods"]["now"]
    for what, headers in {"JSON": {}, "protobuf": PB, "Table": TABLE, "metadata": PARTIAL}.items():
        yield w(f"8.4-130 live, websocket, {what}: pods", pods, {**wire.WEBSOCKET, **headers}, seconds=seconds, resourceVersion=now, bookmark=what != "Table", allowWatchBookmarks="true")
    for what, params in {"bookmarks": {"allowWatchBookmarks": "true"}, "no objects": {"includeObject": "None"}, "whole objects": {"includeObject": "Object"}, "a field": {"fieldSelector": "metadata.name=live1"}}.items():
        yield w(f"8.4-131 live, Table, {what}: pods", pods, TABLE, seconds=seconds, resourceVersion=now, **params)
    yield w("8.4-130 live, protobuf: pods", pods, PB, seconds=seconds, resourceVersion=now)
    yield w("8.4-130 live, protobuf, labels: pods", pods, PB, seconds=seconds, resourceVersion=now, labelSelector="app=demo")
    yield w("8.4-130 live, protobuf watch-list: pods", pods, PB, seconds=seconds, allowWatchBookmarks="true", **SIE)
    yield w("8.4-130 live, protobuf, a field: pods", pods, PB, seconds=seconds, resourceVersion=now, fieldSelector=s.field["pods"])


def write(s, api):
    """The writes that the live streams see: in, out, changed, deleted, recreated, elsewhere, unusual characters."""
    for n, c, _, inside in s.resources:
        make = fixtures.pod if n == "pods" else fixtures.widget
        field = (lambda value: {"spec": {"nodeName": f"node-{value}"}}) if n == "pods" else (lambda value: {"spec": {"color": ["green", "blue"][value]}})
        api.create(c, make("live1", {"app": "demo", "rank": "1"}))
        api.label(f"{c}/live1", rank="6")
        api.patch(f"{c}/live1", field(1))
        api.label(f"{c}/live1", app="other")  # no longer app=demo
        api.patch(f"{c}/live1", field(0))
        api.label(f"{c}/live1", app="demo", rank="x")
        api.label(f"{c}/live1", app=None)
        api.patch(f"{c}/live1", {"metadata": {"annotations": {"note": "<b>&\u2028\U0001f600\"\\</b>"}}})
        api.call("PATCH", f"{c}/live1/status", {"status": {"phase": "Failed"}}, fixtures.MERGE)
        api.label(f"{c}/{s.first[n]}", app="other")
        api.label(f"{c}/{s.first[n]}", app="demo")
        api.delete(f"{c}/live1")
        api.create(c, make("live1", {"app": "demo"}))  # the same name, another uid
        api.delete(f"{c}/live1")
        api.create(c, make("live2", {"app": "demo"}, finalizers=["example.com/hold"]))
        api.delete(f"{c}/live2")  # only marked
        api.patch(f"{c}/live2", {"metadata": {"finalizers": None}})  # now gone
        api.create(inside("a"), make("live1", {"app": "demo"}))
        api.delete(f"{inside('a')}/live1")
        api.create(inside("b"), make("far", {"app": "other"}))
    for n, c, _, _ in s.resources:
        api.label(f"{c}/{s.last[n]}", done="yes")
