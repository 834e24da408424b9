"""Cases of reads: lists, single objects, errors, forms of the URL, forms of the response. Numbers: docs/PROTOCOL.md §8."""
import base64
import json

from .. import fixtures, wire
from ..comparison import Case

q = wire.query
PB = {"Accept": "application/vnd.kubernetes.protobuf"}
JSON = {"Accept": "application/json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"}
PARTIALS = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}
# Further ahead than any version that a gateway takes for one of a lost history (decision 19).
FUTURE = 10**15
LENGTH_PLAIN = 131_072  # longer responses are compressed for clients that accept it


def token(version, start, layout="meta.k8s.io/v1"):
    raw = json.dumps({"v": layout, "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def versions_and_matches(s, n, c):
    """8.1: the state that a list shows."""
    v = s.versions[n]
    yield Case(f"8.1-1 {n} list, resource version abc", q(c, resourceVersion="abc"))
    yield Case(f"8.1-1 {n} list, resource version -1", q(c, resourceVersion="-1"))
    yield Case(f"8.1-1 {n} list, resource version over 64 bits", q(c, resourceVersion="99999999999999999999"))
    yield Case(f"8.1-1 {n} list, resource version with leading zeros", q(c, resourceVersion=f"00{v['now']}"), cached=True, at_least=v["now"])
    yield Case(f"8.1-2 {n} list, resource version and continue", q(c, resourceVersion=v["now"], **{"continue": token(v["now"], "p2\0")}))
    yield Case(f"8.1-3 {n} list, future resource version", q(c, resourceVersion=FUTURE))
    yield Case(f"8.1-3,50 {n} list, future, NotOlderThan", q(c, resourceVersion=FUTURE, resourceVersionMatch="NotOlderThan"))
    yield Case(f"8.1-4 {n} list, resource version 0", q(c, resourceVersion=0), cached=True)
    for what in ("created", "updated", "deleted"):
        yield Case(f"8.1-5,6,7,26 {n} list, Exact at {what}", q(c, resourceVersion=v[what], resourceVersionMatch="Exact"))
    yield Case(f"8.1-6 {n} list, Exact before the creation", q(c, resourceVersion=v["created"] - 1, resourceVersionMatch="Exact"))
    yield Case(f"8.1-9 {n} list, 0 and NotOlderThan", q(c, resourceVersion=0, resourceVersionMatch="NotOlderThan"), cached=True)
    yield Case(f"8.1-10 {n} list, bad match", q(c, resourceVersion=v["now"], resourceVersionMatch="Invalid"))
    yield Case(f"8.1-11 {n} list, consistent", c)
    yield Case(f"8.1-11 {n} list, current version", q(c, resourceVersion=v["now"]), cached=True, at_least=v["now"])
    yield Case(f"8.1-11 {n} list, current, Exact", q(c, resourceVersion=v["now"], resourceVersionMatch="Exact"))
    yield Case(f"8.1-11,39 {n} list, current, NotOlderThan", q(c, resourceVersion=v["now"], resourceVersionMatch="NotOlderThan"), cached=True, at_least=v["now"])
    yield Case(f"8.1-39 {n} list, 1, NotOlderThan", q(c, resourceVersion=1, resourceVersionMatch="NotOlderThan"), cached=True)
    yield Case(f"8.1-27 {n} list, future, Exact", q(c, resourceVersion=FUTURE, resourceVersionMatch="Exact"))
    yield Case(f"8.4-137 {n} list, Exact at 0", q(c, resourceVersion=0, resourceVersionMatch="Exact"))
    yield Case(f"8.4-137 {n} list, match without version", q(c, resourceVersionMatch="Exact"))
    yield Case(f"8.4-137 {n} list, bad match without version", q(c, resourceVersionMatch="Sometimes"))
    yield Case(f"8.4-137 {n} list, match with continue", q(c, resourceVersion=v["now"], resourceVersionMatch="Exact", **{"continue": token(v["now"], "p2\0")}))
    yield Case(f"8.4-137 {n} list, sendInitialEvents", q(c, sendInitialEvents="true", resourceVersionMatch="NotOlderThan"))
    yield Case(f"8.4-137 {n} list, sendInitialEvents false", q(c, sendInitialEvents="false"))
    yield Case(f"8.4-137 {n} list, allowWatchBookmarks is ignored", q(c, allowWatchBookmarks="true", resourceVersion=0), cached=True)


def paging(s, n, c):
    """8.1: limit and continue."""
    v, one = s.versions[n], s.first[n]
    now, exact = v["now"], {"resourceVersionMatch": "Exact"}
    start = f"{one}\0"
    yield Case(f"8.1-14 {n} list, first page", q(c, limit=2))
    yield Case(f"8.1-15 {n} list, first page of the current version", q(c, limit=2, resourceVersion=now))
    yield Case(f"8.1-15 {n} list, first page, Exact", q(c, limit=2, resourceVersion=now, **exact))
    yield Case(f"8.1-15 {n} list, first page, NotOlderThan", q(c, limit=2, resourceVersion=now, resourceVersionMatch="NotOlderThan"), cached=True, at_least=now)
    yield Case(f"8.1-16,47 {n} list, limit with version 0", q(c, limit=2, resourceVersion=0), cached=True)
    yield Case(f"8.1-16 {n} list, limit with 0 and NotOlderThan", q(c, limit=2, resourceVersion=0, resourceVersionMatch="NotOlderThan"), cached=True)
    yield Case(f"8.1-17 {n} list, a made token", q(c, limit=1, **{"continue": token(now, start)}))
    yield Case(f"8.1-17 {n} list, a made token with a leading slash", q(c, limit=1, **{"continue": token(now, f"/{start}")}))
    yield Case(f"8.1-18 {n} list, token with version 0", q(c, limit=1, resourceVersion=0, **{"continue": token(now, start)}))
    yield Case(f"8.1-23 {n} list, last page ends with the last item", q(c, limit=2, **{"continue": token(now, f"{s.fourth_last[n]}\0")}))
    yield Case(f"8.1-24 {n} list, page as long as the list", q(c, limit=s.count[n]))
    yield Case(f"8.1-24 {n} list, page longer than the list", q(c, limit=s.count[n] + 1))
    yield Case(f"8.1-14 {n} list, limit -1", q(c, limit=-1))
    for what in ("created", "updated"):
        yield Case(f"8.1-28 {n} list, limit at {what}", q(c, limit=1, resourceVersion=v[what]))
        yield Case(f"8.1-28 {n} list, limit, Exact at {what}", q(c, limit=1, resourceVersion=v[what], **exact))
        yield Case(f"8.1-29 {n} list, continue at {what}", q(c, limit=1, **{"continue": token(v[what], start)}))
    yield Case(f"8.1-30 {n} list, token with version -1", q(c, **{"continue": token(-1, start)}))
    yield Case(f"8.1-30 {n} list, token with version -1 and limit", q(c, limit=1, **{"continue": token(-1, start)}))
    bad = {"of version 0": token(0, start), "without a start": token(now, ""), "of another layout": token(now, start, "meta.k8s.io/v9"),
           "with an unclean start": token(now, "a/../b\0"), "not base64": "garbage!", "not JSON": "Z2FyYmFnZQ"}
    for what, text in bad.items():
        yield Case(f"8.1-31,56 {n} list, token {what}", q(c, limit=1, **{"continue": text}))
    yield Case(f"8.1-29 {n} list, token from the future", q(c, limit=1, **{"continue": token(FUTURE, start)}))


def selectors(s, n, c):
    """8.1: labels and fields, valid and invalid."""
    for text in ("app=demo", "app==demo", "app!=demo", "app", "!app", "app in (demo,other)", "app notin (demo)", "rank>2", "rank<2", "app in ()", "app=demo,rank>1",
                 "app=none", " app = demo ", "app="):
        yield Case(f"8.1-20 {n} list, labels {text!r}", q(c, labelSelector=text, resourceVersion=0), cached=True)
    for text in ("===", "a/b/c=1", "rank>x", "app in demo", "!app=demo", "app in (demo", "-app", "app=demo,", "app=ä"):
        yield Case(f"8.4-136 {n} list, bad labels {text!r}", q(c, labelSelector=text, resourceVersion=0), cached=False)
    one = s.first[n]
    for text in (f"metadata.name={one}", f"metadata.name!={one}", "metadata.name=nope", "metadata.namespace=default", "metadata.namespace=elsewhere",
                 f"metadata.name={one},metadata.name={s.last[n]}", s.field[n], s.field[n].replace("=", "!=", 1), s.field[n].split("=")[0] + "=", f"metadata.name=={one}", ","):
        yield Case(f"8.1-13,41 {n} list, fields {text!r}", q(c, fieldSelector=text, resourceVersion=0), cached=True)
    for text in ("spec.nope=1", "spec.nodeName", "metadata.name=a=b", r"metadata.name=\z"):
        yield Case(f"8.4-136 {n} list, bad fields {text!r}", q(c, fieldSelector=text, resourceVersion=0))
    yield Case(f"8.1-21,22 {n} list, selector with limit", q(c, labelSelector="app=demo", limit=1))
    yield Case(f"8.1-36 {n} list, limit 1, only the last matches", q(c, labelSelector="last=yes", limit=1))
    yield Case(f"8.1-37 {n} list, != with limit 2", q(c, labelSelector="app!=demo", limit=2))
    yield Case(f"8.1-13 {n} list, name with NotOlderThan", q(c, fieldSelector=f"metadata.name={one}", resourceVersion=1, resourceVersionMatch="NotOlderThan"), cached=True, at_least=1)
    yield Case(f"8.1-33 {n} list, one name, consistent", q(c, fieldSelector=f"metadata.name={one}"))
    yield Case(f"8.1-33 {n} list, one name, Exact", q(c, fieldSelector=f"metadata.name={one}", resourceVersion=s.versions[n]["updated"], resourceVersionMatch="Exact"))
    yield Case(f"8.1-33 {n} list, one name, version and limit", q(c, fieldSelector=f"metadata.name={one}", resourceVersion=s.versions[n]["now"], limit=1), cached=True)
    yield Case(f"8.1-33 {n} list, one missing name with a label", q(c, fieldSelector="metadata.name=nope", labelSelector="app=demo"))


def scopes(s, n, c, everywhere, inside):
    """8.1: namespaces and forms of the URL."""
    yield Case(f"8.1-19 {n} list, all namespaces in key order", q(everywhere, resourceVersion=0), cached=True)
    yield Case(f"8.1-19 {n} list, all namespaces, page", q(everywhere, limit=3))
    yield Case(f"8.1-17 {n} list, token for all namespaces", q(everywhere, limit=2, **{"continue": token(s.versions[n]["now"], "a-b/x1\0")}))
    yield Case(f"8.1-12 {n} list, empty namespace", inside("empty"))
    yield Case(f"8.1-12 {n} list, empty namespace, version 0", q(inside("empty"), resourceVersion=0), cached=True)
    yield Case(f"8.1-34 {n} list, namespace a is not a-b", q(inside("a"), resourceVersion=0), cached=True)
    yield Case(f"8.1-34 {n} list, namespace a-b", q(inside("a-b"), resourceVersion=0), cached=True)
    for text in ("metadata.namespace=a", "metadata.namespace=a,metadata.name=x1", "metadata.namespace!=a", "metadata.name=x1"):
        yield Case(f"8.1-41 {n} list, everywhere, {text}", q(everywhere, fieldSelector=text, resourceVersion=0), cached=True)
    yield Case(f"8.4-136 {n} trailing slash", f"{c}/?resourceVersion=0", cached=n == "widgets")
    yield Case(f"8.4-136 {n} double slash in front", f"/{c}")
    yield Case(f"8.4-136 {n} empty namespace in the path", c.replace("/default/", "//") + "?resourceVersion=0")
    yield Case(f"8.4-136 {n} unknown parameters", q(c, resourceVersion=0, nope=1, limi=2), cached=True)
    yield Case(f"8.4-136 {n} repeated parameter: the first counts", f"{c}?resourceVersion=0&limit=0&labelSelector=app%3Ddemo&labelSelector=app%3Dother", cached=True)
    yield Case(f"8.4-136 {n} escaped path", c.replace("default", "%64efault") + "?resourceVersion=0", cached=True)


def forms(s, n, c):
    """8.4: representations of a response."""
    one = s.first[n]
    yield Case(f"8.4-131 {n} list as Table", q(c, limit=2), TABLE)
    yield Case(f"8.4-131 {n} list as Table, version 0", q(c, resourceVersion=0), TABLE, cached=True)
    yield Case(f"8.4-131 {n} list as Table with objects", q(c, limit=1, includeObject="Object"), TABLE)
    yield Case(f"8.4-131 {n} list as Table without objects", q(c, limit=1, includeObject="None"), TABLE)
    yield Case(f"8.4-131 {n} list as Table, bad includeObject", q(c, limit=1, includeObject="Some"), TABLE)
    yield Case(f"8.4-131 {n} empty Table", q(c, labelSelector="app=none"), TABLE)
    yield Case(f"8.4-131 {n} Table of another version", c, {"Accept": "application/json;as=Table;v=v9;g=meta.k8s.io"})
    yield Case(f"8.4-132 {n} list as metadata", q(c, resourceVersion=0), PARTIALS, cached=True)
    yield Case(f"8.4-132 {n} list as metadata, page", q(c, limit=2), PARTIALS)
    yield Case(f"8.4-132 {n} empty list as metadata", q(c, labelSelector="app=none"), PARTIALS)
    yield Case(f"8.4-132 {n} list as metadata in protobuf", q(c, resourceVersion=0), {"Accept": PB["Accept"] + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}, cached=True)
    yield Case(f"8.4-132 {n} list as metadata of one object", c, {"Accept": PARTIAL["Accept"].split(",")[0]})
    yield Case(f"8.4-132 {n} list as metadata v1beta1", q(c, resourceVersion=0), {"Accept": PARTIALS["Accept"].replace("v=v1;", "v=v1beta1;")}, cached=True)
    yield Case(f"8.4-130 {n} list, protobuf or JSON", q(c, resourceVersion=0), {"Accept": PB["Accept"] + ",application/json"}, cached=True)
    yield Case(f"8.4-130 {n} list, protobuf only", c, PB)
    for accept in ("*/*", "*", "application/*", "application/json;q=0.1,application/yaml;q=0", "text/csv,*/*;q=0.1", "application/json;stream=watch", "APPLICATION/JSON,application/json",
                   "application/json; charset=utf-8", "application/json;pretty=1", "", "text/html,application/json"):
        yield Case(f"8.4-134 {n} list, Accept {accept!r}", q(c, resourceVersion=0), {"Accept": accept}, cached=True)
    yield Case(f"8.4-134 {n} list, YAML", q(c, limit=2), {"Accept": "application/yaml"})
    yield Case(f"8.4-134 {n} list, CBOR is off", c, {"Accept": "application/cbor"})
    yield Case(f"8.4-134 {n} list, unknown Accept", c, {"Accept": "text/csv"})
    yield Case(f"8.4-134 {n} list, unknown Accept with version 0", q(c, resourceVersion=0), {"Accept": "text/csv"})
    yield Case(f"8.4-134 {n} list, pretty", q(c, resourceVersion=0, pretty="true"), cached=True)
    yield Case(f"8.4-134 {n} list, curl's user agent", q(c, resourceVersion=0), {"User-Agent": "curl/8.5.0", "Accept": "*/*"}, cached=True)
    yield Case(f"8.4-134 {n} list, pretty=false beats curl", q(c, resourceVersion=0, pretty="false"), {"User-Agent": "curl/8.5.0"}, cached=True)
    for name, headers in (("Accept", {"Accept": "application/json;pretty=1"}), ("Accept, of protobuf", {"Accept": PB["Accept"] + ";pretty=1"}),
                          ("Wget", {"User-Agent": "Wget/1.21"}), ("a browser", {"User-Agent": "Mozilla/5.0 (X11)"})):
        yield Case(f"8.4-134 {n} list, indented for {name}", q(c, resourceVersion=0), {**JSON, **headers}, cached=True)
        yield Case(f"8.4-134 {n} page, indented for {name}", q(c, limit=2), {**JSON, **headers})
        yield Case(f"8.4-134 {n} bad list, indented for {name}", q(c, resourceVersion="abc"), {**JSON, **headers})
        yield Case(f"8.4-134 {n} bad watch, indented for {name}", q(c, watch="true", resourceVersion="abc"), {**JSON, **headers})
        yield Case(f"8.4-134 {n} watch, not indented for {name}", q(c, watch="true", resourceVersion=0, timeoutSeconds=1), {**JSON, **headers}, watch=True)
    for name, headers in (("metadata", PARTIALS), ("metadata, element with pretty", {"Accept": PARTIALS["Accept"].replace(",", ";pretty=1,")}),
                          ("metadata, other element with pretty", {"Accept": PARTIALS["Accept"] + ";pretty=1"}), ("Table", TABLE)):
        yield Case(f"8.4-134 {n} list, {name}, pretty", q(c, resourceVersion=0, pretty=1), headers, cached=True)
        yield Case(f"8.4-134 {n} list, {name}", q(c, resourceVersion=0), headers, cached=True)
        yield Case(f"8.4-134 {n} empty list, {name}, pretty", q(c, resourceVersion=0, pretty=1, labelSelector="app=none"), headers, cached=True)
        yield Case(f"8.4-134 {n} bad list, {name}, pretty", q(c, resourceVersion="abc", pretty=1), headers)
        yield Case(f"8.4-134 {n} bad list, {name}", q(c, resourceVersion="abc"), headers)
    for value in ("1", "t", "TRUE", "tRUE", "0", "no", ""):
        yield Case(f"8.4-134 {n} list, pretty={value!r} from curl", q(c, resourceVersion=0, pretty=value), {"User-Agent": "curl/8.5.0"}, cached=True)
        yield Case(f"8.4-134 {n} bad list, pretty={value!r} from curl", q(c, resourceVersion="abc", pretty=value), {"User-Agent": "curl/8.5.0"})
    for what, params in (("422", {"resourceVersionMatch": "Exact"}), ("token", {"continue": "garbage!"}), ("too new", {"resourceVersion": FUTURE}), ("labels", {"labelSelector": "==="}),
                         ("fields", {"fieldSelector": "spec.nope=1"}), ("limit", {"limit": "abc"})):
        yield Case(f"8.4-134 {n} refused list, pretty: {what}", q(c, pretty=1, **params))
    yield Case(f"8.1-59 {n} get", f"{c}/{one}")
    yield Case(f"8.1-59 {n} get, version 0", f"{c}/{one}?resourceVersion=0")
    yield Case(f"8.1-1 {n} get, bad version", f"{c}/{one}?resourceVersion=abc")
    yield Case(f"8.4-135 {n} get, absent", f"{c}/nope")
    yield Case(f"8.4-131 {n} get as Table", f"{c}/{one}", TABLE)
    yield Case(f"8.4-132 {n} get as metadata", f"{c}/{one}", PARTIAL)
    yield Case(f"8.4-127 {n} get with watch=true", f"{c}/{one}?watch=true")
    yield Case(f"8.4-136 {n} get status", f"{c}/{one}/status")
    yield Case(f"8.4-136 {n} get unknown subresource", f"{c}/{one}/nope")


def methods(s, n, c):
    """8.4: methods and invalid values."""
    for method in ("HEAD", "OPTIONS", "PUT", "TRACE"):
        yield Case(f"8.4-135 {n} {method} on the collection", c, method=method)
    yield Case(f"8.4-135 {n} POST of no object", c, {"Content-Type": "application/json"}, "POST", b"{}")
    yield Case(f"8.4-135 {n} POST of bad JSON", c, {"Content-Type": "application/json"}, "POST", b"{")
    yield Case(f"8.4-135 {n} POST of what exists", c, {"Content-Type": "application/json"}, "POST", json.dumps(s.existing[n]).encode())
    yield Case(f"8.4-135 {n} POST of an unknown type", c, {"Content-Type": "text/csv"}, "POST", b"a,b")
    for name, value in (("limit", "abc"), ("timeoutSeconds", "abc"), ("timeout", "abc"), ("limit", "1.5"), ("limit", "99999999999999999999")):
        yield Case(f"8.1-60 {n} list, {name}={value}", q(c, resourceVersion=0, **{name: value}), cached=False)
    yield Case(f"8.4-126 {n} list, timeout 10s", q(c, resourceVersion=0, timeout="10s"), cached=True)


def others(s):
    """Requests other than lists of pods or widgets."""
    for name, path in (("an unknown resource", "/api/v1/nopes"), ("an unknown group", "/apis/nope.io/v1/nopes"), ("an unknown version", "/apis/example.com/v9/widgets"),
                       ("an unknown custom resource", f"{fixtures.GROUP}/gadgets"), ("an unknown path", "/nope"), ("half a path", "/apis/apps"), ("a bare watch", "/api/v1/watch"),
                       ("the version", "/version"), ("the groups", "/apis"), ("the core resources", "/api/v1"), ("a cluster-scoped kind in a namespace", "/api/v1/namespaces/default/nodes")):
        yield Case(f"8.4-136 {name}", path)
    yield Case("8.4-134 the groups, aggregated", "/apis", {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"})
    for kind in ("nodes", "namespaces"):
        yield Case(f"8.1-4 {kind} list, version 0", f"/api/v1/{kind}?resourceVersion=0", cached=True)
    for kind in ("configmaps", "secrets", "services"):
        yield Case(f"8.1-4 {kind} list, version 0", f"/api/v1/namespaces/default/{kind}?resourceVersion=0", cached=True)
        yield Case(f"8.4-136 {kind} list, unknown field", f"/api/v1/{kind}?fieldSelector=spec.nope%3D1&resourceVersion=0")
    yield Case("8.1-13 nodes list, unschedulable", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse&resourceVersion=0", cached=True)
    yield Case("8.1-13 secrets list, type", "/api/v1/secrets?fieldSelector=type%3DOpaque&resourceVersion=0", cached=True)
    yield Case("8.1-4 deployments list, version 0", "/apis/apps/v1/deployments?resourceVersion=0", cached=True)
    yield Case("8.1-4 deployments list, protobuf", "/apis/apps/v1/deployments?resourceVersion=0", PB, cached=True)
    e = "/api/v1/namespaces/default/events"
    yield Case("8.1-4 events (uncached), version 0", f"{e}?resourceVersion=0", cached=True)
    yield Case("8.1-16 events (uncached), limit with version 0", f"{e}?resourceVersion=0&limit=1", cached=True)
    yield Case("8.1-3 events (uncached), future version", f"{e}?resourceVersion={FUTURE}")
    yield Case("8.1-13 events (uncached), field", f"{e}?fieldSelector=involvedObject.name%3Dp1&resourceVersion=0", cached=True)
    big = "/api/v1/namespaces/big/configmaps"
    for accept in ("gzip", "identity", "gzip;q=1.0", "deflate, gzip", "*", "GZIP"):
        yield Case(f"8.1-58,59 big list, Accept-Encoding {accept}", f"{big}?resourceVersion=0", {"Accept-Encoding": accept}, cached=True)
    zipped = {"Accept-Encoding": "gzip"}
    yield Case("8.1-58 big list, protobuf, gzip", f"{big}?resourceVersion=0", {**zipped, **PB}, cached=True)
    yield Case("8.1-58 big list, page, gzip", f"{big}?limit=8", zipped)
    yield Case("8.1-58 big list, small page, gzip", f"{big}?limit=5", zipped)
    yield Case("8.1-58 big list, selection, gzip", q(big, labelSelector="odd=yes,odd", resourceVersion=0), zipped, cached=True)
    yield Case("8.1-58 big list, everywhere, gzip", "/api/v1/configmaps?resourceVersion=0", zipped, cached=True)
    yield Case("8.1-58 big list, indented, gzip", f"{big}?resourceVersion=0&pretty=1", zipped, cached=True)
    yield Case("8.1-58 big list, metadata, gzip", f"{big}?resourceVersion=0", {**zipped, **PARTIALS}, cached=True)
    for length in (LENGTH_PLAIN, LENGTH_PLAIN + 1):
        edge = f"/api/v1/namespaces/edge-{length}/configmaps"
        yield Case(f"8.1-58 list of {length} bytes, gzip", f"{edge}?resourceVersion=0", zipped, cached=True)
        yield Case(f"8.1-58 list of {length} bytes, consistent, gzip", edge, zipped)
        yield Case(f"8.1-58 list of about {length} bytes, protobuf, gzip", f"{edge}?resourceVersion=0", {**zipped, **PB}, cached=True)
    yield Case("8.1-59 small list, gzip", "/api/v1/nodes?resourceVersion=0", {"Accept-Encoding": "gzip"}, cached=True)
    for user in ("denied", "nobody", "anonymous"):
        for what, target in (("list", fixtures.pods("default")), ("list of an unknown resource", "/api/v1/nopes"), ("watch", fixtures.pods("default") + "?watch=true&timeoutSeconds=1")):
            yield Case(f"8.4-135 {user}: {what}", target, user=user)


def cases(s):
    for n, c, everywhere, inside in s.resources:
        for table in (versions_and_matches, paging, selectors, forms, methods):
            yield from table(s, n, c)
        yield from scopes(s, n, c, everywhere, inside)
    yield from others(s)


def expired(s):
    """After a compaction and a restart of the server and the gateway: no old version is left."""
    for n, c, _, _ in s.resources:
        v, start = s.versions[n], f"{s.first[n]}\0"
        yield Case(f"8.1-8,42 {n} list, Exact, compacted", q(c, resourceVersion=v["created"], resourceVersionMatch="Exact"))
        yield Case(f"8.1-42 {n} list, limit at a compacted version", q(c, resourceVersion=v["updated"], limit=2))
        yield Case(f"8.1-42 {n} list, Exact now", q(c, resourceVersion=s.compacted, resourceVersionMatch="Exact"))
        yield Case(f"8.1-38 {n} list, expired token", q(c, limit=2, **{"continue": token(v["created"], start)}))
        yield Case(f"8.1-38 {n} list, inconsistent token", q(c, limit=2, **{"continue": token(-1, start)}))
        yield Case(f"8.1-39 {n} list, NotOlderThan a compacted version", q(c, resourceVersion=v["created"], resourceVersionMatch="NotOlderThan"), cached=True)
        yield Case(f"8.2-66,96 {n} watch, too old", q(c, watch="true", resourceVersion=2, timeoutSeconds=2), watch=True)
        yield Case(f"8.2-66 {n} watch, too old, with bookmarks", q(c, watch="true", resourceVersion=v["updated"], timeoutSeconds=2, allowWatchBookmarks="true"), watch=True)
        yield Case(f"8.2-79 {n} watch, from the newest", q(c, watch="true", resourceVersion=s.compacted, timeoutSeconds=2), watch=True)
        yield Case(f"8.2-66 {n} watch as Table, too old", q(c, watch="true", resourceVersion=2, timeoutSeconds=2), TABLE, watch=True)
        yield Case(f"8.2-66 {n} watch as metadata, too old", q(c, watch="true", resourceVersion=2, timeoutSeconds=2), PARTIAL, watch=True)
    yield Case("8.1-42 pods list, Exact, compacted, protobuf", q(fixtures.pods("default"), resourceVersion=s.versions["pods"]["created"], resourceVersionMatch="Exact"), PB)
    yield Case("8.2-66 pods watch, too old, protobuf", q(fixtures.pods("default"), watch="true", resourceVersion=2, timeoutSeconds=2), PB, watch=True)
