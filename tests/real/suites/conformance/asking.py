"""One side of a test: its requests, responses and watches."""
import base64
import gzip
import json
from urllib.parse import parse_qs, urlsplit

from .. import http2, wire
from ..comparison import is_consistent, shown

query = wire.query
WAIT = 30  # seconds that a test waits for something that must arrive


class Failed(Exception):
    """A property that does not hold."""


class GaveUp(Failed):
    """The other side failed first."""


class Response:
    """One response. `cached`: a cache may have answered, so the list's own version is bounded, not compared. FLOOR: by the versions
    before the request."""

    def __init__(self, target, answer, floor=0):
        self.target, self.status, self.headers, self.body = target, answer.status, answer.headers, answer.body
        self.wire_len = len(answer.body)
        if self.headers.get("content-encoding") == "gzip":
            self.body = gzip.decompress(self.body)
        self.cached, at_least = cached_read(target)
        self.at_least = max(at_least, floor)

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failed(f"{self.target}: {self.status}, no JSON: {shown(self.body, 300)}") from None

    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def items(self):
        got = self.json()
        if self.status != 200 or "items" not in got:
            raise Failed(f"{self.target}: no list: {self.status} {shown(self.body, 400)}")
        return got["items"]

    @property
    def names(self):
        return [i["metadata"]["name"] for i in self.items]

    @property
    def keys(self):
        return [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in self.items]

    @property
    def version(self):
        """The version of the list or of the object."""
        return int(self.json()["metadata"]["resourceVersion"])

    @property
    def token(self):
        return self.json()["metadata"].get("continue", "")

    @property
    def remaining(self):
        return self.json()["metadata"].get("remainingItemCount")

    @property
    def reason(self):
        return self.json().get("reason")

    @property
    def message(self):
        return self.json().get("message", "")

    def __str__(self):
        return f"{self.target}: {self.status} {shown(self.body, 300)}"


def token_parts(token):
    """{"v", "rv", "start"} of a continue token."""
    return json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))


def cached_read(target):
    """(whether the server may choose the list's version, the version that it must have reached)."""
    params = {k: v[0] for k, v in parse_qs(urlsplit(target).query, keep_blank_values=True).items()}
    version, match = params.get("resourceVersion", ""), params.get("resourceVersionMatch", "")
    number = int(version) if version.isdecimal() else 0
    if match == "Exact":
        return False, number
    if token := params.get("continue"):
        try:
            return token_parts(token)["rv"] < 0, 0
        except (ValueError, KeyError, TypeError):
            return False, 0
    limit, one = params.get("limit", "0"), "metadata.name=" in params.get("fieldSelector", "")
    paged = limit.isdecimal() and int(limit) > 0
    return not (number and paged and not match) or one, number


class Event:
    """One event of a JSON watch."""

    def __init__(self, frame):
        self.frame, parsed = frame, json.loads(frame)
        self.type, self.object = parsed["type"], parsed["object"]
        self.meta = self.object.get("metadata") or {}
        self.name, self.version = self.meta.get("name"), int(self.meta.get("resourceVersion") or 0)
        self.marker = (self.meta.get("annotations") or {}).get("k8s.io/initial-events-end") == "true"

    def __str__(self):
        return f"{self.type} {self.name or ''} {self.version}{' marker' if self.marker else ''}"

    __repr__ = __str__


class Events(list):
    """The events of a watch that has ended; compared as that watch."""

    def __init__(self, watch):
        super().__init__(watch.events())
        self.watch = watch


