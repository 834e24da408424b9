"""A gateway that may act as nodes by constrained impersonation (Kubernetes 1.36), and as nobody else."""
import os

import pytest

from . import fixtures, wire
from .trust import world
from .trust.identities import EKU_CLIENT, moment

USER = {"kind": "User", "name": "gateway-self-check"}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")

pytestmark = pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="nobody is impersonated")


def grant(api):
    """deploy/optional/node-impersonation.yaml in place of the right to impersonate anybody. The server has no node authorizer: nodes have a role."""
    roles, bindings = world.collection(None, "clusterroles"), world.collection(None, "clusterrolebindings")
    api.call("PUT", f"{roles}/gateway", {"metadata": {"name": "gateway"}, "rules": [world.rule(["list", "watch"], ["*"], ["*"])]})
    on = world.rule([f"impersonate-on:arbitrary-node:{verb}" for verb in VERBS], ["*"], ["*"])
    rules = [world.rule(["impersonate:arbitrary-node"], ["nodes"], ["authentication.k8s.io"]), on]
    api.create(roles, {"metadata": {"name": "nodes"}, "rules": rules})
    api.create(bindings, world.binding(None, "nodes", ("ClusterRole", "nodes"), [USER]))
    nodes = {"kind": "Group", "name": "system:nodes"}
    api.create(world.collection("a", "rolebindings"), world.binding("a", "of-nodes", ("ClusterRole", "reads"), [nodes]))


class NodeStack(world.TrustStack):
    def __init__(self):
        super().__init__("nodes", more=grant)
        self.modes = ("self-check",)

    def add_tokens(self):
        super().add_tokens()
        self.credentials._sign("node", "ca", ("/O=system:nodes/CN=system:node:node-0", EKU_CLIENT), (moment(-1), moment(30)))


@pytest.fixture(scope="module")
def stack(during):
    with during(NodeStack()) as stack:
        yield stack


def test_nodes_have_their_own_rights_and_others_with_certificates_none(check, stack):
    """The first target is answered from memory, after a review in the caller's name; the second one is forwarded."""
    endpoint = stack.under_test["self-check"]
    for name, namespace, expected in (("node", "a", 200), ("node", "b", 403), ("reader", "a", 403)):
        caller = endpoint.with_certificate(*stack.credentials.pair(name))
        for target in (fixtures.pods(namespace), f"{fixtures.pods(namespace)}/x1"):
            answer = wire.request(caller, "GET", target)
            check(f"{name} gets {target}: {answer.status}", answer.status == expected)
