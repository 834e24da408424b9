"""The matrix: which caller makes which request, in which form."""
import json
from dataclasses import dataclass, field

from .. import wire
from ..comparison import Case
from .identities import USERS, Who
from .world import CACHED, KINDS, NAMESPACES

q = wire.query
REVIEWS = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
OUT_OF_MEMORY = {"resourceVersion": 0}  # a list that a cache may answer
FORWARDED = {"limit": 1}


@dataclass
class TrustCase(Case):
    who: Who = field(default_factory=lambda: Who("nobody at all"))
    created: bool = False  # the response has a new object's uid and time


def collection(kind, namespace):
    inside, everywhere = KINDS[kind]
    return inside(namespace) if namespace and inside else everywhere


def a_list(who, kind, namespace, what="", **params):
    name = f"{who.name}: list {kind} {'in ' + namespace if namespace else 'everywhere'}{what}"
    return TrustCase(name, q(collection(kind, namespace), **params), who.headers, cached="limit" not in params, who=who, every_header=True)


def a_watch(who, kind, namespace, what="", headers=(), **params):
    name = f"{who.name}: watch {kind} {'in ' + namespace if namespace else 'everywhere'}{what}"
    return TrustCase(name, q(collection(kind, namespace), watch="true", timeoutSeconds=1, resourceVersion=0, **params), [*who.headers, *headers], watch=True, who=who, every_header=True)


def a_get(who, kind, namespace, name):
    return TrustCase(f"{who.name}: get {kind} {name} {'in ' + namespace if namespace else ''}", f"{collection(kind, namespace)}/{name}", who.headers, who=who, every_header=True)


def a_path(who, path):
    return TrustCase(f"{who.name}: GET {path}", path, who.headers, who=who, every_header=True)


def a_post(who, what, path, thing):
    headers = [*who.headers, ("Content-Type", "application/json")]
    return TrustCase(f"{who.name}: {what}", path, headers, "POST", json.dumps(thing).encode(), who=who, created=True, every_header=True)


