"""python3 -m suites [SUITE...]: runs the suites, prints a table, ends with 'N passed, N failed'."""
import importlib
import signal
import sys
import time
import traceback

from . import report, stack

SUITES = {"differential": "differential.run", "kubectl": "kubectl", "informers": "informers", "one-watch": "one_watch", "restart": "restart.run", "clients": "clients", "conformance": "conformance.run", "random": "replay.run", "converge": "converge.run", "gates": "gates", "trust": "trust.run", "check": "check", "revocation": "trust.revocation", "faults": "faults.run"}

ONLY_NAMED = {"revocation", "faults"}


def interrupted(number, _):
    raise KeyboardInterrupt(f"signal {number}")


def run_suites():
    wanted = sys.argv[1:] or [name for name in SUITES if name not in ONLY_NAMED]
    for name in wanted:
        if name not in SUITES:
            sys.exit(f"no suite {name!r}: {', '.join(SUITES)}")
    signal.signal(signal.SIGTERM, interrupted)  # so that the stacks stop their processes
    signal.signal(signal.SIGHUP, interrupted)
    reports = []
    for name in wanted:
        print(f"=== {name} ({stack.stamp()})", flush=True)
        reports.append(one := report.Report(name))
        try:
            importlib.import_module(f".{SUITES[name]}", __package__).run(one)
        except Exception:  # a suite that breaks is a failure; the others still run
            one.fail("the suite ran to its end", traceback.format_exc())
        one.ended = time.monotonic()
    return report.summary(reports)


if __name__ == "__main__":
    try:
        sys.exit(run_suites())
    except KeyboardInterrupt as e:
        sys.exit(f"interrupted: {e}")
