"""The conformance suite: every test against both sides, then docs/CONFORMANCE.md if CONFORMANCE_TABLE names a file."""
import os
import re
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .. import fixtures, memory, quiet, wire
from ..differential.case import shown
from ..differential import lists as differential_lists, watches as differential_watches
from ..differential.run import WARM, State
from ..stack import Stack
from . import framework, table
from .framework import Failed, GaveUp, Side, World
from .outcome import differences

DECISIONS = Path(__file__).with_name("decisions.txt")
COUNTED_MAX = 20  # of a test's requests to the gateway
AT_ONCE, LIVE_AT_ONCE = 4, 8  # concurrent tests, each with requests to both sides; live tests mostly wait
MARK = re.compile(r"conformance-(\d+)-(\w+)-(server|gateway)")


class AuditedStack(Stack):
    """A stack whose server logs the requests that reach it."""

    def __init__(self, name):
        super().__init__(name, fixtures.with_widgets, audited=True)
        self.marked = Counter()  # requests to the gateway, by test; each test's count belongs to one thread

    def warm(self, endpoint):
        for collection in WARM:
            fixtures.wait_served(endpoint, collection)
            if not collection.startswith(fixtures.GROUP):
                fixtures.wait_served(endpoint, collection, accept=wire.PROTOBUF)

    def forwarded(self):
        """{"number name": [the requests of that test to the gateway that reached the server]}"""
        found = {}
        for seen in self.audited():
            if mark := MARK.match(seen.get("auditID", "")) or MARK.match(seen.get("userAgent", "")):
                if mark[3] == "gateway":
                    found.setdefault(f"{mark[1]} {mark[2]}", []).append(f"{seen['verb']} {seen['requestURI']}")
        return found


class Shared:
    """The differential suite's objects, which no test changes, and its cases on them."""

    def __init__(self, stack):
        self.state, api = State(), fixtures.Api(stack.server)
        self.state.fill(api)
        self.state.settle(api, stack.plain, stack.tls)
        everywhere = (*(e.split("?")[0] for _, _, e, _ in self.state.resources), "/api/v1/configmaps")
        rests = lambda c: not c.target.split("?")[0] in everywhere  # other tests write in all namespaces
        self._cases = [c for c in [*differential_lists.cases(self.state), *differential_watches.quiet(self.state)] if rests(c)]

    def of(self, number):
        return [c for c in self._cases if str(number) in re.match(r"8\.\d-([\d,]*)", c.name)[1].split(",")]


@dataclass
class Result:
    """`verdict`: same, forwarded, decision or failed."""
    test: object
    verdict: str = "same"
    detail: list = field(default_factory=list)
    seconds: float = 0.0


def decisions():
    """{"number name": reason}"""
    out = {}
    for line in DECISIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" | ")
            out[name.strip()] = reason.strip()
    return out


def one_side(test, world, side):
    """(outcome, None), or (None, the failure or GaveUp)."""
    try:
        return test.run(side, world), None
    except GaveUp:
        return None, GaveUp
    except Failed as e:
        problem = str(e)
    except Exception:
        problem = traceback.format_exc(limit=-4)
    world.give_up()
    return None, f"{side.name}: {problem}"


def run_test(test, world):
    """(problems of the server, problems of the endpoint under test and differences)."""
    sides = Side(world, False), Side(world, True)
    try:
        with ThreadPoolExecutor(2) as both:
            (left, left_fault), (right, right_fault) = both.map(lambda side: one_side(test, world, side), sides)
        faults = [[f] if f and f is not GaveUp else [] for f in (left_fault, right_fault)]
        if any(faults):
            return faults
        if GaveUp in (left_fault, right_fault):
            return ["the sides waited for each other for too long"], []
        return [], differences(left, right, world.revision())
    finally:
        for side in sides:
            side.close()
        world.end()


