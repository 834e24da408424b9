"""The conformance suite: plain requests in the same state, then every named test, against both sides; writes docs/CONFORMANCE.md if
CONFORMANCE_TABLE names a file."""
import json
import os
import re
import threading
import traceback
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .. import fixtures, quiet, wire
from ..comparison import shown
from ..known import Known
from ..stack import Stack
from . import framework, resting, table
from .framework import Failed, GaveUp, Side, World
from .outcome import differences

DECISIONS = Path(__file__).with_name("decisions.txt")
COUNTED_MAX = 20  # of a test's requests to the gateway
AT_ONCE, LIVE_AT_ONCE = 4, 8  # concurrent tests, each with requests to both sides; live tests mostly wait
MARK = re.compile(r"conformance-(\d+)-(\w+)-(server|gateway)")
# Requests that a gateway has to answer itself, by the server's audit log: measured, minus a margin for those that are forwarded while a
# cache is behind.
RESTING_FROM_MEMORY_MIN, TESTS_FROM_MEMORY_MIN = 470, 900

PLACEHOLDER = resting.State.placeholder()
RESTING = [c.name for c in [*resting.resting(PLACEHOLDER), *(case for case, _ in resting.chains(PLACEHOLDER)), *resting.live(PLACEHOLDER)]]
EXPIRED = [c.name for c in resting.expired(PLACEHOLDER)]
TESTS = framework.load()


class AuditedStack(Stack):
    """A stack whose server logs the requests that reach it."""

    def __init__(self, name):
        super().__init__(name, fixtures.with_widgets, audited=True)
        self.marked = Counter()  # requests to the gateway, by test; each test's count belongs to one thread

    def warm(self, *endpoints):
        for endpoint in endpoints:
            for collection in resting.WARM:
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
    """The resting objects, which no test changes, and the requests for them."""

    def __init__(self, state):
        everywhere = (*(e.split("?")[0] for _, _, e, _ in state.resources), "/api/v1/configmaps")
        self._cases = [c for c in resting.resting(state) if not c.target.split("?")[0] in everywhere]  # other tests write in all namespaces

    def of(self, number):
        return [c for c in self._cases if str(number) in re.match(r"8\.\d-([\d,]*)", c.name)[1].split(",")]


@dataclass
class Result:
    """`verdict`: same, forwarded, decision or failed."""
    test: object
    verdict: str = "same"
    detail: list = field(default_factory=list)


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


