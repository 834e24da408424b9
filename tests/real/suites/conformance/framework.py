"""What a conformance test is written with.

    def three_pods(t):                    # once, before the sides run; then both sides are waited for
        for name in "abc":
            t.create(t.pods, fixtures.pod(name))

    @entry(14, "a_first_page_has_a_token_and_a_count", setup=three_pods)
    def test(side, t):
        "The first page tells how much is left."
        got = side.get(query(t.pods, limit=2))
        t.check(got.names == ["a", "b"], f"a page of two: {got.names}")
        return got                        # compared with the other side's

`side` is one endpoint, `t` the test's own world: a namespace and the writes in it, which always go to the server. Both sides
run at the same time, each in a thread. A test returns any combination of JSON values, Responses, Watches and lists of Events;
outcome.py documents what is masked. A test with live=True may write while its streams are open: t.once(write) waits for both
sides, writes once, and lets both continue.
"""
import functools
import importlib
import threading
from dataclasses import dataclass
from pathlib import Path

from .. import fixtures, stack as stacks, wire
from .asking import WAIT, Event, Events, Failed, GaveUp, Response, Side, Watch, query, token_parts  # noqa: F401 (for tests)

TESTS, PINS = [], {}


@dataclass
class Test:
    number: int
    name: str
    needs: tuple
    live: bool
    setup: object
    run: object
    lasts: int = 0
    plain: bool = False

    def transport(self):
        """The transport of its requests. Tests that stop servers warm the plain gateway only."""
        return "plain" if self.plain or self.needs else stacks.drawn(self.name)

    def __str__(self):
        return f"{self.number} {self.name}"


@dataclass
class Pin:
    """The test that proves an entry inside the gateway, when little or nothing of it is visible from outside."""
    unit: str  # path of a unit test, as `cargo test` prints it, or empty
    why: str
    observable: bool


def entry(number, name, needs=(), setup=None, live=False, lasts=0, plain=False):
    """Registers a test of one entry, named by a snake_case sentence. A test that LASTS many seconds is among the first to start. A
    test about HTTP/1.1 or about the plain gateway's own counts is PLAIN; of the others, a tenth runs over TLS and a tenth over
    HTTP/2. NEEDS selects another time to run at:

    "alone"       no other test writes or sends requests meanwhile; also for floods, which make the server end other tests' watches
    "compaction"  after the setups everything is compacted (t.compacted), and server and gateway restart
    "restart"     a server of its own, one test at a time, that may be killed (t.stack)"""
    def register(run):
        TESTS.append(Test(number, name, (needs,) if isinstance(needs, str) else tuple(needs), live, setup, run, lasts, plain))
        return run
    return register


def pinned(number, unit="", why="", observable=True):
    """Adds to an entry's row in the table: a unit test in src/, or the reason why nothing is visible from outside."""
    PINS[number] = Pin(unit, why, observable)


