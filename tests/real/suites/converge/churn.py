"""Writes for the converge suite: objects are created, changed, moved into and out of selectors, deleted and recreated."""
import random

from .. import fixtures
from ..writer import Writer

SEED = 20260717
NAMES = 24  # per resource and namespace
NAMESPACES = ("default", "other")
APPS = ("demo", "test", "prod")
NODES = 3
PACE_SECONDS, TRY_SECONDS = 0.012, 20  # between the starts of two writes; for one of them
BIG_EVERY, BIG_BYTES = 60, 300_000
ANNOTATION_MAX = 400


def configmap(name, labels, text):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"text": text, "quoted": 'a "b" <c> & \\ \u2028 \U0001f600'}}


class Churn(Writer):
    def __init__(self, server):
        super().__init__(server, PACE_SECONDS, TRY_SECONDS)
        self.random = random.Random(SEED)

    def turn(self):
        return self.attempt(self.write)

    def write(self):
        choose = self.random
        collection, make = choose.choice(((fixtures.pods, self.pod), (fixtures.pods, self.pod), (fixtures.widgets, self.widget), (configmaps, self.configmap)))
        where, name = collection(choose.choice(NAMESPACES)), f"o{choose.randrange(NAMES)}"
        if collection is configmaps and choose.randrange(BIG_EVERY // 4) == 0:
            self.change(configmaps("default"), "big", {"data": {"text": chr(97 + choose.randrange(26)) * BIG_BYTES}}, lambda: configmap("big", {}, ""))
        elif (what := choose.randrange(10)) == 0:
            self.call("DELETE", f"{where}/{name}")
        elif what == 1:  # recreated immediately
            self.call("DELETE", f"{where}/{name}")
            self.call("POST", where, make(name))
        elif what <= 5:
            self.change(where, name, {"metadata": {"labels": {"app": choose.choice(APPS), "turn": str(self.turns)}}}, lambda: make(name))
        elif what == 6:  # without the label that selectors require
            self.change(where, name, {"metadata": {"labels": {"app": None}}}, lambda: make(name))
        else:
            self.change(where, name, {"metadata": {"annotations": {"note": "x" * choose.randrange(ANNOTATION_MAX)}}}, lambda: make(name))

    def change(self, where, name, change, make):
        if self.patch(f"{where}/{name}", change) == 404:
            self.call("POST", where, make())

    def pod(self, name):
        return fixtures.pod(name, {"app": self.random.choice(APPS)}, f"node-{self.random.randrange(NODES)}")

    def widget(self, name):
        return fixtures.widget(name, {"app": self.random.choice(APPS)}, self.random.choice(("red", "blue")), self.random.randrange(1000))

    def configmap(self, name):
        return configmap(name, {"app": self.random.choice(APPS)}, "y" * self.random.randrange(2000))


def configmaps(namespace=None):
    return f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"
