"""How long a stream outlives its permission. What no event covers is checked at the shortest interval that docs/SECURITY.md names.

Each way to lose a permission is tested in each mode at the same time; `-v` shows the seconds until the stream ends."""
import os
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import fixtures, wire
from .trust import world

INTERVAL = ("--reauthorize-interval", "25s", "--review-budget", "0")
SECONDS_MAX = 30  # the interval and a fifth of it
ROLE_SECONDS_MAX = 5  # after a change of roles, if the gateway may watch them
CERTIFICATE_SECONDS = 20
SIGNING = threading.Lock()  # openssl's list of certificates allows one process at a time
# Without permission to read roles, the gateway does not receive their changes.
BLIND = "self-check-blind"
MODES = (*world.MODES, BLIND)

pytestmark = pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="the server lets streams go on")


def grant_blind(api):
    api.create(world.collection(None, "clusterroles"), {"metadata": {"name": "gateway-blind"}, "rules": [world.rule(["list", "watch"], ["pods"])]})
    api.create(world.collection(None, "clusterrolebindings"), world.binding(None, "gateway-blind", ("ClusterRole", "gateway-blind"), [{"kind": "User", "name": f"gateway-{BLIND}"}]))


class RevocationStack(world.TrustStack):
    def __init__(self):
        super().__init__("revocation", more=grant_blind)
        self.modes = MODES

    def add_tokens(self):
        for mode in MODES:
            for name in (f"gateway-{mode}", f"guest-{mode}"):
                self.credentials.add_token(name, name)

    def gateway_mode(self, mode):
        return "self-check" if mode == BLIND else mode

    def launch(self, name, port, admin, flags, token, tls=True):
        return super().launch(name, port, admin, [*flags, *INTERVAL], token, tls)

    def renew_certificate(self):
        (self.pki / "gateway.crt").unlink()
        return self.certificate()


def open_watch(endpoint):
    stream = wire.Stream(endpoint, wire.query(fixtures.pods("a"), watch=1))
    stream.wait_open()
    if stream.status != 200:
        raise wire.WireError(f"{endpoint.name}: {stream.status} {stream.body!r}")
    return stream


def bind(api, name, user):
    api.create(world.collection("a", "rolebindings"), world.binding("a", name, ("ClusterRole", "reads"), [{"kind": "User", "name": user}]))


def may_read(endpoint):
    """Lists and watches are remembered separately."""
    targets = (fixtures.pods("a"), wire.query(fixtures.pods("a"), watch=1, timeoutSeconds=1))
    return all(wire.request(endpoint, "GET", target).status == 200 for target in targets)


def ended(what, mode, stream, begin, refusals, seconds_max=SECONDS_MAX):
    """(what happened, verdict): how long the stream continued after BEGIN, and that its client is refused when it reconnects."""
    stream.wait_end(seconds_max + 15)
    seconds = stream.ended_at - begin
    again = wire.request(stream.endpoint, "GET", stream.target).status
    text = f"{seconds:.1f} s, {stream.end}; then {again}"
    return f"{what}: --auth {mode}: {text}", -1 <= seconds <= seconds_max and stream.end == "clean" and again in refusals


def binding_deleted(stack, mode):
    api, name = fixtures.Api(stack.server), f"guest-{mode}"
    endpoint = stack.under_test[mode].with_token(stack.credentials.tokens[name])
    bind(api, name, name)
    wire.poll("the binding", lambda: may_read(endpoint), 60)
    stream = open_watch(endpoint)
    api.call("DELETE", f"{world.collection('a', 'rolebindings')}/{name}")
    seconds_max = SECONDS_MAX if mode == BLIND else ROLE_SECONDS_MAX
    return ended("binding deleted", mode, stream, time.monotonic(), {403}, seconds_max)


def certificate_expired(stack, mode):
    with SIGNING:
        pair = stack.credentials.sign_briefly(f"brief-{mode}", "reader", CERTIFICATE_SECONDS)
    expires_at = time.monotonic() + CERTIFICATE_SECONDS
    endpoint = stack.under_test[mode].with_certificate(*pair)
    return ended("certificate expired", mode, open_watch(endpoint), expires_at, {401})


@pytest.fixture(scope="module")
def stack(during):
    with during(RevocationStack()) as stack:
        yield stack


def test_streams_end_when_their_binding_or_certificate_is_gone(check, stack):
    cases = [(binding_deleted, mode) for mode in stack.modes]
    cases += [(certificate_expired, mode) for mode in stack.modes if mode != BLIND]  # it must not request reviews for a caller with a certificate
    with ThreadPoolExecutor(len(cases)) as pool:
        for job in [pool.submit(case, stack, mode) for case, mode in cases]:
            check(*job.result())


def shown(endpoint):
    with endpoint.connect(10) as sock:
        return sock.getpeercert(binary_form=True)


def test_a_renewed_server_certificate_is_shown_and_no_stream_ends(check, stack):
    """All gateways share one file: each soon presents the new certificate, and no stream ends."""
    endpoints = {mode: stack.under_test[mode].with_token(stack.credentials.tokens["reader"]) for mode in stack.modes}
    streams = {mode: open_watch(endpoint) for mode, endpoint in endpoints.items()}
    old = {mode: shown(endpoint) for mode, endpoint in endpoints.items()}
    cert, _ = stack.renew_certificate()
    new, begin, seconds = ssl.PEM_cert_to_DER_cert(cert.read_text()), time.monotonic(), {}
    while len(seconds) < len(endpoints) and time.monotonic() < begin + 60:
        for mode, endpoint in endpoints.items():
            if mode not in seconds and shown(endpoint) == new:
                seconds[mode] = time.monotonic() - begin
        time.sleep(0.02)
    fixtures.Api(stack.server).create(fixtures.pods("a"), fixtures.pod("after-rotation"))
    for mode, stream in streams.items():
        stream.wait(lambda s: s.end or any(b"after-rotation" in frame for frame in s.frames), 30, "event after the rotation")
        text = f"{seconds.get(mode, 60):.2f} s after both files were there, stream: {stream.end or 'goes on'}"
        check(f"server certificate rotated: --auth {mode}: {text}", old[mode] != new and seconds.get(mode, 60) <= 1 and not stream.end)
        stream.close()


def test_streams_end_when_their_token_is_gone(check, stack):
    """The server reads its tokens at start: it is restarted without some of them. Gateways keep their streams meanwhile."""
    api, streams = fixtures.Api(stack.server), {}
    for mode in stack.modes:
        name = f"guest-{mode}"
        endpoint = stack.under_test[mode].with_token(stack.credentials.tokens[name])
        bind(api, f"{name}-again", name)
        wire.poll("the binding", lambda: may_read(endpoint), 60)
        streams[mode] = open_watch(endpoint)
    stack.kill_server()
    file = stack.pki / "tokens.csv"
    kept = [line for line in file.read_text().splitlines(True) if ',"guest-' not in line]
    file.write_text("".join(kept))
    stack.start_server()
    begin = time.monotonic()
    for mode, stream in streams.items():
        check(*ended("token deleted", mode, stream, begin, {401}))
