import pytest

from .. import fixtures
from ..stack import Stack

DRAIN_SECONDS = 5  # the gateway's longest drain; while it lasts nothing listens, and clients back off further


class ConvergeStack(Stack):
    gateway_flags = (*Stack.gateway_flags, f"--drain-timeout={DRAIN_SECONDS}s")


@pytest.fixture(scope="package")
def stack(during):
    with during(ConvergeStack("converge", fixtures.with_widgets)) as stack:
        yield stack
