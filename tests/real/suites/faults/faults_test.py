"""Informers of client-go, of kube-rs and of this project behind a gateway, and one fault after the other, while
objects are written. After each fault there is silence, and all stores must be the server's. What a fault costs is counted: the lists
that reached the server, the lists that clients made, and the longest time for which a client got nothing.

It needs root, for network namespaces, mounts and limits of other processes; everything is in a network of its own."""
import json
import os
import resource
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from .. import fixtures, quiet, stack as stacks, tools, wire
from ..converge.compare import Truth
from . import crowds, network, table
from .cases import FAULTS
from .gateways import USER, FaultStack, Gateway
from .network import UP
from .writer import OBJECTS, THINGS, Writer

CLIENTS = 30
START_SECONDS = 240
RECOVERY_SECONDS = 120  # until all clients have the first write after a fault; some wait 30 s and more between two attempts
ROUNDS_BEFORE, ROUNDS_AFTER = 10, 1
WHOLE_LIST_MIN = 100  # a list with a lower limit is a probe or a sample


class Bed:
    """Everything that faults act on: `gateway` is the one that has the clients, `spare` the other one."""

    def __init__(self, stack, net, total):
        self.stack, self.net, self.api = stack, net, fixtures.Api(stack.server)
        self.gateway, self.spare = Gateway(stack, net, 0), Gateway(stack, net, 1)
        stack.disks += [self.gateway.disk, self.spare.disk]
        self.writer, self.crowds, self.total, self.note, self.rows = Writer(stack.server), [], total, "", []
        self.pool, self.audited = ThreadPoolExecutor(len(crowds.SORTS)), 0

    def start(self):
        for collection, make in THINGS.values():
            for i in range(OBJECTS):
                self.api.create(collection, make(f"o{i}"))
        self.gateway.start()
        self.writer.start()
        self.crowds = list(crowds.start(self.stack, self.net.clients, self.total))
        self.total = sum(crowd.count for crowd in self.crowds)
        wire.poll("the first lists", lambda: all(lap["synced"] == crowd.count for crowd, lap in self.ask("lap")), START_SECONDS, 0.5)

    def ask(self, question):
        """[(crowd, answer)]"""
        return list(zip(self.crowds, self.pool.map(lambda crowd: crowd.ask(question), self.crowds)))

    def hold(self, seconds):
        """The fault lasts; the writer goes on."""
        time.sleep(seconds)

    def switch(self):
        """The clients' packets go to the other gateway, which knows nothing of their connections."""
        self.gateway, self.spare = self.spare, self.gateway
        self.gateway.down.use()

    def repair(self):
        self.stack.start_server()
        if self.gateway.process.poll() is not None:
            self.gateway.start()

    @staticmethod
    def files_limit(pid):
        return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]

    @staticmethod
    def limit_files(pid, count):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))

    def behind(self):
        """The crowds whose stores are not the server's."""
        truth = {resource: Truth(self.api.get(collection)).digest() for resource, (collection, _) in THINGS.items()}
        return [f"{crowd.name}: {sum(n for h, n in state['hashes'].items() if h != truth[crowd.resource])} behind" for crowd, state in self.ask("state") if set(state["hashes"]) != {truth[crowd.resource]}]

    def lap(self):
        """({library: lists since the last lap}, {library: the longest silence, seconds})"""
        lists, silences = dict.fromkeys(crowds.LIBRARIES, 0), dict.fromkeys(crowds.LIBRARIES, 0.0)
        for crowd, answer in self.ask("lap"):
            lists[crowd.library] += answer["lists"] - crowd.lists
            crowd.lists = answer["lists"]
            silences[crowd.library] = max(silences[crowd.library], answer["silenceMs"] / 1000)
        return lists, silences

    def upstream_lists(self):
        """(lists of whole resources by gateways, by clients) that reached the server since the last call, by its audit log."""
        with open(self.stack.audit, "rb") as log:
            log.seek(self.audited)
            lines = log.read().rpartition(b"\n")[0]
        self.audited += len(lines) + bool(lines)
        own = forwarded = 0
        for line in filter(None, lines.splitlines()):
            entry = json.loads(line)
            if is_whole_list(entry):
                is_own = entry["user"].get("username") == USER
                own += is_own
                forwarded += not is_own and any(address.startswith(UP) for address in entry.get("sourceIPs", []))
        return own, forwarded

    def end(self):
        self.writer.end()
        for crowd in self.crowds:
            crowd.kill()
        self.pool.shutdown()