class World:
    """A test's own state: `pods` and `widgets` of its namespace, its writes, and the `versions` of these writes."""

    def __init__(self, test, stack, namespace, shared=None):
        self.test, self.stack, self.namespace, self.shared = test, stack, namespace, shared
        self.pods, self.widgets = fixtures.pods(namespace), fixtures.widgets(namespace)
        self.versions, self.compacted, self.state = {}, None, None
        self._touched, self._may_write = {}, True
        self._meeting, self._arrived, self._gone, self._results = threading.Condition(), 0, False, []
        self._undo, self._writer = [], threading.local()

    @property
    def gateway(self):
        """The gateway under test."""
        return self.stack.plain if self.test.transport() == "plain" else self.stack.tls

    # --- writes, always to the server ---

    @property
    def api(self):
        return fixtures.Api(self.stack.server)

    def _wrote(self, collection, name, version):
        self.versions.setdefault(name, []).append(version)
        self._touched[collection] = max(version, self._touched.get(collection, 0))
        return version

    def _writable(self):
        if not self._may_write and not getattr(self._writer, "allowed", False):
            raise RuntimeError("writes belong into setup or, with live=True, into t.once()")

    def create(self, collection, thing):
        """Creates an object; returns its resource version."""
        self._writable()
        return self._wrote(collection, thing["metadata"]["name"], self.api.create(collection, thing))

    def update(self, target, change):
        """Applies a merge patch; returns the object's new resource version."""
        self._writable()
        collection, _, name = target.rpartition("/")
        return self._wrote(collection, name, self.api.patch(target, change))

    def label(self, target, **labels):
        return self.update(target, {"metadata": {"labels": labels}})

    def delete(self, target):
        """Deletes an object; returns the store's revision after the deletion, which is at least the deletion's own."""
        self._writable()
        self.api.delete(target)
        collection, _, name = target.rpartition("/")
        mark = {"apiVersion": "v1", "metadata": {"name": f"after-{self.namespace}-{name}"}}
        if collection.endswith(("/pods", "/widgets")):  # only for these can a cache be waited for
            plural = collection.rpartition("/")[2]
            make = fixtures.pod if plural == "pods" else fixtures.widget
            where = (fixtures.pods if plural == "pods" else fixtures.widgets)("after-deletions")
            self._touched[collection] = self.api.create(where, make(f"{mark['metadata']['name']}-{self.revision()}"))
        return self.revision()

    def revision(self):
        """etcd's revision."""
        return self.stack.revision()

    # --- both sides ---

    def wait_gateway(self, version=None):
        """Waits until both sides' caches hold VERSION of every resource written to (default: the newest write of each)."""
        for collection, newest in self._touched.items():
            for side in (self.stack.server, self.gateway):
                fixtures.wait_served(side, collection, version or newest)
                if not collection.startswith(fixtures.GROUP):
                    fixtures.wait_served(side, collection, version or newest, accept=wire.PROTOBUF)

    def once(self, write):
        """Both sides wait for each other, WRITE() runs once; returns its result to both."""
        if not self.test.live:
            raise RuntimeError("t.once() needs live=True")
        with self._meeting:
            if self._gone:
                raise GaveUp("the other side gave up")
            turn = len(self._results)
            self._arrived += 1
            if self._arrived == 2:
                self._arrived = 0
                self._results.append(self._run(write))
                self._meeting.notify_all()
            elif not self._meeting.wait_for(lambda: len(self._results) > turn or self._gone, 180) or len(self._results) == turn:
                raise GaveUp("the other side gave up")
            value, error = self._results[turn]
        if error:
            raise error
        return value

    def _run(self, write):
        """(result, error)"""
        self._may_write = True
        try:
            return write(), None
        except Exception as e:  # reported to both sides
            return None, e
        finally:
            self._may_write = False

    def check(self, condition, text):
        """Checks the property of the entry; TEXT describes what was found instead."""
        if not condition:
            raise Failed(text)

    def cases(self, number, **parts):
        """The requests of an entry on the resting state; PARTS={"name": "…"} narrows them."""
        if not self.shared:
            raise RuntimeError("the shared state is not in this phase")
        return [c for c in self.shared.of(number) if all(p in getattr(c, k) for k, p in parts.items())]

    def compact(self, version):
        """Compacts etcd; server and gateway keep running."""
        self.stack.etcd("/v3/kv/compaction", {"revision": str(version), "physical": True})

    def writing(self, write):
        """For threads started by a write of t.once()."""
        self._writer.allowed = True
        write()

    def cleanup(self, undo):
        """Registers an action that runs even if the test fails."""
        self._undo.append(undo)

    # --- the runner's ---

    def end(self):
        for undo in reversed(self._undo):
            undo()

    def prepare(self):
        if self.test.setup:
            self.state = self.test.setup(self)
            self.wait_gateway()
        self._may_write = False

    def give_up(self):
        with self._meeting:
            self._gone = True
            self._meeting.notify_all()


@functools.lru_cache(maxsize=None)
def load():
    """All tests, in the order of the checklist."""
    for module in sorted(p.stem for p in Path(__file__).parent.glob("*.py")):
        if not module.endswith("_test"):
            importlib.import_module(f".{module}", __package__)
    TESTS.sort(key=lambda t: t.number)
    return TESTS
