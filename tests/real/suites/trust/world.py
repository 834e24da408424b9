"""The objects, the users that may see them, and one gateway for each mode."""
from .. import fixtures, wire
from ..stack import Stack, free_ports
from .identities import Credentials

MODES = ("review", "self-check", "rbac")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACES = ("a", "b")
READ = ["get", "list", "watch"]
KINDS = {  # resource: (path of a collection in a namespace or None, path of it everywhere)
    "pods": (fixtures.pods, fixtures.pods()), "configmaps": (lambda ns: f"/api/v1/namespaces/{ns}/configmaps", "/api/v1/configmaps"),
    "secrets": (lambda ns: f"/api/v1/namespaces/{ns}/secrets", "/api/v1/secrets"), "widgets": (fixtures.widgets, fixtures.widgets()),
    "nodes": (None, "/api/v1/nodes"), "clusterroles": (None, f"{RBAC}/clusterroles"), "nopes": (lambda ns: f"/api/v1/namespaces/{ns}/nopes", "/api/v1/nopes"),
    "nopes.nope.io": (lambda ns: f"/apis/nope.io/v1/namespaces/{ns}/nopes", "/apis/nope.io/v1/nopes"),
}
# roles have no wildcard for keys; the first is the one that the server itself adds for certificates
EXTRAS = ("authentication.kubernetes.io/credential-id", "scopes", "acme.com/project", "acme%zz")
CACHED = ("pods", "configmaps", "widgets", "nodes")


def rule(verbs, resources, groups=("", "example.com"), names=()):
    return {"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), **({"resourceNames": list(names)} if names else {})}


def actor(user, group, names):
    return rule([user], [group], ["", "authentication.k8s.io"], names)


CLUSTER_ROLES = {
    "reads": [rule(READ, ["pods", "configmaps", "widgets", "nodes"])],
    "lists": [rule(["list"], ["pods", "widgets"])],
    "watches": [rule(["watch"], ["pods", "widgets"])],
    "writes": [rule(["create", "update", "patch", "delete"], ["configmaps", "pods"])],
    "one-name": [rule(READ, ["pods", "widgets", "configmaps"], names=["x1"])],
    "one-node": [rule(READ, ["nodes"], names=["node-0"])],
    "acts": [actor("impersonate", "users", ["reader", "a-reader", "nobody", "system:anonymous"]), actor("impersonate", "groups", ["team:blue", "system:authenticated", "system:unauthenticated"]),
             actor("impersonate", "uids", ["7"]), actor("impersonate", "userextras/scopes", ["view"]), actor("impersonate", "userextras/acme.com/project", ["p"])],
    "acts-narrowly": [actor("impersonate:user-info", "users", ["reader", "nobody"]), rule(["impersonate-on:user-info:list"], ["pods"])],
    # the minimal rights of a gateway in each mode
    "gateway": [rule(["list", "watch"], ["*"], ["*"]), rule(["impersonate"], ["users", "groups", "serviceaccounts"], [""]), rule(["impersonate"], ["uids", *(f"userextras/{key}" for key in EXTRAS)], ["authentication.k8s.io"])],
    "gateway-review": [rule(["create"], ["tokenreviews"], ["authentication.k8s.io"]), rule(["create"], ["subjectaccessreviews"], ["authorization.k8s.io"])],
    "gateway-rbac": [rule(["create"], ["tokenreviews"], ["authentication.k8s.io"])],
}
BINDINGS = [  # namespace or None, role, kind and name of the subject
    (None, "reads", "User", "reader"), (None, "lists", "User", "lister"), (None, "watches", "User", "watcher"), (None, "writes", "User", "writer"), (None, "acts", "User", "actor"),
    (None, "acts-narrowly", "User", "narrow-actor"), (None, "reads", "User", "odd ünd <b>&\"'"), (None, "one-node", "User", "a-one-name"), (None, "missing", "User", "broken"),
    ("a", "reads", "User", "a-reader"), ("a", "one-name", "User", "a-one-name"), ("b", "reads", "Group", "team:blue"), ("a", "reads", "ServiceAccount", "robot"), ("b", "missing", "User", "broken"),
    ("b", "missing-too", "User", "broken"), ("a", "acts-on-robot", "User", "actor"),
    (None, "gateway", "User", "gateway-review"), (None, "gateway-review", "User", "gateway-review"), (None, "gateway", "User", "gateway-self-check"),
    (None, "gateway", "User", "gateway-rbac"), (None, "gateway-rbac", "User", "gateway-rbac"),
]


def binding(namespace, name, role, subjects):
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    group = "rbac.authorization.k8s.io"
    of_group = lambda s: {"apiGroup": group} if s["kind"] != "ServiceAccount" else {}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": role[0], "name": role[1]}, "subjects": [{**s, **of_group(s)} for s in subjects]}


def collection(namespace, plural):
    return f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"


def fill(server):
    """Creates objects, roles and bindings before the gateways start."""
    api = fixtures.Api(server)
    fixtures.install_crd(api)
    for namespace in NAMESPACES:
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for i in (1, 2):
            labels = {"app": "demo"} if i == 1 else {}
            api.create(fixtures.pods(namespace), fixtures.pod(f"x{i}", labels, f"node-{i % 2}"))
            api.create(fixtures.widgets(namespace), fixtures.widget(f"x{i}", labels, "blue" if i % 2 else "red", i))
            api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": f"x{i}", "labels": labels}, "data": {"k": namespace}})
            api.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": f"x{i}", "labels": labels}, "type": "Opaque", "data": {"k": "dg=="}})
    for name in ("node-0", "node-1"):
        api.create("/api/v1/nodes", {"metadata": {"name": name}})
    for name, rules in CLUSTER_ROLES.items():
        api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    api.create(f"{RBAC}/namespaces/a/roles", {"metadata": {"name": "acts-on-robot"}, "rules": [actor("impersonate", "serviceaccounts", ["robot"])]})
    for i, (namespace, role, kind, name) in enumerate(BINDINGS):
        of = ("Role" if role == "acts-on-robot" else "ClusterRole", role)
        subject = {"kind": kind, "name": name, **({"namespace": "a"} if kind == "ServiceAccount" else {})}
        api.create(collection(namespace, "rolebindings" if namespace else "clusterrolebindings"), binding(namespace, f"trust-{i}", of, [subject]))


def mark(api):
    """Writes the last object of each kind: a cache that has these has everything."""
    for namespace, role in ((None, "ClusterRole"), ("a", "Role")):
        api.create(collection(namespace, "roles" if namespace else "clusterroles"), {"metadata": {"name": "the-last"}, "rules": [rule(["get"], ["marks"])]})
        api.create(collection(namespace, "rolebindings" if namespace else "clusterrolebindings"), binding(namespace, "the-last", (role, "the-last"), [{"kind": "User", "name": f"marker-{namespace}"}]))


def is_marked(api, namespace):
    spec = {"user": f"marker-{namespace or None}", "resourceAttributes": {"verb": "get", "resource": "marks", "namespace": namespace}}
    return api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})["status"]["allowed"]