def is_whole_list(entry):
    """Whether an audit event is about all objects of one of the resources, which were sent: a server that has just started refuses some."""
    answered = "ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"
    if entry["stage"] != answered or entry.get("responseStatus", {}).get("code") != 200:
        return False
    target = urlsplit(entry.get("requestURI", ""))
    if entry.get("objectRef", {}).get("resource") not in THINGS or entry["objectRef"].get("name"):
        return False
    query = parse_qs(target.query)
    if entry["verb"] == "watch":
        return query.get("sendInitialEvents") == ["true"] or query.get("resourceVersion", ["0"]) in (["0"], [""])
    return entry["verb"] == "list" and int(query.get("limit", [WHOLE_LIST_MIN])[0]) >= WHOLE_LIST_MIN


def settled(bed, seconds):
    """Seconds until all stores are the server's, or None."""
    began = time.monotonic()
    try:
        wire.poll("equal stores", lambda: not bed.behind(), seconds, 0.1)
    except wire.WireError:
        return None
    return time.monotonic() - began


def inject(check, bed, fault):
    """One fault; returns its row."""
    row = table.Row(fault.name, fault.text)
    bed.note = ""
    bed.writer.lap()
    bed.lap()
    bed.upstream_lists()
    bed.writer.write_more(ROUNDS_BEFORE)
    try:
        fault.act(bed)
    except Exception:  # the next faults find everything running
        check("it can be injected", False, traceback.format_exc())
        bed.repair()
    finally:
        bed.net.heal()
    bed.writer.write_more(ROUNDS_AFTER)
    bed.writer.rest()
    took = settled(bed, RECOVERY_SECONDS)
    row.clients, row.silences = bed.lap()
    (row.upstream, row.forwarded), row.unwritten, row.equal_after, row.note = bed.upstream_lists(), bed.writer.lap(), took or RECOVERY_SECONDS, bed.note
    check(f"all stores are the server's: {row.line()}", took is not None, "\n".join(["behind at the end", *bed.behind()]))
    bed.writer.write_more(1)
    bed.writer.rest()
    state = {}

    def behind():
        state["now"] = bed.behind()
        return state["now"]
    quiet.end(check, fault.name, behind, lambda: str(state.get("now")))
    count = sum(row.clients.values())
    check(f"clients {'may list' if fault.clients else 'do not list'}", fault.clients or not count, row.line())
    check(f"at most {fault.upstream} lists upstream", row.upstream <= fault.upstream, row.line())
    return row


def missing():
    """What this suite needs and is not there, or ''."""
    if os.geteuid():
        return "root, for network namespaces"
    if not tools.client_go():
        return "client-go's informers: real-apiserver.sh informer"
    return "" if tools.informers() else "our own informers: cargo build -p kube-fanout-loadtest"


@pytest.fixture(scope="module")
def bed(during):
    if os.environ.get("GATEWAY") == "direct":
        pytest.skip("it is about the gateway's own processes")
    tools.needed(not missing(), missing())
    network.enter_home()
    net, bed = network.Network(), None
    try:
        with during(FaultStack(fixtures.with_widgets)) as stack:
            try:
                bed = Bed(stack, net, int(os.environ.get("FAULTS_CLIENTS") or CLIENTS))
                bed.start()
                yield bed
            finally:
                if bed:
                    bed.end()
    finally:
        net.end()
        if bed and "FAULTS_TABLE" in os.environ:
            Path(os.environ["FAULTS_TABLE"]).write_text(table.markdown(bed.rows, bed.total, crowds.CACHES))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_stores_are_the_servers_after(check, bed, fault):
    bed.rows.append(inject(check, bed, fault))


def test_the_writers_requests_were_accepted(bed):
    assert not bed.writer.refused, bed.writer.refused