def whoami(who):
    return a_post(who, "SelfSubjectReview", f"{REVIEWS[0]}/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})


def a_create(who, kind, namespace):
    return a_post(who, f"create {kind} in {namespace}", q(collection(kind, namespace), dryRun="All"), {"metadata": {"name": "new"}})


def short(who):
    """A few requests of each sort: for each credential."""
    yield a_list(who, "pods", "a", **OUT_OF_MEMORY)
    yield a_list(who, "widgets", None, ", consistent")
    yield a_list(who, "pods", "b", ", a page", **FORWARDED)
    yield a_watch(who, "pods", "a")
    yield a_get(who, "pods", "a", "x1")
    yield a_list(who, "nopes.nope.io", "a")
    yield whoami(who)


def long(who):
    """Every kind, scope and selection: for each user."""
    for kind in KINDS:
        for namespace in (*NAMESPACES, None) if KINDS[kind][0] else (None,):
            yield a_list(who, kind, namespace, **OUT_OF_MEMORY)
            if kind in CACHED or namespace == "a" or not KINDS[kind][0]:
                yield a_watch(who, kind, namespace)
    for kind in ("pods", "widgets", "secrets"):
        for namespace in ("a", "b", None):
            yield a_list(who, kind, namespace, ", one name", fieldSelector="metadata.name=x1", **OUT_OF_MEMORY)
        for what, params in {
                "another name": {"fieldSelector": "metadata.name=x2"}, "not a name": {"fieldSelector": "metadata.name!=x1"}, "a name and a label": {"fieldSelector": "metadata.name=x1", "labelSelector": "app=demo"},
                "a label": {"labelSelector": "app=demo"}, "a name and a namespace": {"fieldSelector": "metadata.name=x1,metadata.namespace=a"}, "another namespace": {"fieldSelector": "metadata.namespace=b"},
                "two names": {"fieldSelector": "metadata.name=x1,metadata.name=x2"}, "a name twice": {"fieldSelector": "metadata.name=x1,metadata.name=x1"}, "a bad name": {"fieldSelector": "metadata.name=X_1"},
                "a bad selector": {"fieldSelector": "metadata.name"}, "bad labels": {"labelSelector": "==="}, "an unknown field": {"fieldSelector": "spec.nope=1"}, "an empty name": {"fieldSelector": "metadata.name="}}.items():
            yield a_list(who, kind, "a", f", {what}", **params, **OUT_OF_MEMORY)
            if kind != "secrets" and "bad" not in what:
                yield a_watch(who, kind, "a", f", {what}", **params)
        yield a_watch(who, kind, "a", ", one name", fieldSelector="metadata.name=x1")
        yield a_watch(who, kind, "a", ", watch-list", sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true")
        yield a_watch(who, kind, None, ", Table", [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")])
        yield a_list(who, kind, "a", ", a page of one name", fieldSelector="metadata.name=x1", limit=1)
    yield a_list(who, "nodes", None, ", one name", fieldSelector="metadata.name=node-0", **OUT_OF_MEMORY)
    yield a_watch(who, "nodes", None, ", one name", fieldSelector="metadata.name=node-0")
    for kind, namespace, name in (("pods", "a", "x1"), ("pods", "a", "x2"), ("pods", "b", "x1"), ("secrets", "a", "x1"), ("widgets", "a", "nope"), ("nodes", None, "node-0"), ("nopes", "a", "x1")):
        yield a_get(who, kind, namespace, name)
    yield a_get(who, "pods", "a", "x1/log")
    for kind in ("configmaps", "secrets"):
        yield a_create(who, kind, "a")
    for path in ("/", "/version", "/healthz", "/api", "/apis", "/api/v1", "/apis/example.com/v1", "/apis/nope.io/v1", "/openapi/v2", "/metrics", "/nope", "/api/v1/watch/namespaces/a/pods?timeoutSeconds=1&resourceVersion=0&limit=1"):
        if path not in ("/metrics", "/openapi/v2", "/") or who.name in ("token nobody", "token reader"):
            yield a_path(who, path)


def formats(who):
    """Refusals in the requested form."""
    for accept in ("application/yaml", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/cbor", "text/html", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"):
        for kind, one in (("pods", a_list(who, "pods", "b", f", {accept}", **OUT_OF_MEMORY)), ("pods", a_watch(who, "pods", "b", f", {accept}")), ("widgets", a_list(who, "widgets", "b", f", {accept}", **OUT_OF_MEMORY))):
            one.headers = [*one.headers, ("Accept", accept)]
            yield one
    for method in ("HEAD", "DELETE", "PUT", "PATCH", "OPTIONS"):
        one = a_list(who, "pods", "b", f", by {method}")
        one.method, one.cached = method, False
        if method not in ("HEAD", "DELETE", "OPTIONS"):
            one.body = b"{}"
        if method == "DELETE":
            one.target = q(collection("secrets", "b"), dryRun="All", fieldSelector="metadata.name=nope")
        yield one


# Impersonation headers in addition to the credential, by name.
IMPERSONATIONS = {
    "as reader": [("Impersonate-User", "reader")], "as a-reader": [("Impersonate-User", "a-reader")], "as nobody": [("Impersonate-User", "nobody")], "as root": [("Impersonate-User", "root")],
    "as reader of team:blue": [("Impersonate-User", "reader"), ("Impersonate-Group", "team:blue")], "as nobody of team:blue": [("Impersonate-User", "nobody"), ("Impersonate-Group", "team:blue")],
    "as nobody of two groups": [("Impersonate-User", "nobody"), ("Impersonate-Group", "team:blue"), ("Impersonate-Group", "system:authenticated")],
    "as nobody of masters": [("Impersonate-User", "nobody"), ("Impersonate-Group", "system:masters")], "as nobody of an empty group": [("Impersonate-User", "nobody"), ("Impersonate-Group", "")],
    "as reader with uid 7": [("Impersonate-User", "reader"), ("Impersonate-Uid", "7")], "as reader with uid 8": [("Impersonate-User", "reader"), ("Impersonate-Uid", "8")],
    "as reader with a scope": [("Impersonate-User", "reader"), ("Impersonate-Extra-Scopes", "view")], "as reader with another scope": [("Impersonate-User", "reader"), ("Impersonate-Extra-Scopes", "edit")],
    "as reader with two scopes": [("Impersonate-User", "reader"), ("Impersonate-Extra-Scopes", "view"), ("Impersonate-Extra-Scopes", "edit")],
    "as reader with an encoded key": [("Impersonate-User", "reader"), ("Impersonate-Extra-Acme.com%2fproject", "p")], "as reader with a badly encoded key": [("Impersonate-User", "reader"), ("Impersonate-Extra-Acme%zz", "p")],
    "as reader with a reserved key": [("Impersonate-User", "reader"), ("Impersonate-Extra-Authentication.kubernetes.io%2fcredential-id", "x")],
    "as reader with a node's key": [("Impersonate-User", "reader"), ("Impersonate-Extra-Authentication.kubernetes.io%2fnode-name", "node-0")],
    "as reader with an empty key": [("Impersonate-User", "reader"), ("Impersonate-Extra-", "x")],
    "a group without user": [("Impersonate-Group", "team:blue")], "a uid without user": [("Impersonate-Uid", "7")], "extra without user": [("Impersonate-Extra-Scopes", "view")],
    "an empty user": [("Impersonate-User", "")], "an empty user with a group": [("Impersonate-User", ""), ("Impersonate-Group", "team:blue")], "an empty group alone": [("Impersonate-Group", "")],
    "two users": [("Impersonate-User", "reader"), ("Impersonate-User", "nobody")], "in lower case": [("impersonate-user", "reader")],
    "as anonymous": [("Impersonate-User", "system:anonymous")], "as anonymous, authenticated": [("Impersonate-User", "system:anonymous"), ("Impersonate-Group", "system:authenticated")],
    "as unauthenticated reader": [("Impersonate-User", "reader"), ("Impersonate-Group", "system:unauthenticated")],
    "as robot": [("Impersonate-User", "system:serviceaccount:a:robot")], "as another robot": [("Impersonate-User", "system:serviceaccount:b:robot")],
    "as a robot of a group": [("Impersonate-User", "system:serviceaccount:a:robot"), ("Impersonate-Group", "team:blue")], "as half a robot": [("Impersonate-User", "system:serviceaccount:a")],
    "as a node": [("Impersonate-User", "system:node:node-0")], "as reader, and Connection names it": [("Impersonate-User", "reader"), ("Connection", "Impersonate-User")],
    "as reader, and Connection names the group": [("Impersonate-User", "nobody"), ("Impersonate-Group", "team:blue"), ("Connection", "Impersonate-Group")],
}


def impersonations(credentials):
    people = [credentials.user("actor"), credentials.user("root"), credentials.user("nobody"), credentials.user("narrow-actor"), Who("certificate actor", [], "actor"), Who("certificate masters", [], "masters"),
              Who("certificate nobody", [], "nobody"), Who("proxy actor", [("X-Remote-User", "actor")], "proxy"), Who("proxy masters", [("X-Remote-User", "someone"), ("X-Remote-Group", "system:masters")], "proxy")]
    for person in people:
        for what, headers in IMPERSONATIONS.items():
            who = Who(f"{person.name} {what}", [*person.headers, *headers], person.certificate)
            yield a_list(who, "pods", "a", **OUT_OF_MEMORY)
            yield whoami(who)
            if person.name in ("token actor", "certificate actor"):
                yield a_list(who, "widgets", "b", ", consistent")
                yield a_watch(who, "pods", "a")
                yield a_get(who, "pods", "a", "x1")
                yield a_list(who, "secrets", "a", ", a page", **FORWARDED)


def sockets(credentials):
    for what, (protocols, headers) in credentials.sockets():
        who = Who(f"WebSocket, {what}", headers)
        yield a_watch(who, "pods", "a", "", [*wire.WEBSOCKET.items(), *([("Sec-WebSocket-Protocol", protocols)] if protocols else [])])
    # not a handshake: the subprotocol is not a credential
    who = Who("a subprotocol without WebSocket", [])
    protocols = next(p for what, (p, _) in credentials.sockets() if what == "token reader")
    yield a_watch(who, "pods", "a", "", [("Sec-WebSocket-Protocol", protocols)])


def reviews(credentials):
    """The server's answers about permissions are forwarded."""
    for name in ("root", "nobody", "reader", "a-reader"):
        who = credentials.user(name)
        for on in ({"verb": "list", "resource": "pods"}, {"verb": "list", "resource": "pods", "namespace": "a"}, {"verb": "list", "resource": "secrets", "namespace": "a"}, {"verb": "get", "resource": "pods", "namespace": "a", "name": "x1"}):
            yield a_post(who, f"SelfSubjectAccessReview {on}", f"{REVIEWS[1]}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": on}})
        yield a_post(who, "SubjectAccessReview", f"{REVIEWS[1]}/subjectaccessreviews", {"spec": {"user": "reader", "resourceAttributes": {"verb": "list", "resource": "pods"}}})
        yield a_post(who, "TokenReview", f"{REVIEWS[0]}/tokenreviews", {"spec": {"token": credentials.tokens["reader"]}})


def matrix(credentials):
    for who in credentials.everyone():
        yield from short(who)
    for name in USERS:
        if name not in ("elsewhere", "everywhere"):
            yield from long(credentials.user(name))
    for who in (credentials.user("reader"), credentials.user("nobody"), Who("no credential"), Who("an unknown token", [("Authorization", "Bearer nope")])):
        yield from formats(who)
    yield from sockets(credentials)
    yield from impersonations(credentials)
    yield from reviews(credentials)


def anonymous(credentials):
    """With anonymous requests allowed: callers without a credential, and with a wrong one."""
    who = Who("no credential")
    yield from short(who)
    yield from formats(who)
    for path in ("/version", "/healthz", "/api", "/apis", "/nope", "/metrics"):
        yield a_path(who, path)
    for other in credentials.everyone():
        if not other.name.startswith("token ") or other.name == "token elsewhere":
            yield from list(short(other))[:4]
    yield from sockets(credentials)
    for what in ("as reader", "a group without user", "as anonymous"):
        yield from short(Who(f"no credential {what}", IMPERSONATIONS[what]))
