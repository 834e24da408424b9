"""A request to one side, and everything that came back: a response, a stream of events, or WebSocket frames."""
import threading
import zlib

from .. import wire

BODY_MAX = 256 << 20


class Received:
    """`end`: "clean", "open" (we stopped reading) or "cut: …". `packed` is the body as received, before decompression."""

    def __init__(self, status, headers):
        self.status, self.headers, self.body, self.end, self.packed = status, headers, b"", "clean", None

    def frames(self):
        """The events of a stream, and the bytes after the last one."""
        if self.status == 101:
            return socket_frames(self.body)
        if self.headers.get("content-type", "").startswith(wire.PROTOBUF):
            return wire.binary_frames(self.body)
        return wire.lines(self.body)


def socket_frames(data):
    """The payloads of the data frames; the rest is the close frame and the bytes after it, as received."""
    frames, payload, at = [], b"", 0
    while len(data) >= at + 2:
        opcode, size, start = data[at] & 15, data[at + 1] & 127, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, start = int.from_bytes(data[start:start + width], "big"), start + width
        if opcode & 8 or len(data) < start + size:
            break
        payload += data[start:start + size]
        if data[at] & 128:
            frames.append(payload)
            payload = b""
        at = start + size
    return frames, payload + data[at:]


def fetch(endpoint, request, watch_seconds, timeout=40):
    """ENDPOINT's response. A stream is read for at most SECONDS. Raises OSError, wire.WireError or ValueError without a response."""
    exchange = wire.exchange(endpoint, request.method, request.target, request.headers, request.body, timeout)
    got, stopped = Received(exchange.status, exchange.headers), threading.Event()

    def stop():
        stopped.set()
        exchange.stop()
    timer = threading.Timer(watch_seconds, stop)
    if request.asks_watch():
        timer.start()
    try:
        read(exchange, got)
    except (OSError, wire.WireError, ValueError) as e:
        got.end = f"cut: {type(e).__name__}: {e}"
    finally:
        timer.cancel()
        exchange.close()
    if stopped.is_set():
        got.end = "open"
    unpack(got)
    return got


def read(exchange, got):
    pieces, size = [], 0
    try:
        for piece in exchange.pieces():
            pieces.append(piece)
            size += len(piece)
            if size > BODY_MAX:
                raise wire.WireError(f"a body of more than {BODY_MAX} bytes")
    finally:
        got.body = b"".join(pieces)


def unpack(got):
    """The body without its compression, for comparison."""
    if got.headers.get("content-encoding") != "gzip":
        return
    got.packed = got.body
    inflate, out, rest = zlib.decompressobj(31), [], got.body
    try:
        while rest:
            out.append(inflate.decompress(rest, BODY_MAX))
            if inflate.unconsumed_tail:
                raise zlib.error("too large")
            if not inflate.eof and got.end == "clean":  # a stream that is still open has no end yet
                raise zlib.error("cut short")
            rest, inflate = inflate.unused_data, zlib.decompressobj(31)
        got.body = b"".join(out)
    except zlib.error as e:
        got.end = f"cut: bad gzip: {e}"
