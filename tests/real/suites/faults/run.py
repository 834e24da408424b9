"""The faults suite: informers of client-go, of kube-rs and of this project behind a gateway, and one fault after the other, while
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

from .. import fixtures, informers, quiet, stack as stacks, wire
from . import crowds, network, table
from .cases import FAULTS
from .gateways import USER, FaultStack, Gateway
from .network import UP
from .writer import OBJECTS, PACE_SECONDS, THINGS, Writer

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
        self.writer, self.crowds, self.total, self.note = Writer(stack.server), [], total, ""
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
        truth = {resource: informers.digest(self.api, collection) for resource, (collection, _) in THINGS.items()}
        return [f"{crowd}: {sum(n for h, n in state['hashes'].items() if h != truth[crowd.resource])} behind" for crowd, state in self.ask("state") if set(state["hashes"]) != {truth[crowd.resource]}]

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


def inject(report, bed, fault):
    """One fault; returns its row."""
    row = table.Row(fault.name, fault.text)
    bed.note = ""
    bed.writer.lap()
    bed.lap()
    bed.upstream_lists()
    bed.writer.wait_rounds(ROUNDS_BEFORE)
    try:
        fault.act(bed)
    except Exception:  # the next faults find everything running
        report.fail(f"{fault.name}: it can be injected", traceback.format_exc())
        bed.repair()
    finally:
        bed.net.heal()
    bed.writer.wait_rounds(ROUNDS_AFTER)
    bed.writer.rest()
    took = settled(bed, RECOVERY_SECONDS)
    row.clients, row.silences = bed.lap()
    (row.upstream, row.forwarded), row.unwritten, row.equal_after, row.note = bed.upstream_lists(), bed.writer.lap(), took or RECOVERY_SECONDS, bed.note
    report.check(f"{fault.name}: all stores are the server's", took is not None, "\n".join(["behind at the end", row.line(), *bed.behind()]), row.line())
    bed.writer.wait_rounds(1)
    bed.writer.rest()
    state = {}

    def behind():
        state["now"] = bed.behind()
        return state["now"]
    quiet.end(report, fault.name, behind, lambda: str(state.get("now")))
    count = sum(row.clients.values())
    report.check(f"{fault.name}: clients {'may list' if fault.clients else 'do not list'}", fault.clients or not count, row.line(), f"{count} lists")
    report.check(f"{fault.name}: at most {fault.upstream} lists upstream", row.upstream <= fault.upstream, row.line(), f"{row.upstream} lists")
    return row


def chosen(report):
    only = [name for name in os.environ.get("FAULTS_ONLY", "").split(",") if name]
    unknown = [name for name in only if name not in FAULTS]
    if unknown:
        report.fail("FAULTS_ONLY", f"no fault {', '.join(unknown)}: {', '.join(FAULTS)}")
    return [] if unknown else [FAULTS[name] for name in only or FAULTS]


def missing():
    """What this suite needs and is not there, or ''."""
    if os.geteuid():
        return "root, for network namespaces"
    if not (stacks.home() / "bin" / "informer").exists():
        return "client-go's informers: real-apiserver.sh informer"
    return "" if informers.own_program() else "our own informers: cargo build -p kube-fanout-loadtest"


def run(report):
    if os.environ.get("GATEWAY") in ("direct", "relay"):
        return report.skip("faults", "it is about the gateway's own processes")
    if what := missing():
        return report.missing("faults", what)
    faults = chosen(report)
    network.enter_home()
    net, rows, bed = network.Network(), [], None
    try:
        with FaultStack(fixtures.with_widgets) as stack:
            try:
                bed = Bed(stack, net, int(os.environ.get("FAULTS_CLIENTS") or CLIENTS))
                began = time.monotonic()
                bed.start()
                report.ok(f"{bed.total} informers have their first lists", f"after {time.monotonic() - began:.1f} s")
                for fault in faults:
                    rows.append(inject(report, bed, fault))
                report.check("the writer's requests were accepted", not bed.writer.refused, "\n".join(bed.writer.refused),
                             f"{bed.writer.writes} writes, {bed.writer.failed} while the server was away, a round each {PACE_SECONDS * 1000:.0f} ms")
            finally:
                if bed:
                    bed.end()
    finally:
        net.end()
        text = table.markdown(rows, bed.total if bed else 0, crowds.CACHES)
        print(text)
        if path := os.environ.get("FAULTS_TABLE"):
            Path(path).write_text(text)
