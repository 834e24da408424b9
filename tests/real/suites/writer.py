"""A writer that goes on through all that is done to the server. It does not matter which writes were acknowledged, because clients are
compared with the server's state and not with the writer's."""
import http.client
import json
import threading
import time

from . import fixtures, wire

AWAY_SECONDS = 0.1  # between two attempts at a server that is away


class Writer(threading.Thread):
    """It pauses until it is resumed. turn() writes, and returns whether the turn counts; a failed write is given up."""

    def __init__(self, server, pace_seconds, try_seconds):
        super().__init__(daemon=True)
        self.server, self.connection, self.pace_seconds, self.try_seconds = server, None, pace_seconds, try_seconds
        self.turns, self.refused = 0, []
        self.going, self.resting, self.ending = threading.Event(), threading.Event(), threading.Event()

    def run(self):
        while not self.ending.is_set():
            if not self.going.is_set():
                self.resting.set()
                self.going.wait()
                self.resting.clear()
                continue
            began = time.monotonic()
            self.turns += self.turn()
            self.ending.wait(max(0.0, began + self.pace_seconds - time.monotonic()) if self.connection else AWAY_SECONDS)

    def attempt(self, write):
        """Whether WRITE() was answered."""
        try:
            write()
            return True
        except (OSError, http.client.HTTPException, ValueError):  # the server is away
            self.connection = None
            return False

    def call(self, method, target, body=None, content_type="application/json"):
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.server.host, self.server.port, timeout=self.try_seconds, context=self.server.tls)
        self.connection.request(method, target, body and json.dumps(body), {"Authorization": f"Bearer {self.server.token}", "Content-Type": content_type})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 500 or answer.status == 429:  # the server, or etcd, is stopping or starting
            raise ValueError(answer.status)
        if answer.status not in (200, 201, 404, 409) and len(self.refused) < 5:
            self.refused.append(f"{method} {target}: {answer.status} {text[:300]}")
        return answer.status

    def patch(self, target, change):
        return self.call("PATCH", target, change, fixtures.MERGE)

    def write_more(self, count, seconds=120):
        """Waits until COUNT more turns have counted; then continues."""
        goal = self.turns + count
        self.going.set()
        wire.poll(f"{count} more writes", lambda: self.turns >= goal or not self.is_alive(), seconds, 0.02)

    def rest(self):
        """Pauses; returns when no write is in flight."""
        self.going.clear()
        if not self.resting.wait(60):
            raise wire.WireError("the writer does not pause")

    def end(self):
        self.ending.set()
        self.going.set()
        self.join(30)