class Watch:
    """An open watch. `next` and `until` return events in order; close() discards the events that were not taken. A watch that a test
    has finished with stays open until it is compared, to detect whether the sides end it."""

    left_open = False

    def __init__(self, endpoint, target, headers, random_retry=False):
        self.target, self.random_retry, self.taken = target, random_retry, 0
        self.stream = wire.Stream(endpoint, target, headers)

    def opened(self):
        self.stream.wait_open()
        return self

    @property
    def status(self):
        return self.stream.status

    @property
    def headers(self):
        return self.stream.headers

    @property
    def body(self):
        """The body of a refusal, which is not an event."""
        return self.stream.body

    def json(self):
        return json.loads(self.body)

    @property
    def frames(self):
        return self.stream.frames

    @property
    def end(self):
        return self.stream.end

    def seen(self):
        """The frames, without those that arrived after the test had finished with the watch."""
        return list(self.stream.frames[:self.taken] if self.left_open else self.stream.frames)

    def events(self):
        return [Event(f) for f in self.seen()]

    def finish(self):
        self.left_open = self.end is None

    def next(self, seconds=WAIT):
        """The next event, None at the end of the stream; Failed if neither arrives."""
        frame = self.next_frame(seconds)
        return None if frame is None else Event(frame)

    def next_frame(self, seconds=WAIT):
        try:
            self.stream.wait(lambda s: len(s.frames) > self.taken or s.end, seconds, f"event {self.taken + 1}")
        except wire.WireError as e:
            raise Failed(str(e)) from None
        if len(self.stream.frames) <= self.taken:
            return None
        self.taken += 1
        return self.stream.frames[self.taken - 1]

    def until(self, condition, seconds=WAIT):
        """The events up to and including the first that satisfies the condition."""
        got = []
        while (event := self.next(seconds)) is not None:
            got.append(event)
            if condition(event):
                return got
        raise Failed(f"{self.target}: ended ({self.end}) before the awaited event; got {got}")

    def until_marker(self, seconds=WAIT):
        return self.until(lambda e: e.marker, seconds)

    def wait_end(self, seconds=WAIT):
        try:
            self.stream.wait_end(seconds)
        except wire.WireError as e:
            raise Failed(str(e)) from None
        return Events(self) if self.status == 200 and _is_json(self.stream) else self

    def ended_within(self, seconds):
        try:
            self.stream.wait_end(seconds)
        except wire.WireError:
            return False
        return True

    def close(self):
        if self.end is None:
            self.stream.close()
            self.stream.frames = self.stream.frames[:self.taken]
            self.stream.body = b""


def _is_json(stream):
    return "protobuf" not in stream.headers.get("content-type", "")


class Side:
    """One endpoint under test."""

    def __init__(self, world, is_gateway):
        self.world, self.is_gateway = world, is_gateway
        self.name = "gateway" if is_gateway else "server"
        self._open, self._count, self._mark = [], 0, f"conformance-{world.test.number}-{world.test.name}-{self.name}"

    @property
    def endpoint(self):
        """The endpoint as admin; its address may change when a test restarts servers."""
        return self.world.gateway if self.is_gateway else self.world.stack.server

    def as_user(self, user, target="", headers=None):
        """The endpoint as another of the server's users, over HTTP/2 if that is drawn; "anonymous" has no token, "nobody" an invalid
        one."""
        endpoint = self.endpoint
        if self.world.test.transport() == "http2" and http2.expressible(target, headers):
            endpoint = self.world.stack.over_http2("tls" if self.is_gateway else "server")
        if user == "admin":
            return endpoint
        return endpoint.with_token({"anonymous": None, "nobody": "nope"}.get(user) if user in ("anonymous", "nobody") else self.world.stack.read_token(user))

    def marked(self, headers):
        """With these headers the server's audit log shows which requests were forwarded."""
        self._count += 1
        if self.is_gateway:
            self.world.stack.marked[str(self.world.test)] += 1
        given = {k.lower() for k in headers or {}}
        own = {"User-Agent": self._mark} if "user-agent" not in given else {}
        return {**own, **({} if "audit-id" in given else {"Audit-ID": f"{self._mark}-{self._count}"}), **(headers or {})}

    def get(self, target, headers=None, user="admin", timeout=40):
        return self.request("GET", target, headers, user=user, timeout=timeout)

    def request(self, method, target, headers=None, body=None, user="admin", timeout=40):
        floor = self.world.revision() if method == "GET" and is_consistent(target) and "restart" not in self.world.test.needs else 0
        return Response(target, wire.request(self.as_user(user, target, headers), method, target, self.marked(headers), body, timeout), floor)

    def ask(self, case):
        """Sends the request of a case."""
        return self.request(case.method, case.target, case.headers, case.body, case.user)

    def open(self, target, headers=None, seconds=None, user="admin", random_retry=False):
        """A watch whose headers have arrived. SECONDS is its timeoutSeconds; None: as in the target."""
        if seconds is not None:
            target += f"{'&' if '?' in target else '?'}timeoutSeconds={seconds}"
        self._open.append(watch := Watch(self.as_user(user, target, headers), target, self.marked(headers), random_retry))
        return watch.opened()

    def watch(self, target, headers=None, seconds=2, user="admin", random_retry=False):
        """The events of a watch that ends by its own timeout (for a refused one, or one that is not JSON: the Watch)."""
        return self.open(target, headers, seconds, user, random_retry).wait_end((seconds or 0) + WAIT)

    def watches(self, watch):
        """Registers another watch to be closed when the test has ended."""
        self._open.append(watch)
        return watch

    def close(self):
        for watch in self._open:
            watch.close()