class Run(threading.Thread):
    """Everything that was selected, concurrently as far as it does not disturb each other. `outcomes`: {name: a Future}"""

    def __init__(self, selected, stack):
        super().__init__(daemon=True)
        self.stack, self.outcomes, self.requested = stack, {name: Future() for name in selected}, Future()
        self.whole = selected == {*RESTING, *EXPIRED, *map(str, TESTS)}
        self.known, self.results, self._serial, self._lock = Known(DECISIONS), {}, 0, threading.Lock()
        self.state, self.spare_seconds, self.rested, self.from_memory = resting.State(), None, None, None

    def run(self):
        try:
            self.requests()
            self.named_tests()
        except BaseException as e:
            for outcome in [*self.outcomes.values(), self.requested]:
                if not outcome.done():
                    outcome.set_exception(e)

    def outcome(self, name):
        """The result of a request or a test; without NAME returns when all requests are done."""
        future = self.requested if name is None else self.outcomes[name]
        while not wait([future], 1).done:  # in steps, because a worker that is told to end does not notice it in a longer wait
            pass
        return future.result()

    def conclude(self, case, found):
        if case.name in self.outcomes:
            self.outcomes[case.name].set_result(found and [f"{case.method} {case.target} {case.headers or ''}", *found])

    def selected(self, cases):
        return [c for c in cases if c.name in self.outcomes]

    def requests(self):
        stack, state, api = self.stack, self.state, fixtures.Api(self.stack.server)
        stack.warm(stack.plain, stack.tls)  # caches that have seen every write: their history equals the server's
        state.fill(api)
        state.settle(api, stack.plain, stack.tls)
        if not any(name in self.outcomes for name in RESTING):
            return
        top = api.list_version("/api/v1/nodes")
        resting.compare_resting(stack, self.selected(resting.resting(state)), top, self.conclude)
        resting.compare_chains(stack, state, self.conclude)
        self.rested = api.list_version("/api/v1/nodes") == top
        self.spare_seconds = resting.compare_live(stack, state, api, self.conclude)
        self.from_memory = None if stack.direct else stack.answered_from_memory()
        self.requested.set_result(None)

    def named_tests(self):
        needing = lambda what: [t for t in TESTS if str(t) in self.outcomes and what in (t.needs or ("",))]
        stack, shared = self.stack, Shared(self.state)
        with ThreadPoolExecutor(1) as beside:
            other = beside.submit(self.restarts, needing("restart"))
            self.side_by_side(needing(""), stack, shared)
            for test in needing("alone"):
                self.attempt(test, stack, shared)
            if needing("compaction") or any(name in self.outcomes for name in EXPIRED):
                self.compaction(needing("compaction"))
            other.result()
        self.mark_forwarded(stack)

    def world(self, test, stack, shared=None):
        with self._lock:
            self._serial += 1
            return World(test, stack, f"c{test.number}-{self._serial}", shared)

    def attempt(self, test, stack, shared=None, world=None):
        try:
            if not world:
                world = self.world(test, stack, shared)
                world.prepare()
            server, tested = run_test(test, world)
        except Exception:
            server, tested = [f"the test broke off: {traceback.format_exc(limit=-5)}"], []
        reason = self.known.reason(str(test))
        result = Result(test, detail=server + tested)
        if result.detail:
            result.verdict = "decision" if reason and not server else "failed"
        self.results[str(test)] = result
        self.outcomes[str(test)].set_result((result.verdict, result.detail))

    def side_by_side(self, tests, stack, shared=None, worlds=None):
        with ThreadPoolExecutor(AT_ONCE) as quick, ThreadPoolExecutor(LIVE_AT_ONCE) as live:
            ordered = sorted(tests, key=lambda t: -t.lasts)
            for job in [(live if t.live else quick).submit(self.attempt, t, stack, shared, (worlds or {}).get(str(t))) for t in ordered]:
                job.result()

    def compaction(self, tests):
        """All setups, one compaction, a restart of server and gateways; then the requests and the tests."""
        stack, worlds = self.stack, {str(t): self.world(t, self.stack) for t in tests}
        for test in tests:
            worlds[str(test)].prepare()
        revision = fixtures.Api(stack.server).create("/api/v1/namespaces/compacted/configmaps", {"metadata": {"name": "last"}})
        stack.etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        stack.stop_gateways()
        stack.kill_server()
        stack.start_server()
        stack.start_gateways()
        stack.warm(stack.server, stack.plain, stack.tls)
        self.state.compacted = revision
        resting.compare_resting(stack, self.selected(resting.expired(self.state)), revision, self.conclude)
        for world in worlds.values():
            world.compacted = revision
        self.side_by_side(tests, stack, None, worlds)

    def restarts(self, tests):
        """Tests with a server of their own, one after the other."""
        if tests:
            with AuditedStack("conformance-restart") as stack:
                for test in tests:
                    stack.warm(stack.plain)
                    self.attempt(test, stack)
                    stack.start_server()
                    if any(p.poll() is not None for p in stack.gateways.values()):
                        stack.restart_gateways()
                self.mark_forwarded(stack)

    def mark_forwarded(self, stack):
        for test, requests in sorted(({} if stack.direct else stack.forwarded()).items()):
            result = self.results.get(test)
            if result and result.verdict == "same":
                result.verdict = "forwarded"
                print(f"forwarded by {test}: {len(set(requests))}, as {shown(min(requests), 200)}")

    def tests_from_memory(self):
        """Requests of the tests that did not reach the server, only some of each test: others poll."""
        forwarded = self.stack.forwarded()
        return sum(min(max(n - len(forwarded.get(test, ())), 0), COUNTED_MAX) for test, n in dict(self.stack.marked).items())


@pytest.fixture(scope="module")
def run(request, during):
    params = [item.callspec.params for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    with during(AuditedStack("conformance")) as stack:
        run = Run({p["name"] if "name" in p else str(p["test"]) for p in params}, stack)
        run.start()
        yield run
        if all(outcome.done() for outcome in run.outcomes.values()):
            run.join()
            if (file := os.environ.get("CONFORMANCE_TABLE")) and run.whole and not stack.direct:
                release = json.loads(wire.request(stack.server, "GET", "/version").body)["gitVersion"]
                Path(file).write_text(table.text(run.results, run.known.entries, release))


def judge(run, name):
    found, reason = run.outcome(name), run.known.reason(name)
    if found and reason:
        pytest.skip(f"different by decision: {reason}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", RESTING)
def test_request(run, name):
    judge(run, name)


def test_requests_met_the_same_state(check, run):
    if not any(name in run.outcomes for name in RESTING):
        pytest.skip("there were none")
    run.outcome(None)
    check("nothing was written while requests were compared", run.rested)
    check("the writes ended while all streams were open", run.spare_seconds > resting.MARGIN_SECONDS, f"{run.spare_seconds:.1f} s before their end: this machine is too slow or LIVE_SECONDS too small")
    if run.whole and run.from_memory is not None:
        check("requests are answered from memory", run.from_memory >= RESTING_FROM_MEMORY_MIN, run.from_memory)


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_entry(run, test):
    verdict, detail = run.outcome(str(test))
    if verdict == "decision":
        pytest.skip(f"different by decision: {run.known.reason(str(test))}")
    assert verdict != "failed", "\n".join(detail)


@pytest.mark.parametrize("name", EXPIRED)
def test_request_after_a_compaction(run, name):
    judge(run, name)


def test_watches_of_every_form_have_everything_at_the_end(check, run):
    run.join()
    quiet.forms(check, "watches of every form", fixtures.Api(run.stack.server), run.stack, fixtures.pods("default"), "p1")


def test_entries_are_answered_from_memory(run):
    run.join()
    if run.stack.direct or not run.whole:
        pytest.skip("only with a gateway and all tests")
    assert run.tests_from_memory() >= TESTS_FROM_MEMORY_MIN
