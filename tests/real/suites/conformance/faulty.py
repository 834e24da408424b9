"""A relay between a client and one endpoint, which records the client's requests and answers some of them itself, with
responses that no server produces on demand. It is the same for both sides."""
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from .. import wire

MARKER = b"k8s.io/initial-events-end"
PASSED_ON = ("accept", "user-agent", "authorization")


def status(code, reason, causes=()):
    details = {"details": {"causes": [{"reason": c} for c in causes]}} if causes else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": f"by the relay: {reason}", "reason": reason, **details, "code": code}


def refused(code, reason, causes=()):
    """An HTTP error status instead of the response."""
    return "refused", code, json.dumps(status(code, reason, causes)).encode()


def error_stream(code, reason):
    """A stream with one ERROR."""
    return "told", code, json.dumps({"type": "ERROR", "object": status(code, reason)}).encode() + b"\n"


EMPTY = ("empty", 200, b"")  # a stream that ends immediately
UNMARKED = ("unmarked", 200, b"")  # the stream, which ends where its marker would have been


def cut(events):
    """The stream, which ends after EVENTS of its lines."""
    return "cut", events, b""


def paged(limit):
    """The list, with another limit than requested."""
    return "paged", limit, b""


class Relay:
    """PLAN: {("watch", 2): action}, the action at the second watch. `log`: "what:version limit=…" and the outcome."""

    def __init__(self, endpoint, plan=None):
        self.upstream, self.plan = endpoint, plan or {}
        self.log, self.versions, self.counts = [], [], {}
        self.changed, self._open, self._closing = threading.Condition(), [], False
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                relay.answer(self)

            def log_message(self, *_):
                pass

        self._front = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._front.daemon_threads = True
        threading.Thread(target=self._front.serve_forever, args=(0.05,), daemon=True).start()
        self.endpoint = wire.Endpoint("relay", "127.0.0.1", self._front.server_address[1], None, endpoint.token)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing = True
        self._front.shutdown()
        self._front.server_close()
        for sock in self._open:
            sock.close()

    def wait(self, count, seconds=60):
        """Waits until COUNT requests are recorded."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.log) >= count, seconds)
            return list(self.log)

    def _asked(self, params):
        """(what, its action); the log entry is written when the response is known."""
        initial = params.get("sendInitialEvents") == "true"
        what = ("watchlist" if initial else "watch") if "watch" in params else "page" if "continue" in params else "list"
        with self.changed:
            self.counts[what] = self.counts.get(what, 0) + 1
            return what, self.plan.get((what, self.counts[what]))

    def _note(self, what, params, came):
        version = params.get("resourceVersion", "")
        limit = f" limit={params['limit']}" if "limit" in params else ""
        with self.changed:
            self.log.append(f"{what}:{version if version in ('', '0') else 'N'}{limit} {came}")
            self.versions.append(version)
            self.changed.notify_all()

    def answer(self, client):
        params = {k: v[0] for k, v in parse_qs(urlsplit(client.path).query, keep_blank_values=True).items()}
        what, action = self._asked(params)
        kind, code, body = action or ("forward", 0, b"")
        try:
            if kind in ("refused", "told", "empty"):
                self._note(what, params, f"{kind} {code}" if kind != "empty" else kind)
                client.send_response(code if kind == "refused" else 200)
                client.send_header("Content-Type", "application/json")
                client.send_header("Content-Length", str(len(body)))
                client.end_headers()
                client.wfile.write(body)
            else:
                self._forward(client, what, params, kind, code)
        except (OSError, ValueError, wire.WireError):
            client.close_connection = True  # one of the two disconnected

    def _forward(self, client, what, params, kind, count):
        headers = {k: v for k, v in client.headers.items() if k.lower() in PASSED_ON}
        path = re.sub(r"limit=\d+", f"limit={count}", client.path) if kind == "paged" else client.path
        sock = wire._send(self.upstream, "GET", path, headers, None, 120)
        self._open.append(sock)
        with sock.makefile("rb") as reader:
            code, got = wire._head(reader)
            self._note(what, params, code if kind == "forward" else kind)
            client.send_response(code)
            for name in ("content-type", "retry-after", "warning"):
                if name in got:
                    client.send_header(name, got[name])
            client.send_header("Transfer-Encoding", "chunked")
            client.end_headers()
            pieces = wire._pieces(reader, code, got, "GET")
            for piece in pieces if kind in ("forward", "paged") else _until(pieces, kind, count):
                client.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            client.wfile.write(b"0\r\n\r\n")
        sock.close()


def _until(pieces, kind, count):
    """Whole lines, up to the marker or COUNT of them."""
    rest, done = b"", 0
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if kind == "unmarked" and MARKER in line or kind == "cut" and done == count:
                return
            done += 1
            yield line + b"\n"
        if kind == "cut" and done == count:
            return
