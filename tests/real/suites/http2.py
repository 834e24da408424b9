"""HTTP/2 over TLS for wire.py, with PyPI's h2: exchanges share connections, as HTTP/2 clients do."""
import re
import selectors
import socket
import ssl
import threading

from . import wire

try:
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions
except ImportError:  # reported when HTTP/2 is first needed
    h2 = None

TARGET = re.compile(r"/(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
STREAMS_MAX = 50  # per connection; servers allow at least a hundred
NOT_OF_HTTP2 = ("connection", "upgrade", "keep-alive", "transfer-encoding", "te", "host", "proxy-connection", "http2-settings")


def expressible(target, headers):
    """Whether a request can be expressed in HTTP/2. HEADERS: pairs or a dict. A target that is not a URL would break the protocol."""
    return bool(TARGET.fullmatch(target)) and all(name.lower() not in NOT_OF_HTTP2 for name, _ in (headers.items() if isinstance(headers, dict) else headers or ()))


class Leaving(wire.WireError):
    """The connection takes no further requests; no part of this request was sent."""


class Pool:
    """The connections to one endpoint."""

    def __init__(self, endpoint):
        if h2 is None:
            raise RuntimeError("HTTP/2 needs PyPI's h2, which tests/real/run.sh installs: pip install 'h2>=4.1,<5'")
        self.host, self.port, self.tls = endpoint.host, endpoint.port, ssl.create_default_context(cafile=endpoint.ca)
        self.tls.set_alpn_protocols(["h2"])
        self._connections, self._lock = [], threading.Lock()

    def connection(self, timeout):
        """A connection with room for another stream."""
        with self._lock:
            self._connections = [c for c in self._connections if c.usable()]
            found = next((c for c in self._connections if len(c.streams) < STREAMS_MAX), None)
            if not found:
                self._connections.append(found := Connection(self, timeout))
            return found


def state_machine():
    class State(h2.connection.H2Connection):
        """GOAWAY only announces the end: h2 would otherwise reject everything for streams that are still to complete."""

        def _receive_goaway_frame(self, frame):
            event = h2.events.ConnectionTerminated()
            event.error_code = frame.error_code
            return [], [event]
    # Requests are sent exactly as they are, without corrections.
    return State(h2.config.H2Configuration(header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False))


class Connection:
    """One thread does all reading and writing: two threads cannot use a TLS session at the same time."""

    def __init__(self, pool, timeout):
        sock = socket.create_connection((pool.host, pool.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = pool.tls.wrap_socket(sock, server_hostname=pool.host)
        if self.sock.selected_alpn_protocol() != "h2":
            self.sock.close()
            raise wire.WireError("the peer does not speak HTTP/2")
        self.sock.setblocking(False)
        self.state = state_machine()
        self.state.initiate_connection()
        self.streams, self.leaving, self.lock = {}, False, threading.Lock()
        self.waker, self._woken = socket.socketpair()
        threading.Thread(target=self._run, daemon=True).start()

    def usable(self):
        return not self.leaving

    def begin(self, exchange, headers, body):
        """Sends a request whose response goes to the exchange."""
        with self.lock:
            if self.leaving:
                raise Leaving("the connection ended before the request")
            number = self.state.get_next_available_stream_id()
            try:
                self.state.send_headers(number, headers, end_stream=body is None)
                if body is not None:
                    self.state.send_data(number, body, end_stream=True)  # shorter than the initial window
            except h2.exceptions.H2Error as e:
                raise wire.WireError(f"{type(e).__name__}: {e}") from e
            self.streams[number] = exchange
        self.wake()
        return number

    def reset(self, number):
        with self.lock:
            if self.streams.pop(number, None) and not self.leaving:
                self.state.reset_stream(number, 8)  # CANCEL
        self.wake()

    def wake(self):
        try:
            self.waker.send(b"x")
        except OSError:
            pass  # it has already ended

    def _run(self):
        try:
            self._exchange_bytes()
            why = "the connection was closed"
        except Exception as e:  # passed on to the exchanges that wait for responses
            why = f"{type(e).__name__}: {e}"
        with self.lock:
            self.leaving, left, self.streams = True, list(self.streams.values()), {}
        for exchange in left:
            exchange.tell(end=f"closed: {why}")
        for sock in (self.sock, self.waker, self._woken):
            sock.close()

    def _exchange_bytes(self):
        waiting = selectors.DefaultSelector()
        waiting.register(self._woken, selectors.EVENT_READ)
        waiting.register(self.sock, selectors.EVENT_READ)
        unsent = b""
        while True:
            with self.lock:
                unsent += self.state.data_to_send()
            while unsent:
                try:
                    unsent = unsent[self.sock.send(unsent):]
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    break
            waiting.modify(self.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0))
            for key, _ in waiting.select():
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                elif not self._receive():
                    return

    def _receive(self):
        """Reads all available data; False at the end."""
        while True:
            try:
                data = self.sock.recv(65536)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return True
            if not data:
                return False
            with self.lock:
                told = [(self.streams.get(getattr(e, "stream_id", 0)), e) for e in self.state.receive_data(data)]
                for _, event in told:
                    self._note(event)
            for exchange, event in told:
                if exchange:
                    exchange.take(event)

    def _note(self, event):
        if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
            self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
            self.streams.pop(event.stream_id, None)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.leaving = True  # open streams may still complete


class Exchange:
    """As wire.Exchange."""

    def __init__(self, endpoint, method, target, pairs, body, timeout):
        self.timeout, self.status, self.headers = timeout, None, {}
        self._data, self._end, self._changed = [], None, threading.Condition()
        names = [(k.lower(), v) for k, v in pairs]
        head = [(":method", method), (":scheme", "https"), (":authority", f"{endpoint.host}:{endpoint.port}"), (":path", target), *names]
        self._begin(endpoint.http2, [(k.encode("latin-1"), v.encode("latin-1")) for k, v in head], body)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self.status or self._end, timeout):
                    raise TimeoutError(f"no answer in {timeout} s")
            if not self.status:
                raise wire.WireError(self._end)
        except (wire.WireError, TimeoutError):
            self.close()
            raise

    def _begin(self, pool, head, body):
        while True:
            self._connection = pool.connection(self.timeout)
            try:
                self._number = self._connection.begin(self, head, body)
                return
            except Leaving:
                continue  # the next connection is new

    def take(self, event):
        if isinstance(event, h2.events.ResponseReceived):
            headers = {}
            for name, value in event.headers:
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            status = int(headers.pop(":status"))
            with self._changed:
                self.headers, self.status = headers, status
                self._changed.notify_all()
        elif isinstance(event, h2.events.DataReceived):
            self.tell(data=event.data)
        elif isinstance(event, h2.events.StreamEnded):
            self.tell(end="")
        elif isinstance(event, h2.events.StreamReset):
            self.tell(end=f"reset with {event.error_code}")

    def tell(self, data=b"", end=None):
        with self._changed:
            if data:
                self._data.append(data)
            if end is not None and self._end is None:
                self._end = end
            self._changed.notify_all()

    def pieces(self):
        """The body in pieces; WireError if it is cut short."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._data or self._end is not None, self.timeout):
                    raise TimeoutError("timed out")
                data, self._data = b"".join(self._data), []
                if not data:
                    if self._end:
                        raise wire.WireError(self._end)
                    return
            yield data

    def stop(self):
        """Called from another thread: the reader sees the end."""
        self.tell(end="stopped")
        self._connection.reset(self._number)

    close = stop
