"""Fixtures of all suites."""
import signal
from contextlib import contextmanager

import pytest
from xdist.scheduler import LoadScopeScheduling


def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that fixtures stop their servers


class SuiteScheduling(LoadScopeScheduling):
    """Suites run side by side. The tests of one share servers, so they stay in one process, in order."""

    def _split_scope(self, nodeid):
        return nodeid.split("::")[0].split("/")[1]  # a folder or a file of suites


def pytest_xdist_make_scheduler(config, log):
    return SuiteScheduling(config, log)


@pytest.fixture
def check(subtests):
    """check(name, condition, detail): one case of a scenario, which goes on after a failure. Returns the condition."""
    def check(name, good, detail=""):
        with subtests.test(name):
            assert good, detail
        return bool(good)
    return check


@pytest.fixture(scope="session")
def during(request):
    """`with during(stack):` runs servers. If a test fails meanwhile, their logs are printed and kept."""
    @contextmanager
    def during(stack):
        failed = request.session.testsfailed
        with stack:
            yield stack
            stack.failed = request.session.testsfailed > failed
    return during
