"""The random suite: seeded legal and illegal requests to the API server and to the endpoint under test, in the same state.

RANDOM_SEED, RANDOM_COUNT: the seed and the number of requests. RANDOM_ONLY=N: only the request with this index; its responses are
printed."""
import os
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import fixtures, memory, wire
from ..differential.case import shown
from ..known import Known
from ..stack import HERE, Stack
from . import world as worlds
from .exchange import fetch
from .generate import FUTURE, SHORT, generate
from .judge import compare, kind
from .recorder import Journal, Relay
from .request import read_line
from .shrink import shrink

KNOWN = Path(__file__).with_name("known-differences.txt")
AT_ONCE = 24
PATIENT_SECONDS = 12  # to repeat a watch that was too short
WATCH_SECONDS = 15  # longer than any watch
SHRUNK_MAX = 60
RECORDED = 80  # of these, the short ones also go through the recorder


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


def judge_one(pairs, report, known, label, request, differences, shrinks):
    """Reports one request that differs."""
    label = f"{label} at the {pairs.sides[1].name}"
    if reason := known.reason(name_of(request, differences)):
        return report.skip(f"{label} {shown(name_of(request, differences), 300)}", f"known difference: {reason}")
    first, small = kind(differences), request
    if shrinks:
        if not pairs.differences(request)[1]:
            return report.fail(f"{label} {shown(str(request), 300)}", failure_text(request, request, ["differed once and not again:", *differences]))
        small = shrink(request, lambda smaller: kind(pairs.differences(smaller)[1]) == first)
        differences = pairs.differences(small)[1] or differences
        if reason := known.reason(name_of(small, differences)):
            return report.skip(f"{label} {shown(name_of(small, differences), 300)}", f"known difference: {reason}")
    report.fail(f"{label} {shown(name_of(small, differences), 300)}", failure_text(request, small, differences))


def compare_all(by_index, report, known, seed, requests):
    statuses, differing = Counter(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (index, request), (status, differences) in zip(requests.items(), pool.map(lambda i: by_index[i].differences(requests[i]), requests)):
            statuses[status] += 1
            if differences:
                differing.append((index, request, differences))
        same = len(requests) - len(differing)
        if same:
            report.many(same, f"a request of seed {seed} without a difference")
        print(f"     | answers by status: {dict(sorted(statuses.items()))}", flush=True)
        for first, count in Counter(kind(d) for _, _, d in differing).most_common():
            print(f"     | {count} begin with: {first}", flush=True)
        jobs = [pool.submit(judge_one, by_index[index], report, known, f"{seed}/{index}", request, differences, n < SHRUNK_MAX) for n, (index, request, differences) in enumerate(differing)]
        for job in jobs:
            job.result()


def run(report):
    seed, count, only = (int(os.environ.get(n) or d) for n, d in (("RANDOM_SEED", 1), ("RANDOM_COUNT", 1000), ("RANDOM_ONLY", -1)))
    known, world = Known(KNOWN), worlds.World()
    with Stack("random", worlds.prepare, audited=True) as stack:
        api = fixtures.Api(stack.server)
        for endpoint in (stack.server, stack.plain, stack.tls):
            worlds.warm(world, endpoint)
        worlds.fill(world, api)
        for endpoint in (stack.server, stack.plain, stack.tls):
            worlds.warm(world, endpoint, world.top)
        requests = {i: generate(world, seed, i) for i in ([only] if only >= 0 else range(count))}
        pairs = transports(stack, Pairs((), world.top), seed, requests)
        if only >= 0:
            show(pairs[only], requests[only])
        started = time.monotonic()
        compare_all(pairs, report, known, seed, requests)
        print(f"     | {len(requests)} requests in {time.monotonic() - started:.0f} s", flush=True)
        for name in known.unused() if not stack.direct and only < 0 else []:
            print(f"     | a known difference that none of these requests shows: {name}", flush=True)
        if only < 0:
            run_recorder(stack, report, world, seed)
        if not stack.direct and (seed, count, only) == (1, 1000, -1):
            memory.judge(report, *stack.answered_from_memory())
        stack.judge_drift(report)
        report.check("the state rested during the comparison", worlds.rests(world, api), "another client wrote")


def run_recorder(stack, report, world, seed):
    """Requests through the recorder get the same responses as without it, are recorded, and are the same when they are replayed."""
    path = stack.state / "requests.jsonl"
    requests = [r for r in (generate(world, seed, i) for i in range(RECORDED)) if r.method == "GET" and "watch" not in r.target and str(FUTURE) not in r.target]
    with Relay(0, stack.server, journal := Journal(path)) as relay:
        through = wire.Endpoint("recorder", *relay.address)
        pairs = Pairs((stack.server, through), world.top)
        differing = [f"{r}: {d}" for r in requests for d in pairs.differences(r)[1]]
    journal.file.close()
    report.check(f"{len(requests)} requests through the recorder", not differing, "\n".join(differing))
    written = [read_line(line) for line in path.read_text().splitlines()]
    report.check("all of them are written down", sorted(r.target for r in written) == sorted(r.target for r in requests), f"{len(written)} lines")
    again = [HERE / "replay.sh", "replay", path, "--server", stack.server.url(), "--gateway", stack.server.url(), "--ca", stack.pki / "ca.crt", "--token", f"@{stack.pki / 'admin.token'}"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300)
    report.check("sent again, they are answered the same", done.returncode == 0, done.stdout + done.stderr)


def show(pairs, request):
    print(request.curl("$SERVER"))
    for side in pairs.sides:
        got = attempt(side, request)
        print(f"--- {side.name}\n{got if isinstance(got, str) else (got.status, got.headers, got.end)}\n{'' if isinstance(got, str) else shown(got.body, 4000)}", flush=True)
