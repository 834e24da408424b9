"""The part of WebSocket (RFC 6455) that is needed to read a watch: the handshake, frames, and a close from either end."""
import os
import struct

from .. import wire

HANDSHAKE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13", "Origin": "http://127.0.0.1"}
ACCEPTED = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455's own example for that key
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Socket(wire.Stream):
    """A watch as a wire.Stream whose frames are the messages. `opcodes`: one per frame; `close_code`: the peer's, None without one."""

    def __init__(self, endpoint, target, headers=None, timeout=120):
        self.opcodes, self.close_code = [], None
        super().__init__(endpoint, target, {**HANDSHAKE, **(headers or {})}, timeout)

    def _read(self, reader):
        status, headers = wire._head(reader)
        with self.changed:
            self.status, self.headers = status, headers
            self.changed.notify_all()
        if status != 101:
            self.body = b"".join(wire._pieces(reader, status, headers, "GET"))
            return
        message, kind = b"", None
        while True:
            final, opcode, payload = _frame(reader)
            if opcode == CLOSE:
                self.close_code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
                return
            if opcode in (PING, PONG):
                continue
            message, kind = message + payload, kind if opcode == CONTINUATION else opcode
            if final:
                with self.changed:
                    self.frames.append(message[:-1] if kind == TEXT and message.endswith(b"\n") else message)
                    self.opcodes.append(kind)
                    self.changed.notify_all()
                message = b""

    def send_close(self, code=1000):
        self._send(CLOSE, struct.pack(">H", code))

    def send_text(self, text):
        self._send(TEXT, text.encode())

    def _send(self, opcode, payload):
        """Frames from a client are masked."""
        mask = os.urandom(4)
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self._sock.sendall(bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + body)


def _frame(reader):
    first, second = _exactly(reader, 2)
    size = second & 0x7F
    if size > 125:
        size = int.from_bytes(_exactly(reader, 2 if size == 126 else 8), "big")
    if second & 0x80:
        raise wire.WireError("the server masked a frame")
    return bool(first & 0x80), first & 0x0F, _exactly(reader, size)


def _exactly(reader, size):
    data = reader.read(size)
    if len(data) != size:
        raise wire.WireError("cut inside a frame")
    return data
