"""Clients of four libraries in the environment of an injected pod: at gateways, back at the API server within a minute by `inject off`, and
at once when gateways are killed. kube-proxy is played (cluster.py)."""
import os
import sys
import time

import pytest

from .. import fixtures, tools, wire
from ..converge import clients, compare
from .cluster import GATEWAYS, PodStack, injected

pytestmark = pytest.mark.skipif(os.environ.get("GATEWAY") == "direct" or os.geteuid() != 0, reason="needs a gateway, and root for a hosts file of its own")
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Pods:
    """Programs, each in an injected pod."""

    def __init__(self, stack):
        self.stack, self.programs = stack, []
        go = ["--server=in-cluster", "--duration=3h", "--interactive", "--resource=configmaps", "--client=typed", "--ledger", "--content-hash=false", "--count=5"]
        client = lambda key: clients.Client(f"client-go {key}", "configmaps")
        crowd = lambda library: clients.crowd(library, stack.server)
        self.start("client-go", [tools.needed(tools.client_go(), "client-go"), *go], client)
        self.start("Python", [sys.executable, clients.PYTHON_PROGRAM, "in-cluster", "", ""], crowd("Python"))
        modules = tools.needed(tools.node_modules(), "the JavaScript client")
        self.start("JavaScript", ["node", clients.JAVASCRIPT_PROGRAM, modules, "in-cluster", "", ""], crowd("JavaScript"))
        rust = [tools.needed(tools.integration_tests(), "tests/it"), "--ignored", "--exact", "--nocapture", clients.RUST_TEST]
        self.start("kube-rs", rust, crowd("kube-rs"), {"KUBE_FANOUT_TEST_URL": "in-cluster"})

    def start(self, name, command, client_of, env=None):
        args, variables = self.stack.in_pod(*command)
        self.programs.append(clients.Clients(name, args, self.stack.state / f"{name}.log", client_of, {**variables, **(env or {})}))

    def answers(self):
        return {client: answer for program in self.programs for client, answer in program.ask("ids").items()}

    def converge(self, what):
        """Writes, and waits until every client has what the server has; returns the answers."""
        for i in range(5):
            self.stack.api.label(f"{CONFIG_MAPS}/o{i}", written=str(time.monotonic_ns()))
            self.stack.api.label(f"{fixtures.pods('default')}/o{i}", written=str(time.monotonic_ns()))
        seen = {}

        def settled():
            seen.clear()
            seen.update(self.answers())
            truths = {target: compare.Truth(self.stack.api.get(target)) for target in {client.target for client in seen}}
            wrong = {client.name: odd for client, answer in seen.items() if (odd := compare.verdict(answer, truths[client.target], client.metadata_only))}
            if wrong:
                errors = {client.name: answer.get("last_error") for client, answer in seen.items() if client.name in wrong}
                raise wire.WireError(f"{len(wrong)} of {len(seen)} clients, first {next(iter(wrong.items()))}; {errors}; connections {self.stack.proxy.open()}")
            return seen
        return wire.poll(f"{what}: all clients have what the server has", settled, 90, 0.3)

    def stop(self):
        for program in self.programs:
            program.kill()


@pytest.fixture(scope="module")
def stack(during):
    with during(PodStack()) as stack:
        wire.poll("the publisher has found everything", lambda: "up to date" in "".join(stack.inject("status")), 60, 1)
        yield stack


@pytest.fixture
def pods(stack):
    wire.poll("gateways take clients", lambda: len([one for one in stack.proxy.endpoints if one[2].get("ready")]) == 2, 60)
    stack.inject("percent", 100)
    wire.poll("pods are injected", lambda: injected(stack.pod("in")), 60, 0.5)
    pods = Pods(stack)
    yield pods
    pods.stop()


def test_the_publisher_copies_a_bundle_into_namespaces_with_the_label(check, stack):
    """With the rights of publisher.yaml and bundle.yaml alone, before any client is there."""
    settings = f"{GATEWAYS}/configmaps/kube-fanout-inject"
    stack.api.patch(settings, {"data": {"ca.crt": "both", "percent": "100"}})
    wire.poll("the namespace is named", lambda: stack.api.get(settings)["data"].get("namespaces") == "in", 60, 0.5)
    check("the copy", stack.api.get("/api/v1/namespaces/in/configmaps/kube-fanout-inject")["data"] == {"ca.crt": "both"})
    mounted = lambda: stack.pod("in")["spec"]["volumes"][0]["projected"]["sources"][1]["configMap"]["name"]
    wire.poll("pods mount it", lambda: mounted() == "kube-fanout-inject", 60, 0.5)
    stack.api.patch(settings, {"data": {"ca.crt": None, "percent": "0"}})
    wire.poll("no namespace is named", lambda: "namespaces" not in stack.api.get(settings)["data"], 60, 0.5)


def lists(answers):
    return {client.name: answer["lists"] for client, answer in answers.items()}


def steady(check, before, after):
    """No client has listed again, or went back."""
    for name, count in lists(after).items():
        check(f"{name} lists no more", count == lists(before)[name], f"{lists(before)[name]} and then {count}")
    for client, answer in after.items():
        check(f"{client.name} never went back", not answer.get("back"), answer.get("back"))


def test_off_brings_all_clients_to_the_api_server_within_a_minute(check, stack, pods):
    before = pods.converge("at gateways")
    opened = stack.proxy.open()
    gateways = {port for port, _ in stack.running.values()}
    check("all connections lead to gateways", opened and opened.keys() <= gateways, opened)
    print("connections", opened)
    began = time.monotonic()
    print(stack.inject("off"))
    wire.poll("no connection leads to a gateway", lambda: stack.at_gateways() == 0, 60)
    print(f"the last connection was gone after {time.monotonic() - began:.1f} s")
    after = pods.converge("at the API server")
    check("all connections lead to the API server", stack.proxy.open().keys() == {stack.api_port}, stack.proxy.open())
    steady(check, before, after)

    stack.start_workload()
    print(stack.inject("on"))


def test_killed_gateways_leave_no_client_behind(check, stack, pods):
    before = pods.converge("at gateways again")
    check("connections lead to gateways", stack.at_gateways() > 0, stack.proxy.open())
    for name in list(stack.running)[-2:]:
        process = stack.gateways[name]
        process.told = True
        process.kill()
    after = pods.converge("without gateways")
    check("all connections lead to the API server", stack.proxy.open().keys() == {stack.api_port}, stack.proxy.open())
    print("lists before and after", sum(lists(before).values()), sum(lists(after).values()))
