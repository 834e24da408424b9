"""How many reviews callers with static tokens cost while nothing changes: the rate of some quiet minutes, by the server's own count.

The gateway has the least rights of its mode and the default settings of a deployment. REVIEWS_MINUTES is the length of the window [12];
a shorter one than the ten minutes for which a token is remembered says little."""
import os
import time

import pytest

from . import fixtures, wire
from .trust import world

TOKENS = 200
COLLECTIONS = (fixtures.pods("a"), "/api/v1/namespaces/a/configmaps", fixtures.widgets("a"))
PER_MINUTE_MAX = 30
REVIEWS = ("tokenreviews", "selfsubjectreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
COUNTER = "apiserver_request_total"

pytestmark = pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="nobody is reviewed")


def grant(api):
    subjects = [{"kind": "Group", "name": "crowd"}]
    api.create(world.collection("a", "rolebindings"), world.binding("a", "crowd", ("ClusterRole", "reads"), subjects))


class ReviewStack(world.TrustStack):
    gateway_flags = ()

    def __init__(self):
        super().__init__("reviews", more=grant)
        self.admin = {}

    def launch(self, name, port, admin, flags, token, tls=True):
        self.admin[name] = wire.Endpoint(f"admin port of {name}", "127.0.0.1", admin)
        return super().launch(name, port, admin, flags, token, tls)

    def add_tokens(self):
        super().add_tokens()
        self.crowd = [self.credentials.add_token(f"member-{i}", f"member-{i}", groups=("crowd",)) for i in range(TOKENS)]


@pytest.fixture(scope="module")
def stack(during):
    with during(ReviewStack()) as stack:
        yield stack


def counts(stack):
    """Reviews by mode, as the gateways count them, and all, as the server does."""
    of_modes = {mode: stack._sum_at(stack.admin[mode], "kube_fanout_reviews_total", {}) for mode in stack.modes}
    return {**of_modes, "server": sum(stack.metric(COUNTER, resource=name) for name in REVIEWS)}


def open_all(stack, mode):
    streams = []
    for token in stack.crowd:
        endpoint = stack.under_test[mode].with_token(token)
        for collection in COLLECTIONS:
            streams.append(wire.Stream(endpoint, wire.query(collection, watch=1, allowWatchBookmarks="true"), timeout=300))
        streams[-1].wait_open(60)
    for stream in streams:
        stream.wait_open(60)
    return streams


def test_quiet_callers_cost_few_reviews(check, stack):
    """Leases renew meanwhile, as in each cluster."""
    before = counts(stack)
    streams = {mode: open_all(stack, mode) for mode in stack.modes}
    start = counts(stack)
    minutes, begin = float(os.environ.get("REVIEWS_MINUTES", "12")), time.monotonic()
    while time.monotonic() < begin + minutes * 60:
        time.sleep(20)
        stack.tick()
    end = counts(stack)
    for mode in stack.modes:
        first, later = start[mode] - before[mode], (end[mode] - start[mode]) / minutes
        open_still = sum(stream.status == 200 and not stream.end for stream in streams[mode])
        text = f"--auth {mode}: {first:.0f} reviews for {len(streams[mode])} watches, then {later:.1f} a minute; {open_still} still open"
        print(text)
        check(text, later <= PER_MINUTE_MAX and open_still == len(streams[mode]))
    total, seen = sum(end[mode] - before[mode] for mode in stack.modes), end["server"] - before["server"]
    check(f"the server answered {seen:.0f} reviews, the gateways count {total:.0f}", seen == total)
    for some in streams.values():
        for stream in some:
            stream.close()
