"""The trust suite: which caller may see what, at the server and through a gateway in each mode, in the same state."""
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from .. import fixtures, memory, quiet, wire
from ..differential.case import compare_answers, compare_streams, is_consistent
from ..differential.run import ask, attempt
from ..known import Known
from . import cases, commands, roles
from .world import CACHED, KINDS, TrustStack

KNOWN = Path(__file__).with_name("known-differences.txt")
ONLY = os.environ.get("TRUST_ONLY", "")  # a regular expression of cases' names
AT_ONCE = 8
STREAMS_AT_ONCE = 40
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
    if case.watch:
        return attempt(lambda: compare_streams(case, left, right))
    return attempt(lambda: compare_answers(replace(case, at_least=max(case.at_least, right.floor)), left, right, newest))


def outcome(stack, endpoint, case):
    try:
        return answered(stack, endpoint, case)
    except (OSError, wire.WireError, ValueError) as e:
        return e


def conclude(report, known, mode, case, found):
    name = f"--auth {mode}: {case.name}"
    reason = known.reason(name)
    if not found:
        return True
    if reason and not any(LEAK.match(line) for line in found):
        report.skip(name, f"known difference: {reason}")
    else:
        shown = [(k, v if len(v) < 200 else f"{v[:200]}…") for k, v in case.headers]
        report.fail(name, "\n".join([f"{case.method} {case.target} {shown} {f'certificate {case.who.certificate}' if case.who.certificate else ''}", *found]))
    return False


def distinct(found):
    """Each case once, by its name."""
    return list({case.name: case for case in found}.values())


def compare_all(stack, report, known, title, found):
    """Each case at the server and in each mode; failures are reported one by one, the rest as a number."""
    newest = fixtures.Api(stack.server).list_version("/api/v1/nodes")
    found, good = distinct(found), {mode: 0 for mode in stack.modes}
    statuses = {}

    def one(case):
        left = outcome(stack, stack.bare, case)
        rights = {mode: outcome(stack, endpoint, case) for mode, endpoint in stack.under_test.items()}
        return left, {mode: [f"no answer: {side!r} at {where}" for side, where in ((left, "the server"), (right, "the gateway")) if isinstance(side, Exception)] or differences(case, left, right, newest)
                      for mode, right in rights.items()}
    with ThreadPoolExecutor(AT_ONCE) as answers, ThreadPoolExecutor(STREAMS_AT_ONCE) as streams:
        jobs = [(case, (streams if case.watch else answers).submit(one, case)) for case in found]
        for case, job in jobs:
            left, by_mode = job.result()
            status = getattr(left, "status", None)
            statuses[status] = statuses.get(status, 0) + 1
            for mode, what in by_mode.items():
                good[mode] += conclude(report, known, mode, case, what)
    for mode, count in good.items():
        report.many(count, f"{title}: --auth {mode} answers as the server, of {len(found)}")
    text = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items(), key=lambda s: str(s[0])))
    report.check(f"{title}: {len(found)} cases with many answers", ONLY or {200, 401, 403} <= set(statuses), text, text)


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


def chosen(stack, found):
    """The selected cases, without those that a relay cannot forward: it does not have its clients' certificates."""
    return [case for case in found if re.search(ONLY, case.name) and not (stack.gateway == "relay" and case.who.certificate)]


def run(report):
    known = Known(KNOWN)
    with TrustStack("trust", more=roles.fill) as stack:
        settle(stack)
        warm_impersonation(stack)
        found = [*cases.matrix(stack.credentials), *roles.lists(cases.a_list, cases.a_watch)]
        compare_all(stack, report, known, "matrix", chosen(stack, found))
        if not ONLY:
            if not stack.direct and stack.gateway != "relay":
                memory.judge(report, *stack.answered_from_memory())
            quiet.forms(report, "watches of a reader", fixtures.Api(stack.server), stack, fixtures.pods("a"), "x1", [e.with_token(stack.credentials.tokens["reader"]) for e in stack.under_test.values()])
            commands.run(stack, report, known)
            roles.run(stack, report)
    with TrustStack("trust-anonymous", anonymous=True) as stack:
        settle(stack)
        compare_all(stack, report, known, "anonymous requests let in", chosen(stack, cases.anonymous(stack.credentials)))
    for name in known.unused():
        if not stack.direct and not ONLY:
            report.ok(f"known difference {name}", "it is none any more: remove it from the list")