class Run:
    """One run: its results by test."""

    def __init__(self, report):
        self.report, self.results, self.decisions, self._serial = report, {}, decisions(), 0
        self._lock = threading.Lock()

    def world(self, test, stack, shared=None):
        with self._lock:
            self._serial += 1
            return World(test, stack, f"c{test.number}-{self._serial}", shared)

    def attempt(self, test, stack, shared=None, world=None):
        began = time.monotonic()
        try:
            if not world:
                world = self.world(test, stack, shared)
                world.prepare()
            server, tested = run_test(test, world)
        except Exception:
            server, tested = [f"the test broke off: {traceback.format_exc(limit=-5)}"], []
        reason = self.decisions.get(str(test))
        result = Result(test, seconds=time.monotonic() - began)
        if server or tested:
            result.verdict = "decision" if reason and not server else "failed"
            result.detail = server + tested
        elif reason:
            result.detail = ["decided to differ, and does not: remove it from decisions.txt"]
        with self._lock:
            self.results[str(test)] = result
        self.tell(result, reason)

    def tell(self, result, reason):
        name = f"{table.section(result.test.number)}-{result.test.number} {result.test.name}"
        if result.verdict == "failed":
            self.report.fail(name, "\n".join(result.detail))
        elif result.verdict == "decision":
            self.report.skip(name, f"different by decision: {reason}")
        else:
            self.report.ok(name, "" if self.report.direct else " ".join(result.detail))

    def side_by_side(self, tests, stack, shared=None, worlds=None):
        with ThreadPoolExecutor(AT_ONCE) as quiet, ThreadPoolExecutor(LIVE_AT_ONCE) as live:
            ordered = sorted(tests, key=lambda t: -t.lasts)
            for job in [(live if t.live else quiet).submit(self.attempt, t, stack, shared, (worlds or {}).get(str(t))) for t in ordered]:
                job.result()

    def compaction(self, tests, stack):
        """All setups, one compaction, a restart of server and gateways; then the tests."""
        worlds = {str(t): self.world(t, stack) for t in tests}
        for test in tests:
            worlds[str(test)].prepare()
        revision = fixtures.Api(stack.server).create("/api/v1/namespaces/compacted/configmaps", {"metadata": {"name": "last"}})
        stack.etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        stack.stop_gateways()
        stack.kill_server()
        stack.start_server()
        stack.start_gateways()
        for endpoint in (stack.server, stack.plain):
            stack.warm(endpoint)
        for world in worlds.values():
            world.compacted = revision
        self.side_by_side(tests, stack, None, worlds)

    def forwarded(self, stack):
        if self.report.direct:
            return  # all of them
        for test, requests in sorted(stack.forwarded().items()):
            result = self.results.get(test)
            if result and result.verdict == "same":
                result.verdict = "forwarded"
                print(f"     | forwarded by {test}: {len(set(requests))}, as {shown(min(requests), 200)}", flush=True)

    def answered_from_memory(self, stack):
        """(requests of the tests that did not reach the server, all requests to the gateway), only some of each test: others poll"""
        forwarded, sent = stack.forwarded(), dict(stack.marked)
        capped = lambda counts: sum(min(max(n, 0), COUNTED_MAX) for n in counts)
        return capped(n - len(forwarded.get(test, ())) for test, n in sent.items()), capped(sent.values())


def restarts(run, tests, stack):
    with stack:
        run.report.direct = stack.direct
        for test in tests:
            stack.warm(stack.plain)
            run.attempt(test, stack)
            stack.start_server()
            if any(p.poll() is not None for p in stack.gateways.values()):
                stack.restart_gateways()
        run.forwarded(stack)


def run(report):
    run, tests = Run(report), chosen()
    needing = lambda what: [t for t in tests if what in t.needs]
    plain = [t for t in tests if not t.needs]
    own, shaken = AuditedStack("conformance"), AuditedStack("conformance-restart")  # created here, so that their ports differ
    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(restarts, run, needing("restart"), shaken) if needing("restart") else None
        with own as stack:
            report.direct = stack.direct
            for endpoint in (stack.plain, stack.tls):
                stack.warm(endpoint)
            shared = Shared(stack)
            run.side_by_side(plain, stack, shared)
            for test in needing("alone"):
                run.attempt(test, stack, shared)
            if needing("compaction"):
                run.compaction(needing("compaction"), stack)
            run.forwarded(stack)
            quiet.forms(report, "watches of every form", fixtures.Api(stack.server), stack, fixtures.pods("default"), "p1")
            if not stack.direct and not os.environ.get("CONFORMANCE_ONLY"):
                memory.judge(report, *run.answered_from_memory(stack))
        if other:
            other.result()
    slowest = sorted(run.results.values(), key=lambda r: -r.seconds)[:8]
    print(f"     | slowest: {', '.join(f'{r.test.number} {r.seconds:.0f} s' for r in slowest)}", flush=True)
    known = {str(t) for t in framework.load()}
    report.check("decisions.txt names tests", run.decisions.keys() <= known, f"no such tests: {run.decisions.keys() - known}")
    if os.environ.get("CONFORMANCE_ONLY"):
        return
    missing = [n for n in table.rows() if not any(t.number == n for t in tests) and (n not in framework.PINS or framework.PINS[n].observable)]
    report.check("every entry has a test, or the reason why nothing can be seen", not missing, f"entries without: {missing}")
    if (file := os.environ.get("CONFORMANCE_TABLE")) and not report.direct:
        Path(file).write_text(table.text(run.results, run.decisions))


def chosen():
    """All tests, or those that CONFORMANCE_ONLY selects (a number, or a part of a name), for writing tests."""
    only = os.environ.get("CONFORMANCE_ONLY", "").split()
    return [t for t in framework.load() if not only or any(o == str(t.number) or not o.isdigit() and o in t.name for o in only)]
