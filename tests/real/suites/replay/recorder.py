"""A plain relay on loopback that writes down what clients ask: one JSON line a request.

Bytes pass through as they come, in both directions; only a missing Authorization header is added. Each client
connection has one connection to the upstream. Requests are split by their Content-Length or chunks, answers are not
looked at. After an upgrade nothing more of that connection is written down."""
import os
import socket
import socketserver
import sys
import threading

from .request import Request, without_credentials

HEAD_MAX = 1 << 20
BODY_KEPT_MAX = 1 << 20
FILE_MAX = 256 << 20
CONNECTIONS_MAX = 200


class Bad(Exception):
    """The client does not speak HTTP/1."""


class Journal:
    """The file of requests, for its owner's eyes only, and never larger than FILE_MAX."""

    def __init__(self, path, limit=FILE_MAX):
        self.file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", buffering=1)
        self.limit, self.size, self.count, self.dropped, self._lock = limit, 0, 0, 0, threading.Lock()

    def add(self, request):
        line = request.line() + "\n"
        with self._lock:
            if self.size + len(line) > self.limit:
                self.dropped += 1
                if self.dropped == 1:
                    print("the file is full: from here on requests pass unrecorded", file=sys.stderr, flush=True)
                return
            self.file.write(line)
            self.size, self.count = self.size + len(line), self.count + 1


def read_head(reader):
    """(first line, [header lines]); None at the end of the connection. One empty line may come before."""
    lines, size = [], 0
    while (line := reader.readline(HEAD_MAX + 1)) not in (b"\r\n", b"\n") or not lines and not size:
        size += len(line)
        if line in (b"\r\n", b"\n"):
            continue
        if not line and not lines:
            return None
        if not line.endswith(b"\n") or size > HEAD_MAX:
            raise Bad("a head that is cut short or too large")
        lines.append(line)
    if not lines:
        raise Bad("an empty head")
    return lines[0], lines[1:]


def split(line):
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip(), value.strip()


def body_pieces(reader, headers):
    """The body's bytes as they stand on the wire, with what they say: (raw, content)."""
    lower = {k.lower(): v for k, v in headers}
    if "chunked" in lower.get("transfer-encoding", "").lower():
        while True:
            size = reader.readline(1024)
            left = int(size.split(b";")[0], 16)
            yield size, b""
            while left:
                data = reader.read1(min(left, 65536))
                if not data:
                    raise Bad("a body that is cut short")
                left -= len(data)
                yield data, data
            if size.split(b";")[0].strip(b"0\r\n") == b"":
                while (trailer := reader.readline(65536)) not in (b"\r\n", b""):
                    yield trailer, b""
                yield trailer, b""
                return
            yield reader.readline(1024), b""
    left = int(lower.get("content-length", 0))
    while left > 0:
        data = reader.read1(min(left, 65536))
        if not data:
            raise Bad("a body that is cut short")
        left -= len(data)
        yield data, data


def relay_requests(reader, upstream, journal, token):
    """Until the client ends its side or breaks the rules."""
    while (head := read_head(reader)) is not None:
        first, lines = head
        headers = [split(line) for line in lines]
        words = first.decode("latin-1").split()
        if len(words) != 3:
            raise Bad(f"no request line: {first[:80]!r}")
        names = {k.lower() for k, _ in headers}
        added = f"Authorization: Bearer {token}\r\n".encode() if token and "authorization" not in names else b""
        upstream.sendall(first + b"".join(lines) + added + b"\r\n")
        kept, size = [], 0
        for raw, content in body_pieces(reader, headers):
            upstream.sendall(raw)
            size += len(content)
            if size <= BODY_KEPT_MAX:
                kept.append(content)
        journal.add(as_request(words, headers, b"".join(kept) if size <= BODY_KEPT_MAX else None, size))
        if "upgrade" in names:
            while data := reader.read1(65536):
                upstream.sendall(data)
            return


def as_request(words, headers, body, size):
    framing = ("host", "content-length", "transfer-encoding")
    kept = without_credentials([h for h in headers if h[0].lower() not in framing])
    return Request(words[0], words[1], kept, body or None, 0 if body is not None else size)


def copy_answers(upstream, client):
    """Everything the upstream says, at once; then the client learns that it ended."""
    try:
        while data := upstream.recv(65536):
            client.sendall(data)
    except OSError:
        pass
    for side in (client, upstream):
        hang_up(side)


def hang_up(sock):
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # the TLS layer stays as its reader has it
    except OSError:
        pass


class Relay(socketserver.ThreadingTCPServer):
    """Listens on loopback alone."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, port, upstream, journal):
        self.upstream, self.journal, self.places = upstream, journal, threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(("127.0.0.1", port), Connection)


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        with self.server.places:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                upstream = self.server.upstream.connect(None)
            except OSError as e:
                print(f"the upstream cannot be reached: {e}", file=sys.stderr, flush=True)
                return
            answers = threading.Thread(target=copy_answers, args=(upstream, self.request), daemon=True)
            answers.start()
            try:
                with self.request.makefile("rb") as reader:
                    relay_requests(reader, upstream, self.server.journal, self.server.upstream.token)
            except (OSError, ValueError, Bad) as e:
                print(f"a connection was given up: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
            finally:
                hang_up(upstream)
                answers.join()
                upstream.close()
