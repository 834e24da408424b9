"""The state that random requests read: some hundred objects, which do not change while responses are compared."""
from dataclasses import dataclass, field

from .. import fixtures, wire

GZIP_FROM = 128 << 10  # lists above this size are compressed
REGION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "regions.example.com"},
    "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "regions", "singular": "region", "kind": "Region", "listKind": "RegionList"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
NAMESPACES = ("default", "a", "a-b", "b", "empty")


@dataclass
class Resource:
    """`root` is the path before the plural; `fields` are selectors that the server knows for it."""
    root: str
    plural: str
    names: list
    fields: list
    namespaced: bool = True
    namespaces: tuple = NAMESPACES
    custom: bool = False
    protobuf: bool = True

    def path(self, namespace=None, watch=""):
        inside = f"namespaces/{namespace}/" if namespace is not None and self.namespaced else ""
        return f"{self.root}/{watch}{inside}{self.plural}"


def resources():
    core, apps = "/api/v1", "/apis/apps/v1"
    pods = ["spec.nodeName=node-1", "spec.nodeName!=node-1", "spec.nodeName=", "status.phase=Running", "status.phase!=Running", "spec.restartPolicy=Always", "spec.hostNetwork=false",
            "status.podIP=", "spec.serviceAccountName=", "spec.schedulerName=default-scheduler"]
    return [
        Resource(core, "pods", ["p1", "p5", "p19", "x1"], pods),
        Resource(core, "configmaps", ["c1", "c9"], ["metadata.name=c1"], namespaces=(*NAMESPACES, "big", "edge-at", "edge-above")),
        Resource(core, "secrets", ["s1"], ["type=Opaque", "type!=Opaque"]),
        Resource(core, "services", ["v1"], ["spec.type=ClusterIP", "spec.clusterIP="]),
        Resource(core, "nodes", ["node-1", "node-2"], ["spec.unschedulable=false", "spec.unschedulable=true"], False),
        Resource(core, "namespaces", ["default", "a"], ["status.phase=Active", "name=a"], False),
        Resource(apps, "deployments", ["d1"], ["metadata.namespace=a"]),
        Resource("/apis/coordination.k8s.io/v1", "leases", ["l1"], ["metadata.name=l1"]),
        Resource(core, "events", ["e1"], ["involvedObject.name=p1", "reason=Test", "type!=Normal", "source="]),
        Resource(fixtures.GROUP, "widgets", ["w1", "w5", "x1"], ["spec.color=blue", "spec.color!=blue", "spec.color="], custom=True, protobuf=False),
        Resource(fixtures.GROUP, "regions", ["r1"], ["metadata.name=r1"], False, custom=True, protobuf=False),
    ]


@dataclass
class World:
    top: int = 0  # the newest version
    past: list = field(default_factory=list)  # versions whose history every cache has
    old: int = 2  # before any object
    resources: list = field(default_factory=resources)

    def collections(self):
        return [r.path() for r in self.resources]


def prepare(server):
    """For Stack: the custom resources exist when the gateways start."""
    api = fixtures.Api(server)
    fixtures.install_crd(api)
    api.create(fixtures.CRDS, REGION)
    wire.poll("the regions", lambda: wire.request(server, "GET", f"{fixtures.GROUP}/regions").status == 200, 60)


def warm(world, endpoint, at_least=None):
    for resource in world.resources:
        fixtures.wait_served(endpoint, resource.path(), at_least)
        if resource.protobuf:
            fixtures.wait_served(endpoint, resource.path(), at_least, accept=wire.PROTOBUF)


def labels(i):
    return {"app": ("demo", "other", "")[i % 3], "rank": str(i) if i % 7 else "none", **({"example.com/tier": "front"} if i % 2 else {})} if i % 5 else {}


def fill(world, api):
    """Creates, changes and deletes objects, and remembers versions in between."""
    def made(collection, thing):
        world.past.append(api.create(collection, thing))
    config = lambda name, i, data: {"metadata": {"name": name, "labels": labels(i)}, "data": {"k": data}}
    core = "/api/v1/namespaces"
    for name in NAMESPACES:
        made(core, {"metadata": {"name": name, "labels": labels(len(name))}})
    for i in range(1, 9):
        made("/api/v1/nodes", {"metadata": {"name": f"node-{i}", "labels": labels(i)}, "spec": {"unschedulable": i % 3 == 0}})
        made(f"{fixtures.GROUP}/regions", {"apiVersion": "example.com/v1", "kind": "Region", "metadata": {"name": f"r{i}", "labels": labels(i)}, "spec": {"weight": i}})
    for i in range(1, 31):
        made(fixtures.pods("default"), fixtures.pod(f"p{i}", labels(i), f"node-{i % 3}", ("Running", "Pending")[i % 2]))
        made(fixtures.widgets("default"), fixtures.widget(f"w{i}", labels(i), ("red", "blue", "")[i % 3], i, annotations={"text": "<b>&\u2028ä\"\\"}))
        made(f"{core}/default/configmaps", config(f"c{i}", i, "v" * i * 40))
    for namespace in ("a", "a-b", "b"):
        for i in range(1, 6):
            made(fixtures.pods(namespace), fixtures.pod(f"x{i}", labels(i), f"node-{i % 3}"))
            made(fixtures.widgets(namespace), fixtures.widget(f"x{i}", labels(i), "blue", i))
            made(f"{core}/{namespace}/secrets", {"metadata": {"name": f"s{i}", "labels": labels(i)}, "type": ("Opaque", "example.com/x")[i % 2], "data": {"k": "dg=="}})
            made(f"{core}/{namespace}/services", {"metadata": {"name": f"v{i}", "labels": labels(i)}, "spec": {"ports": [{"port": 80}]}})
            made(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {"metadata": {"name": f"l{i}"}, "spec": {"holderIdentity": "me"}})
            made(f"{core}/{namespace}/events", {"metadata": {"name": f"e{i}"}, "involvedObject": {"kind": "Pod", "name": f"p{i}", "namespace": namespace}, "reason": "Test", "type": ("Normal", "Warning")[i % 2]})
            selector = {"matchLabels": {"a": "b"}}
            made(f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": f"d{i}", "labels": labels(i)}, "spec": {"selector": selector, "template": {"metadata": {"labels": {"a": "b"}}}}})
    for i in range(8):
        made(f"{core}/big/configmaps", config(f"b{i}", i, f"{i}" * 40000))
    for i in range(2, 31, 3):  # changed into and out of selectors, and deleted
        world.past.append(api.label(f"{fixtures.pods('default')}/p{i}", app="demo"))
        world.past.append(api.label(f"{fixtures.widgets('default')}/w{i}", app="other"))
    for i in (20, 21, 22):
        api.delete(f"{fixtures.pods('default')}/p{i}")
        api.delete(f"{fixtures.widgets('default')}/w{i}")
    edges(api, core, config)
    world.top = api.list_version("/api/v1/nodes")


def edges(api, core, config):
    """Lists of exactly 128 KiB and of one byte more."""
    for namespace, size in (("edge-at", GZIP_FROM), ("edge-above", GZIP_FROM + 1)):
        path = f"{core}/{namespace}/configmaps"
        listed = lambda: len(wire.request(api.endpoint, "GET", path).body)
        api.create(path, config("c", 0, "x" * 1000))
        short = size - listed()
        api.delete(f"{path}/c")
        api.create(path, config("c", 0, "x" * (1000 + short)))
        if listed() != size:
            raise wire.WireError(f"{namespace}: a list of {listed()} bytes instead of {size}")


def rests(world, api):
    return api.list_version("/api/v1/nodes") == world.top
