"""The writer: a round of one write to each resource, every PACE_SECONDS, through all that is done to the server."""
import time

from .. import fixtures, writer

PACE_SECONDS = 0.2  # between the starts of two rounds
TRY_SECONDS = 2.0  # for one write; a stopped server does not answer
OBJECTS = 40  # of each resource
RECREATE_EVERY = 10  # rounds


def configmap(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * 300}}


THINGS = {
    "pods": (fixtures.pods("default"), fixtures.pod), "configmaps": ("/api/v1/namespaces/default/configmaps", configmap), "widgets": (fixtures.widgets("default"), fixtures.widget),
}


class Writer(writer.Writer):
    def __init__(self, server):
        super().__init__(server, PACE_SECONDS, TRY_SECONDS)
        self._last, self._gap = {}, 0.0

    def turn(self):
        """A round counts if every write was answered."""
        return all([self.attempt(lambda resource=resource: self.write(resource)) for resource in THINGS])

    def write(self, resource):
        collection, make = THINGS[resource]
        if self.turns % RECREATE_EVERY == 0:
            name = f"t{self.turns // RECREATE_EVERY % 3}"
            self.call("DELETE", f"{collection}/{name}")
            self.call("POST", collection, make(name))
        self.patch(f"{collection}/o{self.turns % OBJECTS}", {"metadata": {"annotations": {"note": f"{self.turns}"}}})
        now = time.monotonic()
        self._gap = max(self._gap, now - self._last.get(resource, now))
        self._last[resource] = now

    def lap(self):
        """The longest time between two writes to a resource that were answered, since the last lap. Only while it pauses."""
        longest, self._gap, self._last = self._gap, 0.0, {}
        return longest
