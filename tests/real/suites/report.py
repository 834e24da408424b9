"""Results of the cases, printed as they occur and in a table at the end."""
import os
import sys
import threading
import time


class Report:
    """The counts of one suite. Each case is printed immediately; the details of a failure follow its line."""

    def __init__(self, suite):
        self.suite, self.passed, self.failed, self.skipped = suite, 0, 0, 0
        self.started, self.ended, self.failures = time.monotonic(), None, []
        self._lock = threading.Lock()

    def _line(self, word, name, detail=""):
        print(f"{word:4} {self.suite}: {name}{' — ' + detail if detail else ''}", flush=True)

    def ok(self, name, note=""):
        with self._lock:
            self.passed += 1
            self._line("ok", name, note)

    def many(self, count, name):
        """COUNT cases passed; prints one line for all."""
        with self._lock:
            self.passed += count
            self._line("ok", f"{count} × {name}")

    def fail(self, name, detail):
        with self._lock:
            self.failed += 1
            self.failures.append(name)
            self._line("FAIL", name)
            for line in str(detail).splitlines():
                print(f"     | {line}", flush=True)

    def skip(self, name, why):
        with self._lock:
            self.skipped += 1
            self._line("skip", name, why)

    def missing(self, name, what):
        """A case that cannot run because something is missing; WHAT says what to install. With KUBE_FANOUT_REQUIRE=1 that is a failure."""
        if os.environ.get("KUBE_FANOUT_REQUIRE") == "1":
            self.fail(name, what)
        else:
            self.skip(name, what)

    def check(self, name, good, detail="", note=""):
        if good:
            self.ok(name, note)
        else:
            self.fail(name, detail)
        return bool(good)

    def seconds(self):
        return (self.ended or time.monotonic()) - self.started


def summary(reports):
    """Prints the table and, last, the line that scripts read. Returns the exit code."""
    print(f"\n{'suite':14} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for r in reports:
        print(f"{r.suite:14} {r.passed:7} {r.failed:7} {r.skipped:8} {r.seconds():8.1f}")
    for r in reports:
        for name in r.failures:
            print(f"failed: {r.suite}: {name}")
    passed, failed = sum(r.passed for r in reports), sum(r.failed for r in reports)
    print(f"{passed} passed, {failed} failed")
    sys.stdout.flush()
    return 1 if failed or not passed else 0
