"""The policy of deploy/inject, applied by k8s.io/apiserver's own admission to pods as ServiceAccount admission leaves them."""
import random
import re

import pytest
from .. import wire
from .cluster import GATEWAYS, InjectStack, LABEL, injected, untouched

ADDRESS = "10.96.0.77"
NAMES = ["kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"]
ENV = [{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"}, {"name": "KUBERNETES_SERVICE_PORT", "value": "443"}]


class PolicyStack(InjectStack):
    """No gateway: the API server alone injects. The ConfigMap is written as the publisher and users write it."""

    def start_gateways(self):
        self.apply()
        for name, value in (("in", "true"), ("bundled", "true"), ("out", None), ("kube-system", None)):
            self.namespace(name, value)
        self.settings(percent="100")

    def settings(self, **data):
        """Sets the ConfigMap's data, and waits until the server's admission has it, which reads it by an informer."""
        data = {key: value for key, value in {"ip": ADDRESS, **data}.items() if value is not None}
        self.api.call("PUT", f"{GATEWAYS}/configmaps/kube-fanout-inject", {"metadata": {"name": "kube-fanout-inject"}, "data": {**data, "now": str(random.random())}})
        percent = data.get("percent", "")
        if data.get("ip") == ADDRESS and "ca.crt" not in data and re.fullmatch("100|[1-9]?[0-9]", percent):
            wanted = {"metadata": {"labels": {LABEL: "true"}}}
            wire.poll(f"admission has {data}", lambda: injected(self.pod("in", wanted)) == percent, 60, 0.05)


@pytest.fixture(scope="module")
def stack(during):
    with during(PolicyStack()) as stack:
        yield stack


@pytest.fixture
def everything(stack):
    stack.settings(percent="100")
    return stack


@pytest.mark.parametrize("percent, least, most", [(0, 0, 0), (1, 1, 25), (10, 65, 140), (100, 1000, 1000)])
def test_of_a_thousand_pods_a_percentage_is_injected(stack, percent, least, most):
    """The bounds are 3.5 standard deviations from what is expected."""
    stack.settings(percent=str(percent))
    count = sum(injected(stack.pod("in")) is not None for _ in range(1000))
    print(f"{percent} %: {count} of 1000")
    assert least <= count <= most


def test_a_pod_reaches_the_api_by_the_address_under_the_names_of_the_api_server(everything):
    pod = everything.pod("in", {"spec": {"initContainers": [{"name": "i", "image": "x"}], "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["other"]}]}})
    spec = pod["spec"]
    assert injected(pod) == "100"
    assert spec["hostAliases"] == [{"ip": "192.0.2.1", "hostnames": ["other"]}, {"ip": ADDRESS, "hostnames": NAMES}]
    assert spec["containers"][0]["env"] == ENV
    assert spec["initContainers"][0]["env"] == ENV
    assert spec["volumes"][0]["projected"]["sources"][1]["configMap"]["name"] == "kube-root-ca.crt"


def test_what_a_pod_says_itself_holds(check, everything):
    own = [{"name": "KUBERNETES_SERVICE_HOST", "value": "mine"}, {"name": "OTHER", "value": "1"}]
    pod = everything.pod("in", {"spec": {"containers": [{"name": "a", "image": "x", "env": own}, {"name": "b", "image": "x", "env": own[1:]}]}})
    first, second = (container["env"] for container in pod["spec"]["containers"])
    check("an address of its own", first == own, first)
    check("other variables", sorted(second, key=str) == sorted(own[1:] + ENV, key=str), second)
    aliases = [{"ip": "192.0.2.1", "hostnames": ["kubernetes.default.svc"]}]
    check("a name of its own", injected(everything.pod("in", {"spec": {"hostAliases": aliases}})) is None)
    check("the label false", untouched(everything.pod("in", {"metadata": {"labels": {LABEL: "false"}}})))
    check("no token", untouched(everything.pod("in", volume="other")))
    check("a volume that only looks like the token's", untouched(everything.pod("in", volume="kube-api-access-aaaaa")))
    mount = [{"name": "hosts", "mountPath": "/etc/hosts"}]
    for kind in ("containers", "initContainers"):
        pod = everything.pod("in", {"spec": {kind: [{"name": "a", "image": "x", "volumeMounts": mount}]}})
        check(f"a hosts file of its own in {kind}", untouched(pod))
    noted = everything.pod("in", {"metadata": {"annotations": {"other": "1"}}})
    check("other annotations", noted["metadata"]["annotations"] == {"other": "1", "kube-fanout.io/injected": "100"}, noted["metadata"])
    everything.settings(percent="0")
    check("the label true", injected(everything.pod("in", {"metadata": {"labels": {LABEL: "true"}}})) == "0")


def test_other_namespaces_and_that_of_the_gateways_are_left_alone(check, everything):
    for namespace in ("out", "kube-system", "kube-fanout"):
        for labels in ({}, {LABEL: "true"}):
            check(f"{namespace} {labels}", untouched(everything.pod(namespace, {"metadata": {"labels": labels}})))


def test_without_valid_settings_pods_are_created_unchanged(check, stack):
    for data in ({"percent": "101"}, {"percent": "-1"}, {"percent": "1.5"}, {"percent": "ten"}, {"percent": ""}, {"percent": "010"}, {"percent": None}, {"percent": "100", "ip": None}, {"percent": "100", "ip": ""}, {"percent": "100", "ip": "10.96"}):
        stack.settings(**data)
        probe = lambda: untouched(stack.pod("in", {"metadata": {"labels": {LABEL: "true"}}}))
        wire.poll(f"pods are unchanged with {data}", probe, 30, 0.05)
        check(str(data), all(untouched(stack.pod("in")) for _ in range(10)))


def test_a_bundle_is_mounted_only_where_it_is(check, stack):
    stack.settings(percent="100", **{"ca.crt": "both", "namespaces": "bundled,other"})
    probe = lambda: stack.pod("bundled")["spec"]["volumes"][0]["projected"]["sources"]
    wire.poll("the bundle is mounted", lambda: probe()[1]["configMap"]["name"] == "kube-fanout-inject", 30, 0.05)
    check("the rest of the volume", probe()[0] == {"serviceAccountToken": {"path": "token", **{k: v for k, v in probe()[0]["serviceAccountToken"].items() if k != "path"}}})
    check("the key", probe()[1]["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}])
    check("a namespace without a copy", untouched(stack.pod("in")))
    stack.settings(percent="100", **{"ca.crt": "both"})
    wire.poll("no namespace has a copy", lambda: untouched(stack.pod("bundled")), 30, 0.05)
