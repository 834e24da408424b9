"""A plain HTTP/1.1 client: requests are sent byte for byte as given, and streams of watch events are read.

The standard client hides what these tests compare (chunk ends, aborted bodies, header order), so this file reads the
socket itself. The only thing it knows of Kubernetes is how the events of a watch are framed. An endpoint can use
HTTP/2 instead (http2.py).
"""
import copy
import socket
import ssl
import threading
import time
import zlib
from urllib.parse import quote, urlencode

PROTOBUF = "application/vnd.kubernetes.protobuf"
# A browser's request for a watch over WebSocket; the key is the example of RFC 6455.
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13", "Origin": "http://127.0.0.1"}


AGENT = "fanout-tests/1"


class WireError(Exception):
    """The peer broke the protocol, or the connection broke."""


class Count:
    """Shared by an endpoint and its variations."""

    def __init__(self):
        self.value, self._lock = 0, threading.Lock()

    def add(self):
        with self._lock:
            self.value += 1


class Endpoint:
    """Where to send requests: host, port, TLS context or None, bearer token or None.

    `agent` is the User-Agent of requests without one, `asked` counts these."""

    def __init__(self, name, host, port, ca=None, token=None):
        self.name, self.host, self.port, self.token, self.ca = name, host, port, token, ca
        self.tls = ssl.create_default_context(cafile=ca) if ca else None
        self.http2, self.agent, self.asked = None, AGENT, Count()

    def url(self):
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    def with_token(self, token):
        other = copy.copy(self)
        other.token = token
        return other

    def over_http2(self):
        from . import http2
        other = copy.copy(self)
        other.name, other.http2 = f"{self.name}, HTTP/2", http2.Pool(self)
        return other

    def with_certificate(self, certificate, key):
        """The endpoint with this client certificate and without a token."""
        other = Endpoint(self.name, self.host, self.port, self.ca)
        other.agent, other.asked = self.agent, self.asked
        other.tls.load_cert_chain(certificate, key)
        return other

    def connect(self, timeout):
        sock = socket.create_connection((self.host, self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(sock, server_hostname=self.host) if self.tls else sock


def query(path, **params):
    """PATH?PARAMS, percent-encoded; parameters with the value None are left out."""
    given = {k: str(v) for k, v in params.items() if v is not None}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


class Answer:
    """Status, headers (names in lower case; repeated ones joined by ', ') and body of a response."""

    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    def text(self):
        return self.body.decode("utf-8", "replace")


def _pairs(endpoint, headers, body):
    """A request's headers besides Host, including the implicit ones."""
    pairs = list(headers.items() if isinstance(headers, dict) else headers)  # pairs, if a name occurs twice
    given, own = {k.lower() for k, _ in pairs}, []
    if "user-agent" not in given:
        own.append(("User-Agent", endpoint.agent))
        endpoint.asked.add()
    if endpoint.token and "authorization" not in given:
        own.append(("Authorization", f"Bearer {endpoint.token}"))
    return [*own, *pairs, *([("Content-Length", str(len(body)))] if body is not None else [])]


def _send(endpoint, method, target, headers, body, timeout):
    sock = endpoint.connect(timeout)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {endpoint.host}:{endpoint.port}"]
    lines += [f"{k}: {v}" for k, v in _pairs(endpoint, headers, body)]
    sock.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
    return sock


def _head(reader):
    first = reader.readline(65536)
    if not first:
        raise WireError("closed before the status line")
    status, headers = int(first.split(b" ", 2)[1]), {}
    while (line := reader.readline(65536)) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return status, headers


def _pieces(reader, status, headers, method):
    """The body in pieces; WireError if it is cut short."""
    if method == "HEAD" or status in (101, 204, 304):
        return
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = reader.readline(1024)
            if not size.endswith(b"\r\n"):
                raise WireError("cut between chunks")
            left = int(size.split(b";")[0], 16)
            data = reader.read(left + 2)
            if len(data) != left + 2:
                if left and data:
                    yield data
                raise WireError("cut inside a chunk")
            if left == 0:
                return
            yield data[:-2]
    elif "content-length" in headers:
        left = int(headers["content-length"])
        data = reader.read(left)
        yield data
        if len(data) != left:
            raise WireError("body shorter than its Content-Length")
    else:
        while data := reader.read1(65536):
            yield data


class Exchange:
    """A response as it arrives: status and headers immediately, then `pieces()` of the body, or the bytes after a 101."""

    def __init__(self, endpoint, method, target, headers, body, timeout):
        self.sock, self.method = _send(endpoint, method, target, headers, body, timeout), method
        self.reader = self.sock.makefile("rb")
        self.status, self.headers = _head(self.reader)

    def pieces(self):
        if self.status == 101:
            while data := self.reader.read1(65536):
                yield data
        yield from _pieces(self.reader, self.status, self.headers, self.method)

    def stop(self):
        """Called from another thread: the reader sees the end."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # the reader still uses the TLS layer
        except OSError:
            pass

    def close(self):
        self.reader.close()
        self.sock.close()


def exchange(endpoint, method, target, headers, body, timeout):
    """An Exchange over the HTTP version that the endpoint uses."""
    if not endpoint.http2:
        return Exchange(endpoint, method, target, headers, body, timeout)
    from . import http2
    return http2.Exchange(endpoint, method, target, _pairs(endpoint, headers, body), body, timeout)


def request(endpoint, method, target, headers=None, body=None, timeout=30):
    """A request on a connection of its own, or on a stream of HTTP/2."""
    if endpoint.http2:
        got = exchange(endpoint, method, target, headers or {}, body, timeout)
        try:
            return Answer(got.status, got.headers, b"".join(got.pieces()))
        finally:
            got.close()
    sock = _send(endpoint, method, target, headers or {}, body, timeout)
    try:
        with sock.makefile("rb") as reader:
            status, got = _head(reader)
            return Answer(status, got, b"".join(_pieces(reader, status, got, method)))
    finally:
        sock.close()


class Stream:
    """A watch that a thread of its own reads. Frames are raw: a JSON line without its newline, or a protobuf message.

    Over WebSocket (status 101) each frame is an event, and a close frame with code 1000 is the orderly end.

    `end` is None while the stream is open, then "clean" (orderly end of the body), "cut: …" or "closed" (by this client). With
    STAMP, `stamps` holds its result for each frame."""

    def __init__(self, endpoint, target, headers=None, timeout=120, stamp=None):
        self.endpoint, self.target = endpoint, target
        self.headers_sent, self.timeout = headers or {}, timeout
        self.status, self.headers, self.body, self.binary = None, {}, b"", False
        self.frames, self.end, self.opened_at, self.ended_at = [], None, None, None
        self.stamp, self.stamps = stamp, []
        self.received = 0  # bytes of the body so far, including partial frames
        self.changed = threading.Condition()
        self._sock, self._exchange, self._closing = None, None, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            if self.endpoint.http2:
                self._read_http2()
            else:
                self._sock = _send(self.endpoint, "GET", self.target, self.headers_sent, None, self.timeout)
                with self._sock.makefile("rb") as reader:
                    self._read(reader)
            end = "clean"
        except (OSError, WireError, ValueError) as e:
            end = "closed" if self._closing else f"cut: {type(e).__name__}: {e}"
        with self.changed:
            self.end, self.ended_at = end, time.monotonic()
            self.changed.notify_all()
        if self._sock:
            self._sock.close()

    def _read_http2(self):
        self._exchange = got = exchange(self.endpoint, "GET", self.target, self.headers_sent, None, self.timeout)
        if self._closing:
            got.stop()
        self._head(got.status, got.headers)
        self._read_body(got.pieces())

    def _head(self, status, headers):
        with self.changed:
            self.status, self.headers, self.opened_at = status, headers, time.monotonic()
            self.changed.notify_all()

    def _read(self, reader):
        status, headers = _head(reader)
        self._head(status, headers)
        if status == 101:
            return self._read_websocket(reader)
        self._read_body(_pieces(reader, status, headers, "GET"))

    def _read_body(self, pieces):
        status, headers = self.status, self.headers
        self.binary = headers.get("content-type", "").startswith(PROTOBUF) and "watch" in headers.get("content-type", "")
        rest = b""
        if headers.get("content-encoding") == "gzip":
            pieces = unpacked(pieces)
        for piece in pieces:
            self.received += len(piece)
            if status != 200:
                self.body += piece
                continue
            frames, rest = (binary_frames if self.binary else lines)(rest + piece)
            if frames:
                with self.changed:
                    self.frames += frames
                    self.stamps += [self.stamp()] * len(frames) if self.stamp else []
                    self.changed.notify_all()
        self.body += rest

    def _read_websocket(self, reader):
        while True:
            kind, payload = _websocket_frame(reader)
            self.received += len(payload)
            if kind == 8:
                if payload != b"\x03\xe8":
                    raise WireError(f"closed with {payload!r}")
                if reader.read(1):
                    raise WireError("bytes after the close frame")
                return
            if kind == 1 and not payload.endswith(b"\n"):
                raise WireError("a text frame without its newline")
            with self.changed:
                self.binary = kind == 2
                self.frames.append(payload if self.binary else payload[:-1])
                self.changed.notify_all()

    def wait(self, condition, seconds, what):
        """Waits until condition(self) holds; otherwise raises an error with WHAT."""
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self), seconds):
                raise WireError(f"{self.endpoint.name} {self.target}: no {what} in {seconds} s ({len(self.frames)} frames, end: {self.end})")

    def wait_open(self, seconds=30):
        self.wait(lambda s: s.status is not None or s.end, seconds, "response headers")

    def wait_end(self, seconds):
        self.wait(lambda s: s.end, seconds, "end of the stream")

    def forget(self):
        """Drops all frames but the last ones."""
        with self.changed:
            del self.frames[:-1]

    def close(self):
        self._closing = True
        if self._exchange:
            self._exchange.stop()
        if self._sock:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join(5)


def _websocket_frame(reader):
    """(kind, payload) of one whole unmasked frame."""
    head = reader.read(2)
    if len(head) != 2 or head[0] & 0x70 or not head[0] & 0x80 or head[1] & 0x80:
        raise WireError(f"no WebSocket frame: {head!r}")
    longer = {126: 2, 127: 8}.get(head[1], 0)
    n = int.from_bytes(reader.read(longer), "big") if longer else head[1]
    payload = reader.read(n)
    if len(payload) != n:
        raise WireError("cut inside a frame")
    return head[0] & 0x0f, payload


def unpacked(pieces):
    """What these pieces of one gzip member say, each as soon as it is there."""
    inflate = zlib.decompressobj(31)
    for piece in pieces:
        yield inflate.decompress(piece)
    if not inflate.eof or inflate.unused_data:
        raise WireError("the body is not one whole gzip member")


def lines(data):
    *frames, rest = data.split(b"\n")
    return frames, rest


def binary_frames(data):
    frames = []
    while len(data) >= 4:
        n = int.from_bytes(data[:4], "big")
        if len(data) < 4 + n:
            break
        frames.append(data[4:4 + n])
        data = data[4 + n:]
    return frames, data


def poll(what, check, seconds=30, every=0.1):
    """Calls CHECK until it returns something true, and returns that. Connection errors count as 'not yet'."""
    end, last = time.monotonic() + seconds, None
    while True:
        try:
            if got := check():
                return got
        except (OSError, WireError, ValueError) as e:
            last = e
        if time.monotonic() > end:
            raise WireError(f"{what}: not in {seconds} s ({last or 'no error'})")
        time.sleep(every)
