"""Seeded legal and illegal requests to the API server and to the gateway, in the same state.

RANDOM_SEED, RANDOM_COUNT: the seed and the number of requests. RANDOM_ONLY=N: only the request with this index; its responses are
printed with -s."""
import os
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .. import fixtures, wire
from ..comparison import shown
from ..known import Known
from ..stack import Stack
from . import world as worlds
from .exchange import fetch
from .generate import SHORT, generate
from .judge import compare, kind
from .shrink import shrink

SEED, COUNT, ONLY = (int(os.environ.get(name) or default) for name, default in (("RANDOM_SEED", 1), ("RANDOM_COUNT", 1000), ("RANDOM_ONLY", -1)))
FROM_MEMORY_MIN = 200  # of the first thousand requests of seed 1, by the server's audit log
AT_ONCE = 24
PATIENT_SECONDS = 12  # to repeat a watch that was too short
WATCH_SECONDS = 15  # longer than any watch
SHRUNK_MAX = 60


class Pairs:
    """Both sides; each request goes to both at the same time."""

    def __init__(self, sides, top, helpers=None):
        self.sides, self.top, self.helpers = sides, top, helpers or ThreadPoolExecutor(2 * AT_ONCE)

    def at(self, sides):
        return Pairs(sides, self.top, self.helpers)

    def differences(self, request):
        """(status of the server, differences)"""
        got = [self.helpers.submit(attempt, side, request) for side in self.sides]
        left, right = (g.result() for g in got)
        if isinstance(left, str) or isinstance(right, str):
            broken = [f"{side.name}: {got if isinstance(got, str) else got.status}" for side, got in zip(self.sides, (left, right))]
            return getattr(left, "status", 0), [] if left == right else [f"no answer: {' — '.join(broken)}"]
        if cut_short(request, left, right):
            return self.differences(patient(request))
        return left.status, compare(request, left, right, self.top)


def cut_short(request, left, right):
    """Whether a watch may have ended before one side had sent everything: with more time both could."""
    seconds = request.option("timeoutSeconds")
    if not request.asks_watch() or seconds not in SHORT or not {left.status, right.status} <= {200, 101}:
        return False
    return len(left.frames()[0]) != len(right.frames()[0])


def patient(request):
    return request.with_pairs([f"timeoutSeconds={PATIENT_SECONDS}", *request.pairs()])


def attempt(side, request):
    """The response, or the reason why there is none."""
    try:
        return fetch(side, request, WATCH_SECONDS)
    except (OSError, wire.WireError, ValueError, IndexError) as e:
        return f"{type(e).__name__}: {e}"


def name_of(request, differences):
    """The name of a difference in the list of known ones."""
    return f"{request}: {kind(differences)}"


def failure_text(request, small, differences):
    return "\n".join([f"the request:  {request.curl('$SERVER')}", f"the smallest: {small.curl('$SERVER')}", *differences])


def transports(stack, pairs, seed, requests):
    """{index: the pair of endpoints for this request}"""
    return {i: pairs.at(stack.sides(f"{seed}/{i}", r.target, r.headers)) for i, r in requests.items()}


def failure(pairs, known, index, request, differences, shrinks):
    """The text about a request that differs, or None if the difference is known."""
    label = f"{SEED}/{index} at the {pairs.sides[1].name}"
    if known.reason(name_of(request, differences)):
        return None
    first, small = kind(differences), request
    if shrinks:
        if not pairs.differences(request)[1]:
            return "\n".join([label, failure_text(request, request, ["differed once and not again:", *differences])])
        small = shrink(request, lambda smaller: kind(pairs.differences(smaller)[1]) == first)
        differences = pairs.differences(small)[1] or differences
        if known.reason(name_of(small, differences)):
            return None
    return f"{label} {shown(name_of(small, differences), 300)}\n{failure_text(request, small, differences)}"


def failures(stack, world, known, requests):
    pairs = Pairs((), world.top)
    by_index = {i: pairs.at(stack.sides(f"{SEED}/{i}", r.target, r.headers)) for i, r in requests.items()}
    if ONLY >= 0:
        show(by_index[ONLY], requests[ONLY])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        compared = zip(requests.items(), pool.map(lambda i: by_index[i].differences(requests[i]), requests))
        differing = [(index, request, differences) for (index, request), (_, differences) in compared if differences]
        kinds = Counter(kind(d) for _, _, d in differing).most_common()
        jobs = [pool.submit(failure, by_index[i], known, i, request, differences, n < SHRUNK_MAX) for n, (i, request, differences) in enumerate(differing)]
        found = [text for job in jobs if (text := job.result())]
    return [*(f"{count} begin with: {first}" for first, count in kinds), *found] if found else []


@pytest.fixture(scope="module")
def world():
    return worlds.World()


@pytest.fixture(scope="module")
def stack(during, world):
    with during(Stack("random", worlds.prepare, audited=True)) as stack:
        endpoints = (stack.server, stack.plain, stack.tls)
        for endpoint in endpoints:
            worlds.warm(world, endpoint)
        worlds.fill(world, fixtures.Api(stack.server))
        for endpoint in endpoints:
            worlds.warm(world, endpoint, world.top)
        yield stack


def test_random_requests_are_answered_as_by_the_server(check, stack, world):
    known = Known(Path(__file__).with_name("known-differences.txt"))
    requests = {i: generate(world, SEED, i) for i in ([ONLY] if ONLY >= 0 else range(COUNT))}
    found = failures(stack, world, known, requests)
    check(f"{len(requests)} requests of seed {SEED} are answered as by the server", not found, "\n\n".join(found))
    for name in known.unused() if not stack.direct and ONLY < 0 else []:
        warnings.warn(f"no request shows this known difference: {name}", stacklevel=1)
    if not stack.direct and (SEED, COUNT, ONLY) == (1, 1000, -1):
        count = stack.answered_from_memory()
        check("requests are answered from memory", count >= FROM_MEMORY_MIN, count)
    for gateway in () if stack.direct else stack.gateway_ports:
        compared = stack.gateway_metric(gateway, "kube_fanout_drift_objects_compared_total")
        contradictions = stack.gateway_metric(gateway, "kube_fanout_upstream_contradictions_total")
        check(f"{gateway}: caches were compared with the server and never differed", compared > 0 and contradictions == 0, f"{compared:.0f} objects, {contradictions:.0f} contradictions")
    check("nothing was written meanwhile", worlds.rests(world, fixtures.Api(stack.server)))


def show(pairs, request):
    print(request.curl("$SERVER"))
    for side in pairs.sides:
        got = attempt(side, request)
        print(f"--- {side.name}\n{got if isinstance(got, str) else (got.status, got.headers, got.end)}\n{'' if isinstance(got, str) else shown(got.body, 4000)}", flush=True)
