"""Writes for the converge suite: objects are created, changed, moved into and out of selectors, deleted and recreated.

Continues through restarts of the server: a failed write is abandoned, and the next one is tried. It does not matter which
writes were acknowledged, because the clients are compared with the server's state and not with the writer's."""
import http.client
import json
import random
import threading

from .. import fixtures, wire

SEED = 20260717
NAMES = 24  # per resource and namespace
NAMESPACES = ("default", "other")
APPS = ("demo", "test", "prod")
NODES = 3
PACE_SECONDS = 0.008  # minimum between two writes
BIG_EVERY, BIG_BYTES = 60, 300_000
ANNOTATION_MAX = 400


def configmap(name, labels, text):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"text": text, "quoted": 'a "b" <c> & \\ \u2028 \U0001f600'}}


class Churn(threading.Thread):
    """The writer; it pauses until it is resumed."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.random, self.connection = server, random.Random(SEED), None
        self.done, self.failed, self.refused = 0, 0, []
        self.going, self.resting, self.ending = threading.Event(), threading.Event(), False

    def run(self):
        while not self.ending:
            if not self.going.is_set():
                self.resting.set()
                self.going.wait()
                self.resting.clear()
                continue
            try:
                self.write()
                self.done += 1
            except (OSError, http.client.HTTPException, ValueError):  # the server is away
                self.failed += 1
                self.connection = None
            self.pause()

    def pause(self):
        pacing = threading.Event()
        pacing.wait(PACE_SECONDS if self.connection else 0.1)

    def write_more(self, count, seconds=120):
        """Writes until COUNT more writes were answered; then continues."""
        goal = self.done + count
        self.going.set()
        wire.poll(f"{count} more writes", lambda: self.done >= goal or not self.is_alive(), seconds, 0.05)

    def rest(self):
        """Pauses; returns when no write is in flight."""
        self.going.clear()
        if not self.resting.wait(60):
            raise wire.WireError("the writer does not pause")

    def end(self):
        self.ending = True
        self.going.set()
        self.join(30)

    def call(self, method, target, body=None, content_type="application/json"):
        if not self.connection:
            self.connection = http.client.HTTPSConnection(self.server.host, self.server.port, timeout=20, context=self.server.tls)
        self.connection.request(method, target, body and json.dumps(body), {"Authorization": f"Bearer {self.server.token}", "Content-Type": content_type})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 500 or answer.status == 429:  # the server is stopping or starting
            raise ValueError(answer.status)
        if answer.status not in (200, 201, 404, 409) and len(self.refused) < 5:
            self.refused.append(f"{method} {target}: {answer.status} {text[:300]}")
        return answer.status

    def write(self):
        choose = self.random
        collection, make = choose.choice(((fixtures.pods, self.pod), (fixtures.pods, self.pod), (fixtures.widgets, self.widget), (configmaps, self.configmap)))
        where, name = collection(choose.choice(NAMESPACES)), f"o{choose.randrange(NAMES)}"
        if collection is configmaps and choose.randrange(BIG_EVERY // 4) == 0:
            self.patch(configmaps("default"), "big", {"data": {"text": chr(97 + choose.randrange(26)) * BIG_BYTES}}, lambda: configmap("big", {}, ""))
        elif (what := choose.randrange(10)) == 0:
            self.call("DELETE", f"{where}/{name}")
        elif what == 1:  # recreated immediately
            self.call("DELETE", f"{where}/{name}")
            self.call("POST", where, make(name))
        elif what <= 5:
            self.patch(where, name, {"metadata": {"labels": {"app": choose.choice(APPS), "turn": str(self.done)}}}, lambda: make(name))
        elif what == 6:  # without the label that selectors require
            self.patch(where, name, {"metadata": {"labels": {"app": None}}}, lambda: make(name))
        else:
            self.patch(where, name, {"metadata": {"annotations": {"note": "x" * choose.randrange(ANNOTATION_MAX)}}}, lambda: make(name))

    def patch(self, where, name, change, make):
        if self.call("PATCH", f"{where}/{name}", change, fixtures.MERGE) == 404:
            self.call("POST", where, make())

    def pod(self, name):
        return fixtures.pod(name, {"app": self.random.choice(APPS)}, f"node-{self.random.randrange(NODES)}")

    def widget(self, name):
        return fixtures.widget(name, {"app": self.random.choice(APPS)}, self.random.choice(("red", "blue")), self.random.randrange(1000))

    def configmap(self, name):
        return configmap(name, {"app": self.random.choice(APPS)}, "y" * self.random.randrange(2000))


def configmaps(namespace=None):
    return f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"
