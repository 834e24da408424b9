"""Which caller may see what, at the server and through a gateway in each mode, in the same state."""
import os
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from .. import fixtures, quiet, tools, wire
from ..comparison import ask, attempt, compare_answers, compare_streams, is_consistent
from ..known import Known
from . import cases, commands, roles
from .world import CACHED, KINDS, TrustStack

FROM_MEMORY_MIN = 5400  # of the matrix's requests, by the server's audit log: measured, minus a margin for those that are forwarded while a cache is behind
ONLY = os.environ.get("TRUST_ONLY", "")  # a regular expression of cases' names
AT_ONCE = 8
STREAMS_AT_ONCE = 40
BATCH = 400  # cases between two writes
PATIENT_SECONDS = 12
FAILURES_MAX = 40  # that are printed of each mode
LEAK = re.compile(r"status: server [45]\d\d, under test [123]\d\d")  # never excused
MISSING = re.compile(rb"RBAC: \[([^\]]*)\]")
NEW = [(re.compile(rb'("(?:uid|creationTimestamp|time)":\s*)"[^"]*"'), rb'\1"#"'), (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), rb"#")]


def answered(stack, endpoint, case):
    """One side's response or finished stream."""
    endpoint = stack.as_who(endpoint, case.who)
    if not case.watch:
        floor = stack.revision() if case.cached and is_consistent(case.target) else 0
        answer = ask(endpoint, case)
        answer.floor = floor
        answer.body = one_order(answer.body)
        if case.created:
            for pattern, instead in NEW:
                answer.body = pattern.sub(instead, answer.body)
        return answer
    stream = wire.Stream(endpoint, case.target, case.headers)
    try:
        stream.wait_end(60)
    finally:
        stream.close()
    if stream.status == 403:
        stream.body, stream.frames = one_order(stream.body), []
    return stream


def one_order(body):
    """The body with the missing roles of a refusal sorted, because the server names them in random order."""
    return MISSING.sub(lambda m: b"RBAC: [" + b", ".join(sorted(m.group(1).split(b", "))) + b"]", body)


def differences(case, left, right, newest):
    if broken := [f"no answer: {side!r} at {where}" for side, where in ((left, "the server"), (right, "the gateway")) if isinstance(side, Exception)]:
        return broken
    if case.watch:
        return attempt(lambda: compare_streams(case, left, right))
    return attempt(lambda: compare_answers(replace(case, at_least=max(case.at_least, right.floor)), left, right, newest))


def outcome(stack, endpoint, case):
    try:
        return answered(stack, endpoint, case)
    except (OSError, wire.WireError, ValueError) as e:
        return e


def compare_all(check, stack, known, title, found):
    """Each case at the server and in each mode."""
    found = list({case.name: case for case in found if re.search(ONLY, case.name)}.values())
    failures, statuses = {mode: [] for mode in stack.modes}, set()

    def one(case, newest):
        left = outcome(stack, stack.bare, case)
        return left, {mode: differences(case, left, outcome(stack, endpoint, case), newest) for mode, endpoint in stack.under_test.items()}

    def one_patiently(case, newest):
        """A watch that may have ended before one side had sent everything is sent again with more time."""
        left, by_mode = one(case, newest)
        if case.watch and any(by_mode.values()) and getattr(left, "status", None) in (200, 101):
            return one(replace(case, target=case.target.replace("timeoutSeconds=1", f"timeoutSeconds={PATIENT_SECONDS}")), newest)
        return left, by_mode
    with ThreadPoolExecutor(AT_ONCE) as answers, ThreadPoolExecutor(STREAMS_AT_ONCE) as streams:
        for start in range(0, len(found), BATCH):
            stack.tick()
            newest = fixtures.Api(stack.server).list_version("/api/v1/nodes")
            for case, job in [(case, (streams if case.watch else answers).submit(one_patiently, case, newest)) for case in found[start:start + BATCH]]:
                left, by_mode = job.result()
                statuses.add(getattr(left, "status", None))
                for mode, what in by_mode.items():
                    if what and (any(LEAK.match(line) for line in what) or not known.reason(f"--auth {mode}: {case.name}")):
                        headers = [(k, v if len(v) < 200 else f"{v[:200]}…") for k, v in case.headers]
                        failures[mode].append("\n".join([case.name, f"{case.method} {case.target} {headers} certificate {case.who.certificate}", *what]))
    for mode, of in failures.items():
        check(f"{title}: --auth {mode} answers {len(found)} requests as the server", not of, "\n\n".join([f"{len(of)} differ", *of[:FAILURES_MAX]]))
    check(f"{title}: some are allowed, some refused, some unknown", ONLY or {200, 401, 403} <= statuses, statuses)


