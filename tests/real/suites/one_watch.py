"""The one-watch suite: many clients through the gateway are one watch a resource upstream, by the server's own count."""
import json
import threading

from . import fixtures, wire
from .stack import Stack

CLIENTS = 200  # of each resource
WRITES = 5
GAUGE = "apiserver_longrunning_requests"


class Crowd:
    """Clients of one collection: each lists, then watches from the list's version."""

    def __init__(self, endpoint, collection):
        self.collection, self.streams = collection, []
        answer = wire.request(endpoint, "GET", wire.query(collection, resourceVersion=0))
        start = json.loads(answer.body)["metadata"]["resourceVersion"]
        for i in range(CLIENTS):
            params = {"resourceVersion": start} if i % 2 else {"resourceVersion": 0, "allowWatchBookmarks": "true"}
            self.streams.append(wire.Stream(endpoint, wire.query(collection, watch="true", timeoutSeconds=300, **params), {"Accept": "application/json"}))

    def wait_open(self):
        for stream in self.streams:
            stream.wait_open(60)
        return sum(s.status == 200 for s in self.streams)

    def wait_all(self, versions):
        """How many clients got all of these versions, in order and once."""
        def good(stream):
            return [v for v in seen(stream) if v in versions] == versions
        for stream in self.streams:
            try:
                stream.wait(good, 30, "all events")
            except wire.WireError as e:
                print(f"     | {e}")
        return sum(good(s) for s in self.streams)

    def close(self):
        threads = [threading.Thread(target=s.close) for s in self.streams]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def seen(stream):
    out = []
    for frame in list(stream.frames):
        parsed = json.loads(frame)
        if parsed["type"] != "BOOKMARK":
            out.append(int(parsed["object"]["metadata"].get("resourceVersion", 0)))
    return out


def run(report):
    with Stack("one-watch", fixtures.with_widgets) as stack:
        api = fixtures.Api(stack.server)
        for i in range(5):
            api.create(fixtures.pods("default"), fixtures.pod(f"p{i}"))
            api.create(fixtures.widgets("default"), fixtures.widget(f"w{i}"))
        resources = {"pods": (fixtures.pods(), f"{fixtures.pods('default')}/p0"), "widgets": (fixtures.widgets(), f"{fixtures.widgets('default')}/w0")}
        before = {name: stack.metric(GAUGE, verb="WATCH", resource=name) for name in resources}

        def watches(name, expected):
            """How many more than before, once it is what is expected or ten seconds have gone."""
            more = lambda: stack.metric(GAUGE, verb="WATCH", resource=name) - before[name]
            try:
                wire.poll("the count of watches", lambda: more() == expected, 10, 0.3)
            except wire.WireError:
                pass
            return more()
        crowds = {name: Crowd(stack.plain, collection) for name, (collection, _) in resources.items()}
        try:
            for name, crowd in crowds.items():
                opened = crowd.wait_open()
                report.check(f"{CLIENTS} clients watch {name}", opened == CLIENTS, f"{opened} of {CLIENTS} streams answered 200")
                expected = CLIENTS if stack.direct else 1
                got = watches(name, expected)
                report.check(f"the server counts {expected} watch(es) of {name}", got == expected, f"before {before[name]:.0f}, now {got:.0f} more", "no gateway" if stack.direct else "")
            for name, (_, target) in resources.items():
                versions = [api.label(target, n=str(i)) for i in range(WRITES)]
                good = crowds[name].wait_all(versions)
                report.check(f"all clients of {name} got {WRITES} events", good == CLIENTS, f"{good} of {CLIENTS}")
                got = watches(name, expected)
                report.check(f"the server still counts {expected} watch(es) of {name}", got == expected, f"{got:.0f}")
            if not stack.direct:
                lists = stack.metric("apiserver_request_total", verb="LIST", resource="pods")
                report.check("lists of pods upstream are few", lists <= 5, f"{lists:.0f} lists", f"{lists:.0f} lists")
        finally:
            for crowd in crowds.values():
                crowd.close()
