"""A stand-in gateway for the converge suite (GATEWAY=relay): forwards every request, in every encoding, with or without TLS,
and breaks a promise of watches if RELAY_FAULT names one: drop (every twentieth frame), forget (deletions), old (an earlier
frame again). The suite must detect each, and report nothing without one.

python3 -m suites.converge.relay SERVER_PORT CA TOKEN_FILE LISTEN_PORT [CERT KEY]"""
import collections
import http.client
import json
import os
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from .. import protobuf, stack as stacks, wire

FAULT = os.environ.get("RELAY_FAULT", "")
EVERY = 20
BACK = 15  # frames
HOPS = ("connection", "transfer-encoding", "content-length", "host", "keep-alive")


def start(stack, kind):
    """Starts the process for a stack, like its gateways; returns its endpoint."""
    port = stack.gateway_ports[kind][0]
    args = [sys.executable, "-m", "suites.converge.relay", str(stack.api_port), str(stack.pki / "ca.crt"), str(stack.pki / "admin.token"), str(port)]
    ca = None
    if kind == "tls":
        args += map(str, stack._certificate())
        ca = str(stack.pki / "ca.crt")
    with open(stack.state / f"gateway-{kind}.log", "ab") as log:
        stack.gateways[kind] = subprocess.Popen(args, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=stacks.HERE)
    endpoint = wire.Endpoint(f"relay ({kind})", "127.0.0.1", port, ca, stack.token)
    wire.poll(f"the {kind} relay", lambda: wire.request(endpoint, "GET", "/version", timeout=5).status == 200, 30)
    return endpoint


def is_deletion(frame, binary):
    return (protobuf.event(frame)[0] if binary else json.loads(frame)["type"]) == "DELETED"


class Faults:
    """Applies the fault to the frames of one watch."""

    def __init__(self, binary):
        self.binary, self.count, self.earlier = binary, 0, collections.deque(maxlen=BACK)

    def of(self, frame):
        self.count += 1
        if FAULT == "drop" and self.count % EVERY == 0 or FAULT == "forget" and is_deletion(frame, self.binary):
            return
        yield frame
        if FAULT == "old" and self.count % EVERY == 0:
            yield self.earlier[0]
        self.earlier.append(frame)

    def pass_on(self, frames):
        for frame in frames:
            for one in self.of(frame):
                yield len(one).to_bytes(4, "big") + one if self.binary else one + b"\n"


def serve(server, port, certificate):
    class Relay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            upstream = http.client.HTTPSConnection(server.host, server.port, context=server.tls, timeout=600)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOPS}
                upstream.request(self.command, self.path, body, {"Authorization": f"Bearer {server.token}", **headers})
                self.answer(upstream.getresponse())
            except (OSError, http.client.HTTPException):
                self.close_connection = True
            finally:
                upstream.close()

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do

        def answer(self, got):
            self.send_response_only(got.status)
            for k, v in got.getheaders():
                if k.lower() not in HOPS:
                    self.send_header(k, v)
            if got.status == 200 and parse_qs(urlsplit(self.path).query).get("watch", ["0"])[0] in ("1", "true"):
                self.stream(got)
                return
            whole = got.read()
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)

        def stream(self, got):
            binary = wire.PROTOBUF in got.getheader("Content-Type", "")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            faults, rest = Faults(binary), b""
            while piece := got.read1(65536):
                frames, rest = (wire._binary_frames if binary else wire._lines)(rest + piece)
                if data := b"".join(faults.pass_on(frames)):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_):
            pass

    front = ThreadingHTTPServer(("127.0.0.1", port), Relay)
    front.daemon_threads = True
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        front.socket = context.wrap_socket(front.socket, server_side=True, do_handshake_on_connect=False)
    front.serve_forever()


if __name__ == "__main__":
    with open(sys.argv[3]) as token_file:
        serve(wire.Endpoint("server", "127.0.0.1", int(sys.argv[1]), sys.argv[2], token_file.read().strip()), int(sys.argv[4]), sys.argv[5:7])
