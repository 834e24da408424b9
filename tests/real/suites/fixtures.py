"""The objects that the suites use: two resources (pods and the custom widgets) and a few more."""
import json

from . import wire

GROUP = "/apis/example.com/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}, "note": {"type": "string"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


def pods(namespace=None):
    return f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"


def widgets(namespace=None):
    return f"{GROUP}/namespaces/{namespace}/widgets" if namespace else f"{GROUP}/widgets"


def pod(name, labels=None, node="node-0", phase="Running", **meta):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}, **meta},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": phase}}


def widget(name, labels=None, color="red", size=1, **meta):
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "labels": labels or {}, **meta}, "spec": {"size": size, "color": color}}


class Refused(wire.WireError):
    """An unexpected status."""


class Api:
    """Writes and reads through one endpoint; an unexpected status raises an error."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def call(self, method, target, body=None, content_type="application/json", good=(200, 201)):
        headers = {"Content-Type": content_type} if body is not None else {}
        answer = wire.request(self.endpoint, method, target, headers, None if body is None else json.dumps(body).encode())
        if answer.status not in good:
            raise Refused(f"{method} {target}: {answer.status} {answer.text()[:500]}")
        return json.loads(answer.body) if answer.body.startswith(b"{") else None

    def create(self, collection, thing):
        return version(self.call("POST", collection, thing))

    def patch(self, target, change):
        return version(self.call("PATCH", target, change, MERGE))

    def label(self, target, **labels):
        return self.patch(target, {"metadata": {"labels": labels}})

    def delete(self, target):
        return self.call("DELETE", target)

    def get(self, target):
        return self.call("GET", target)

    def list_version(self, collection):
        return int(self.get(wire.query(collection, limit=1))["metadata"]["resourceVersion"])


def version(thing):
    return int(thing["metadata"]["resourceVersion"])


def install_crd(api):
    """The widgets, served."""
    api.create(CRDS, CRD)

    def established():
        conditions = api.get(f"{CRDS}/widgets.example.com").get("status", {}).get("conditions") or []  # null at first
        served = wire.request(api.endpoint, "GET", widgets("default"))
        return served.status == 200 and any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
    wire.poll("the custom resource", established, 60)


def with_widgets(server):
    """For Stack: the custom resource exists when the gateways start."""
    install_crd(Api(server))


def wait_served(endpoint, collection, at_least=None, accept="application/json", seconds=60):
    """Waits until a cached list is at least as new as a version."""
    target = wire.query(collection, resourceVersion=at_least or 0, resourceVersionMatch="NotOlderThan")
    wire.poll(f"{endpoint.name} {collection}", lambda: wire.request(endpoint, "GET", target, {"Accept": accept}).status == 200, seconds)
