"""The revocation suite: how long a stream outlives its permission, with the gateway's default intervals.

Each way to lose a permission is tested in each mode at the same time, and the seconds until the stream ends are printed."""
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .. import fixtures, wire
from . import world

SECONDS_MAX = 30  # --reauthorize-interval
CERTIFICATE_SECONDS = 20
SIGNING = threading.Lock()  # openssl's list of certificates allows one process at a time
# Without permission to read roles, the gateway does not receive their changes.
BLIND = "self-check-blind"
MODES = (*world.MODES, BLIND)


def grant_blind(api):
    api.create(world.collection(None, "clusterroles"), {"metadata": {"name": "gateway-blind"}, "rules": [world.rule(["list", "watch"], ["pods"])]})
    api.create(world.collection(None, "clusterrolebindings"), world.binding(None, "gateway-blind", ("ClusterRole", "gateway-blind"), [{"kind": "User", "name": f"gateway-{BLIND}"}]))


class RevocationStack(world.TrustStack):
    def __init__(self):
        super().__init__("revocation", more=grant_blind)
        if not self.direct:
            self.modes = MODES

    def add_tokens(self):
        for mode in MODES:
            for name in (f"gateway-{mode}", f"guest-{mode}"):
                self.credentials.add_token(name, name)

    def gateway_mode(self, mode):
        return "self-check" if mode == BLIND else mode

    def renew_certificate(self):
        (self.pki / "gateway.crt").unlink()
        return self._certificate()


def open_watch(endpoint):
    stream = wire.Stream(endpoint, wire.query(fixtures.pods("a"), watch=1))
    stream.wait_open()
    if stream.status != 200:
        raise wire.WireError(f"{endpoint.name}: {stream.status} {stream.body!r}")
    return stream


def bind(api, name, user):
    api.create(world.collection("a", "rolebindings"), world.binding("a", name, ("ClusterRole", "reads"), [{"kind": "User", "name": user}]))


def may_read(endpoint):
    return wire.request(endpoint, "GET", fixtures.pods("a")).status == 200


def conclude(report, what, mode, stream, begin, refusals):
    """Reports how long the stream continued after BEGIN, and that its client is refused when it reconnects."""
    name = f"{what}: --auth {mode}"
    try:
        stream.wait_end(SECONDS_MAX + 15)
    except wire.WireError as error:
        report.fail(name, error)
        return
    seconds = stream.ended_at - begin
    again = wire.request(stream.endpoint, "GET", stream.target).status
    good = -1 <= seconds <= SECONDS_MAX and stream.end == "clean" and again in refusals
    text = f"{seconds:.1f} s, {stream.end}; then {again}"
    report.check(name, good, text, text)


def binding_deleted(stack, report, mode):
    api, name = fixtures.Api(stack.server), f"guest-{mode}"
    endpoint = stack.under_test[mode].with_token(stack.credentials.tokens[name])
    bind(api, name, name)
    wire.poll("the binding", lambda: may_read(endpoint), 60)
    stream = open_watch(endpoint)
    api.call("DELETE", f"{world.collection('a', 'rolebindings')}/{name}")
    conclude(report, "binding deleted", mode, stream, time.monotonic(), {403})


def tokens_deleted(stack, report):
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
        conclude(report, "token deleted", mode, stream, begin, {401})


def certificate_expired(stack, report, mode):
    if mode == BLIND:
        return  # it must not request reviews for a caller with a certificate
    with SIGNING:
        pair = stack.credentials.sign_briefly(f"brief-{mode}", "reader", CERTIFICATE_SECONDS)
    expires_at = time.monotonic() + CERTIFICATE_SECONDS
    endpoint = stack.under_test[mode].with_certificate(*pair)
    conclude(report, "certificate expired", mode, open_watch(endpoint), expires_at, {401})


def shown(endpoint):
    with endpoint.connect(10) as sock:
        return sock.getpeercert(binary_form=True)


def certificate_rotated(stack, report):
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
        report.check(f"server certificate rotated: --auth {mode}", old[mode] != new and seconds.get(mode, 60) <= 1 and not stream.end, text, text)
        stream.close()


def run(report):
    with RevocationStack() as stack:
        if stack.direct:
            report.skip("revocation", "the server lets streams go on")
            return
        rows = (binding_deleted, certificate_expired)
        with ThreadPoolExecutor(len(rows) * len(stack.modes)) as pool:
            jobs = [pool.submit(row, stack, report, mode) for row in rows for mode in stack.modes]
            for job in jobs:
                job.result()
        certificate_rotated(stack, report)
        tokens_deleted(stack, report)
