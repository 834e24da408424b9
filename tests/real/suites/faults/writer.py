"""The writer of the faults suite: a round of one write to each resource, every PACE_SECONDS, through all that is done to the server."""
import http.client
import json
import threading
import time

from .. import fixtures, wire

PACE_SECONDS = 0.2  # between the starts of two rounds
TRY_SECONDS = 2.0  # for one write; a stopped server does not answer
OBJECTS = 40  # of each resource
RECREATE_EVERY = 10  # rounds


def configmap(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * 300}}


THINGS = {
    "pods": (fixtures.pods("default"), fixtures.pod), "configmaps": ("/api/v1/namespaces/default/configmaps", configmap), "widgets": (fixtures.widgets("default"), fixtures.widget),
}


class Writer(threading.Thread):
    """It pauses until it is resumed."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.connection = server, None
        self.rounds, self.writes, self.failed, self.refused = 0, 0, 0, []
        self.going, self.resting, self.ending = threading.Event(), threading.Event(), threading.Event()
        self._last, self._gap = {}, 0.0

    def run(self):
        while not self.ending.is_set():
            if not self.going.is_set():
                self.resting.set()
                self.going.wait()
                self.resting.clear()
                continue
            began = time.monotonic()
            self.round()
            self.ending.wait(max(0.0, PACE_SECONDS - (time.monotonic() - began)))

    def round(self):
        """A round counts if every write was answered."""
        whole = True
        for resource, (collection, make) in THINGS.items():
            try:
                self.write(collection, make)
                self.acknowledged(resource)
            except (OSError, http.client.HTTPException, ValueError):  # the server is away
                whole, self.connection = False, None
                self.failed += 1
        self.rounds += whole

    def write(self, collection, make):
        turn = self.rounds
        if turn % RECREATE_EVERY == 0:
            name = f"t{turn // RECREATE_EVERY % 3}"
            self.call("DELETE", f"{collection}/{name}")
            self.call("POST", collection, make(name))
        self.call("PATCH", f"{collection}/o{turn % OBJECTS}", {"metadata": {"annotations": {"note": f"{turn}"}}}, fixtures.MERGE)

    def call(self, method, target, body=None, content_type="application/json"):
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.server.host, self.server.port, timeout=TRY_SECONDS, context=self.server.tls)
        self.connection.request(method, target, body and json.dumps(body), {"Authorization": f"Bearer {self.server.token}", "Content-Type": content_type})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 500 or answer.status == 429:  # the server, or etcd, is stopping or starting
            raise ValueError(answer.status)
        if answer.status not in (200, 201, 404, 409) and len(self.refused) < 5:
            self.refused.append(f"{method} {target}: {answer.status} {text[:300]}")
        self.writes += 1

    def acknowledged(self, resource):
        now = time.monotonic()
        self._gap = max(self._gap, now - self._last.get(resource, now))
        self._last[resource] = now

    def lap(self):
        """The longest time between two writes to a resource that were answered, since the last lap. Only while it pauses."""
        longest, self._gap, self._last = self._gap, 0.0, {}
        return longest

    def wait_rounds(self, count, seconds=120):
        self.going.set()
        goal = self.rounds + count
        wire.poll(f"{count} rounds of writes", lambda: self.rounds >= goal, seconds, 0.02)

    def rest(self):
        """Returns when no write is in flight."""
        self.going.clear()
        if not self.resting.wait(60):
            raise wire.WireError("the writer does not pause")

    def end(self):
        self.ending.set()
        self.going.set()
        self.join(30)
