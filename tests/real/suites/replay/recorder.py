"""A plain relay on loopback that records the requests of clients: one JSON line per request.

Bytes are forwarded as they arrive, in both directions; only a missing Authorization header is added. Each client
connection has one connection to the upstream. Requests are split by their Content-Length or chunks; responses are not
parsed. After an upgrade nothing more of that connection is recorded."""
import asyncio
import os
import sys
import threading

from .request import Request, without_credentials

HEAD_MAX = 1 << 20
BODY_KEPT_MAX = 1 << 20
PIECE = 1 << 16
FILE_MAX = 256 << 20
CONNECTIONS_MAX = 200


class Bad(Exception):
    """The client does not speak HTTP/1."""


class Journal:
    """The file of requests, readable only by its owner, and never larger than FILE_MAX."""

    def __init__(self, path, limit=FILE_MAX):
        self.file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", buffering=1)
        self.limit, self.size, self.count, self.dropped, self._lock = limit, 0, 0, 0, threading.Lock()

    def add(self, request):
        line = request.line() + "\n"
        with self._lock:
            if self.size + len(line) > self.limit:
                self.dropped += 1
                if self.dropped == 1:
                    print("the file is full: further requests are forwarded without being recorded", file=sys.stderr, flush=True)
                return
            self.file.write(line)
            self.size, self.count = self.size + len(line), self.count + 1


async def read_head(reader):
    """(first line, [header lines]); None at the end of the connection. One empty line may come first."""
    lines, size, empty = [], 0, False
    while True:
        line = await reader.readline()
        size += len(line)
        if not line and not lines:
            return None
        if not line.endswith(b"\n") or size > HEAD_MAX:
            raise Bad("a head that is cut short or too large")
        if line not in (b"\r\n", b"\n"):
            lines.append(line)
        elif lines:
            return lines[0], lines[1:]
        elif empty:
            raise Bad("no request line")
        else:
            empty = True


def split(line):
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip(), value.strip()


async def counted(reader, left):
    """COUNT bytes, in pieces."""
    while left > 0:
        data = await reader.read(min(left, PIECE))
        if not data:
            raise Bad("a body that is cut short")
        left -= len(data)
        yield data


async def body_pieces(reader, headers):
    """The body as sent on the wire, and its decoded content: (raw, content)."""
    lower = {k.lower(): v for k, v in headers}
    if "chunked" not in lower.get("transfer-encoding", "").lower():
        async for data in counted(reader, int(lower.get("content-length", 0))):
            yield data, data
        return
    while True:
        line = await reader.readline()
        size = int(line.split(b";")[0], 16)
        yield line, b""
        if not size:
            break
        async for data in counted(reader, size):
            yield data, data
        yield await reader.readline(), b""
    while (trailer := await reader.readline()) not in (b"\r\n", b""):
        yield trailer, b""
    yield trailer, b""


async def passed_on(writer, data):
    writer.write(data)
    await writer.drain()


async def relay_requests(reader, upstream, journal, token):
    """Until the client closes its side or breaks the protocol."""
    while (head := await read_head(reader)) is not None:
        first, lines = head
        headers = [split(line) for line in lines]
        words = first.decode("latin-1").split()
        if len(words) != 3:
            raise Bad(f"no request line: {first[:80]!r}")
        names = {k.lower() for k, _ in headers}
        added = f"Authorization: Bearer {token}\r\n".encode() if token and "authorization" not in names else b""
        await passed_on(upstream, first + b"".join(lines) + added + b"\r\n")
        kept, size = [], 0
        async for raw, content in body_pieces(reader, headers):
            await passed_on(upstream, raw)
            size += len(content)
            if size <= BODY_KEPT_MAX:
                kept.append(content)
        journal.add(as_request(words, headers, b"".join(kept) if size <= BODY_KEPT_MAX else None, size))
        if "upgrade" in names:
            return await copy(reader, upstream)


def as_request(words, headers, body, size):
    framing = ("host", "content-length", "transfer-encoding")
    kept = without_credentials([h for h in headers if h[0].lower() not in framing])
    return Request(words[0], words[1], kept, body or None, 0 if body is not None else size)


async def copy(reader, writer):
    """Forwards all bytes as they arrive."""
    while data := await reader.read(PIECE):
        await passed_on(writer, data)


class Relay:
    """with Relay(port, upstream, journal) as relay: it listens at relay.address, on loopback only, in a thread of its own."""

    def __init__(self, port, upstream, journal):
        self.port, self.upstream, self.journal = port, upstream, journal
        self.loop = asyncio.new_event_loop()
        self.places = asyncio.Semaphore(CONNECTIONS_MAX)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        started = asyncio.start_server(self.connection, "127.0.0.1", self.port, limit=HEAD_MAX)
        self.server = asyncio.run_coroutine_threadsafe(started, self.loop).result()
        self.address = self.server.sockets[0].getsockname()
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.ended(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def ended(self):
        self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def connection(self, reader, writer):
        async with self.places:
            try:
                await self.relayed(reader, writer)
            except (OSError, ValueError, Bad) as e:
                print(f"a connection failed: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
            except asyncio.CancelledError:
                pass  # the relay is closing
            finally:
                writer.close()

    async def relayed(self, reader, writer):
        """The end of either side ends the connection."""
        up = self.upstream
        up_reader, up_writer = await asyncio.open_connection(up.host, up.port, ssl=up.tls, limit=HEAD_MAX)
        sides = [asyncio.ensure_future(job) for job in (relay_requests(reader, up_writer, self.journal, up.token), copy(up_reader, writer))]
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            for side in done:
                side.result()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
            up_writer.close()