def settle(stack):
    """Waits until the gateways have the existing objects: their first lists are not part of the comparison."""
    for endpoint in stack.under_test.values():
        for kind in CACHED:
            at_least = max((fixtures.version(i) for i in fixtures.Api(stack.server).get(KINDS[kind][1])["items"]), default=0)
            fixtures.wait_served(endpoint.with_token(stack.credentials.tokens["root"]), KINDS[kind][1], at_least)


def warm_impersonation(stack):
    """The server first reports how the caller last succeeded in impersonating, so each caller succeeds once."""
    for who, headers in (("actor", "as reader"), ("root", "as reader")):
        case = cases.a_list(stack.credentials.user(who), "pods", "a")
        case.headers = [*case.headers, *cases.IMPERSONATIONS[headers]]
        answered(stack, stack.bare, case)


@pytest.fixture(scope="module")
def known():
    known = Known(Path(__file__).with_name("known-differences.txt"))
    yield known
    if not ONLY and os.environ.get("GATEWAY") != "direct":
        for name in known.unused():
            warnings.warn(f"no longer a difference, remove it from known-differences.txt: {name}", stacklevel=1)


@pytest.fixture(scope="module")
def stack(during):
    with during(TrustStack("trust", more=roles.fill)) as stack:
        settle(stack)
        warm_impersonation(stack)
        yield stack


def test_every_caller_gets_what_the_server_gives(check, stack, known):
    compare_all(check, stack, known, "matrix", [*cases.matrix(stack.credentials), *roles.lists(cases.a_list, cases.a_watch)])
    if not (ONLY or stack.direct):
        count = stack.answered_from_memory()
        check("requests are answered from memory", count >= FROM_MEMORY_MIN, count)


def test_watches_of_a_reader_have_everything_at_the_end(check, stack):
    readers = [e.with_token(stack.credentials.tokens["reader"]) for e in stack.under_test.values()]
    quiet.forms(check, "watches of a reader", fixtures.Api(stack.server), stack, fixtures.pods("a"), "x1", readers)


@pytest.fixture(scope="module")
def kubectls(stack):
    """{None for the server, or a gateway's mode: kubectl}"""
    program = tools.needed(tools.kubectl(), "kubectl")
    return {mode: commands.Side(stack, program, mode, endpoint) for mode, endpoint in {None: stack.bare, **stack.under_test}.items()}


@pytest.mark.parametrize("user, command", commands.COMMANDS)
def test_kubectl_prints_the_same(stack, kubectls, known, user, command):
    stack.tick()
    outputs = {mode: side.say(user, command) for mode, side in kubectls.items()}  # one after the other: the server's words depend on how its caller last succeeded
    expected = outputs.pop(None)
    assert {mode: out for mode, out in outputs.items() if out != expected and not known.reason(f"--auth {mode}: kubectl {command}, by {user}")} == {}, f"the server's:\n{expected}"


def test_random_questions_are_decided_as_by_the_server(check, stack):
    roles.compare(check, stack)


def test_anonymous_callers_get_what_the_server_gives(check, during, known):
    with during(TrustStack("trust-anonymous", anonymous=True)) as stack:
        settle(stack)
        compare_all(check, stack, known, "anonymous requests let in", cases.anonymous(stack.credentials))