class TrustStack(Stack):
    """In addition to the server: `under_test`, one TLS endpoint for each mode."""

    def __init__(self, name, anonymous=False, more=lambda api: None):
        """MORE writes further objects before the gateways start."""
        super().__init__(name, self.prepare, audited=True, server_flags=f"--authorization-mode=RBAC {'--anonymous-auth' if anonymous else ''}")
        self.anonymous, self.more = anonymous, more
        self.modes = ("direct",) if self.direct else MODES
        self.under_test = {}

    def prepare(self, server):
        self.credentials = Credentials(self.pki)
        self.add_tokens()
        fill(server)
        api = fixtures.Api(server)
        self.more(api)
        self.bare = server.with_token(None)
        mark(api)
        wire.poll("the authorizer's roles", lambda: all(is_marked(api, namespace) for namespace in ("", "a")), 30)

    def add_tokens(self):
        for mode in MODES:
            self.credentials.add_token(f"gateway-{mode}", f"gateway-{mode}")

    def gateway_mode(self, mode):
        """The gateway's value of --auth."""
        return mode

    def start_gateways(self):
        for mode in self.modes:
            self.under_test[mode] = self.as_gateway(self.server.with_token(None) if mode == "direct" else self._start_one(mode, *free_ports(2)))

    def _start_one(self, mode, port, admin):
        name = f"gateway-{mode}"
        config = self.kubeconfig(name, f"https://127.0.0.1:{self.api_port}", {"token": self.credentials.tokens[name]})
        flags = ["--kubeconfig", config, "--auth", self.gateway_mode(mode), "--client-ca-file", self.pki / "ca.crt",
                 "--requestheader-client-ca-file", self.pki / "proxy-ca.crt", "--requestheader-allowed-names", "front-proxy", "--requestheader-uid-headers", "X-Remote-Uid",
                 *(["--anonymous"] if self.anonymous else [])]
        return self.launch(mode, port, admin, flags, self.credentials.tokens["reader"])

    def tick(self):
        """A write. While nothing at all is written, an API server sends no bookmark, and the gateway in RBAC mode counts as without contact."""
        fixtures.Api(self.server).create("/apis/coordination.k8s.io/v1/namespaces/ticks/leases", {"metadata": {"generateName": "tick-"}})

    def as_who(self, endpoint, who):
        """The endpoint with WHO's certificate; headers are sent with each request."""
        return endpoint.with_certificate(*self.credentials.pair(who.certificate)) if who.certificate else endpoint.with_token(None)
