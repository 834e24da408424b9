"""A fleet changes sides: client-go informers before one gateway, whose serving rules go back and forth between memory and upstream, for
some and at once, while a writer goes on. No informer lists again, and each is told of every write once and in order.

TOGGLES_CLIENTS [2000] and TOGGLES [100] are the sizes."""
import http.client
import itertools
import os
import resource
import threading
import time

import pytest

from . import fixtures, programs, tools, wire
from .stack import Stack

CLIENTS, TOGGLES = int(os.environ.get("TOGGLES_CLIENTS") or 2000), int(os.environ.get("TOGGLES") or 100)
PODS = 10
SWITCH_OVER = 5  # seconds
SOME = sum(str(i).startswith("2") for i in range(CLIENTS))
RULES = {  # name: (rules, the number of clients that memory answers)
    "passthrough": ("mode: passthrough", 0), "some": ("rules: [{agents: ['informer/2*']}, {percent: 0}]", SOME), "memory": ("mode: rules", CLIENTS),
}
STARTS = (("kube_fanout_request_total", {"verb": "WATCH"}), ("kube_fanout_passthrough_requests_total", {}))
MEMORY, FORWARDED = "kube_fanout_longrunning_requests", "kube_fanout_passthrough_requests_active"

pytestmark = pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="there is one side only")


class OneGateway(Stack):
    gateway_flags = ()

    def start_gateways(self):
        self.tls = self.as_gateway(self._start_gateway("tls"))


@pytest.fixture(scope="module")
def stack(during):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the processes inherit it
    with during(OneGateway("toggles")) as stack:
        yield stack


class Writes(threading.Thread):
    """Changes one pod after the other, two a second, until it is ended."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.ending, self.count, self.error = api, threading.Event(), 0, None

    def run(self):
        while not self.ending.wait(0.5):
            try:
                self.api.label(f"{fixtures.pods('default')}/p{self.count % PODS}", n=str(self.count))
                self.count += 1
            except Exception as e:  # noqa: BLE001 - the test tells it
                self.error = e
                return

    def end(self):
        self.ending.set()
        self.join(30)
        return self.count


def put(stack, rules):
    """The time until the gateway has taken the rules does not depend on its clients."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.gateway_ports["tls"][1], timeout=30)
    connection.request("PUT", "/serving?for=1h", f"{{switchOver: {SWITCH_OVER}s, {rules}}}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()


def watches(stack):
    """(from memory, forwarded)"""
    return stack.gateway_metric("tls", MEMORY), stack.gateway_metric("tls", FORWARDED)


def divided(stack, from_memory):
    """Waits until memory has so many watches and upstream the others; returns the highest number of starts in a second."""
    starts = lambda: sum(stack.gateway_metric("tls", name, **labels) for name, labels in STARTS)
    end, count, at, fastest, seen = time.monotonic() + 240, starts(), time.monotonic(), 0, None
    while time.monotonic() < end:
        time.sleep(1)
        now, later = time.monotonic(), starts()
        fastest, count, at = max(fastest, (later - count) / (now - at)), later, now
        seen = watches(stack)
        if seen == (from_memory, CLIENTS - from_memory):
            return fastest
    raise wire.WireError(f"{seen[0]:.0f} from memory and {seen[1]:.0f} forwarded after 240 s")


def test_informers_change_sides_without_a_list(check, stack):
    api = fixtures.Api(stack.server)
    for i in range(PODS):
        api.create(fixtures.pods("default"), fixtures.pod(f"p{i}"))
    fixtures.wait_served(stack.tls, fixtures.pods(), accept=wire.PROTOBUF)
    flags = ["--resource=pods", f"--count={CLIENTS}", "--client=typed", "--content-type=protobuf", "--content-hash=false", "--ledger"]
    args = programs.client_go(stack, stack.tls, tools.needed(tools.client_go(), "client-go"), *flags)
    informers = programs.Program("client-go", args, stack.state / "client-go.log")
    try:
        wire.poll("the first lists", lambda: informers.ask("lap")["synced"] == CLIENTS, 120, 1)
        lists = informers.ask("lap")["lists"]
        divided(stack, CLIENTS)
        writes, fastest, began = Writes(api), 0, time.monotonic()
        writes.start()
        names = itertools.cycle(("passthrough", "memory", "passthrough", "some", "memory", "some"))
        for name, turn in zip(names, range(TOGGLES)):
            rules, from_memory = RULES[name]
            start = time.monotonic()
            put(stack, rules)
            pace = divided(stack, from_memory)
            fastest = max(fastest, pace)
            print(f"{turn}: {name} after {time.monotonic() - start:.1f} s, at most {pace:.0f} starts a second, {writes.count} writes", flush=True)
        seconds, written = time.monotonic() - began, writes.end()
        check("the writer wrote all the time", not writes.error, str(writes.error))
        told = lambda: informers.ask("usage")["updates"]
        try:
            wire.poll("all events", lambda: told() >= CLIENTS * written, 60, 1)
        except wire.WireError:
            pass
        time.sleep(2)  # an event too many would come, too
        check(f"{CLIENTS} informers were told of {written} writes, each once", told() == CLIENTS * written, f"{told()} calls, not {CLIENTS * written}")
        lap = informers.ask("lap")
        check("none listed again", lap["lists"] == lists == CLIENTS, f"{lap['lists']} lists, {lists} at the start")
        answers = informers.ask("ids")["clients"].values()
        back = [answer["back"] for answer in answers if answer["back"]]
        check("no version went back", not back, str(back[:3]))
        failed = sum(answer["errors"] + answer["refused"] for answer in answers)
        check("no request failed", not failed, str(failed))
        ends = stack.gateway_metric("tls", "kube_fanout_stream_ends_total", reason="switch_over")
        print(f"{TOGGLES} changes in {seconds:.0f} s, {ends:.0f} ends from memory, {written} writes, at most {fastest:.0f} starts a second")
    finally:
        informers.kill()
