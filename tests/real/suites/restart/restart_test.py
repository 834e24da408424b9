"""The API server is killed and restarted under load, the gateways are stopped and continued, and
history is compacted while the server is away.

Clients behind the gateway keep their streams; the received events are compared with etcd's own history (judge.py). Without a
gateway the suite checks that it would detect a failure: a killed server ends its streams."""
import base64
import os
import signal
import threading
import time

import pytest

from .. import fixtures, quiet, wire
from ..stack import Stack
from .clients import COLLECTIONS, key, matching, open_clients, warm
from .history import PREFIX, History, b64
from .judge import expected, judge

OBJECTS = 20
ROUNDS_BETWEEN = 150  # acknowledged writes before and after each restart
RESTARTS = 2
WRITES_AWAY = 16  # until all clients have recovered
PAUSE_SECONDS, PAUSE_AWAY_SECONDS = 0.01, 0.2  # after each write
EXCUSED_SHARE_MAX = 0.10  # of the events that streams had to carry: an outage has WRITES_AWAY of about 320 writes, and those that were in flight
STOPPED_SECONDS = 5
SILENCE_SECONDS = 0.3


class Load(threading.Thread):
    """Writes to both resources in turn, through restarts: a failed write is retried later. `allowed`: how many more writes, if limited."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.done, self.ending, self.newest, self.allowed = api, 0, threading.Event(), 0, None

    def run(self):
        turn = 0
        while not self.ending.is_set():
            turn += 1
            resource, i = ("pods", "widgets")[turn % 2], turn // 2
            try:
                self.write(resource, COLLECTIONS[resource], i)
                self.done += 1
                self.allowed = self.allowed and self.allowed - 1
            except (OSError, wire.WireError, ValueError):
                self.ending.wait(0.05)  # the server is away
            self.ending.wait(PAUSE_SECONDS if self.allowed is None else PAUSE_AWAY_SECONDS)
            while self.allowed == 0 and not self.ending.is_set():
                self.ending.wait(0.02)

    def write(self, resource, where, i):
        make = {"pods": fixtures.pod, "widgets": fixtures.widget}[resource]
        if i % 7 == 0:
            self.api.call("DELETE", f"{where}/t{i % 3}", good=(200, 404))
        elif i % 5 == 0:
            self.api.call("POST", where, make(f"t{i % 3}", {"app": "demo"}), good=(201, 409))
        else:
            self.newest = self.api.patch(f"{where}/o{i % OBJECTS}", matching(resource, i, labels=i % 3 > 0, node=i % 7 < 4))

    def wait_more(self, count):
        goal = self.done + count
        wire.poll(f"{count} more writes", lambda: self.done >= goal, 90, 0.05)

    def wait_allowed(self):
        wire.poll("the writes of an outage", lambda: self.allowed == 0, 60, 0.05)

    def end(self):
        self.ending.set()
        self.join(60)


def converge(clients, api, seconds=60):
    """Waits until every client's state is the server's; returns the differences."""
    def differing():
        out, truth = [], {}
        for c in clients:
            target = wire.query(COLLECTIONS[c.resource], **c.selector.params)
            if target not in truth:
                truth[target] = {key(i["metadata"]): (fixtures.version(i), i["metadata"]["uid"]) for i in api.get(target)["items"]}
            state, wanted = c.state(), truth[target]
            if state != wanted:
                odd = {k: (state.get(k), wanted.get(k)) for k in state.keys() | wanted.keys() if state.get(k) != wanted.get(k)}
                out.append(f"{c.name}: (client, server) {dict(list(odd.items())[:5])}; stream: {c.stream.end or 'open'}")
        return out
    try:
        wire.poll("the same state", lambda: not differing(), seconds, 0.3)
    except wire.WireError:
        return differing()
    return []


def judge_streams(check, when, clients, stack):
    """The properties that must hold after each disturbance."""
    ended = [c for c in clients if c.stream.end]
    if stack.direct:
        check(f"{when}: without a gateway all streams end", len(ended) == len(clients), f"{len(ended)} of {len(clients)}")
        return False
    check(f"{when}: all {len(clients)} streams are open", not ended, "\n".join(f"{c.name}: {c.stream.end}" for c in ended[:5]))
    faults = [f"{c.name}: {f}" for c in clients for f in c.faults()]
    check(f"{when}: versions increase, no event twice, no ERROR", not faults, "\n".join(faults[:10]))
    return True


def judge_history(check, when, clients, stack, outages):
    """Every stream against etcd's history. OUTAGES(client, history): the client's own."""
    events = excused = 0
    for resource in PREFIX:
        of, history, faults = [c for c in clients if c.resource == resource], History(stack, resource), []
        writes, initial = history.since(min(c.start for c in of)), {start: history.at(start) for start in {c.start for c in of}}
        for c in of:
            selected = {k: (version, thing.uid) for k, (version, thing) in initial[c.start].items() if c.selector.matches(thing)}
            if selected != c.initial:
                faults.append(f"{c.name}: its list was not the state of {c.start}")
            wanted = expected(initial[c.start], [w for w in writes if w[0] > c.start], c.selector.matches)
            verdict = judge(selected, wanted, c.events(), outages(c, writes))
            events, excused = events + verdict.events, excused + verdict.excused
            faults += [f"{c.name}: {f}" for f in verdict.faults]
        check(f"{when}: streams of {resource} carry what was written", not faults, f"{len(faults)} faults\n" + "\n".join(faults[:10]))
    return events, excused


def end_in_quiet(check, when, clients, api):
    for resource, collection in COLLECTIONS.items():
        target = f"{collection}/o1"
        api.patch(target, matching(resource, 0))  # matches all selectors
        quiet.stream_bursts(check, f"{when}: clients of {resource}", api, target, [c.stream for c in clients if c.resource == resource])


class Outage:
    """The server is gone: `low`, the newest event that each gateway's cache had; `revision`, after which every write is new."""

    def __init__(self, check, stack, clients):
        self.check, self.stack, self.clients = check, stack, clients
        self.revision = History(stack, "pods").now()[0]
        self._wait_silence()
        self.low = {g: max(c.newest() or c.start for c in clients if c.group == g and not c.selector.name) for g in {c.group for c in clients}}

    def _wait_silence(self):
        """Waits until no event is in flight. Clients that share a cache then have the same."""
        seen, since = None, time.monotonic()

        def silent():
            nonlocal seen, since
            now = sum(c.stream.received for c in self.clients)
            seen, since = now, since if now == seen else time.monotonic()
            return time.monotonic() - since > SILENCE_SECONDS
        wire.poll("silence", silent, 30, 0.02)
        if self.stack.direct:
            return
        whole = [c for c in self.clients if not c.selector.name]
        newest = lambda group: max(c.newest() for c in whole if c.group == group)
        quiet.end(self.check, "the server is gone: clients of one cache have the same", lambda: [c.name for c in whole if c.newest() < newest(c.group)], lambda: sum(c.stream.received for c in whole))

    def of(self, client, writes):
        """(low, high) for one client. The writer does not know the version of a deletion, and one write may be in flight: these belong to
        the outage."""
        stamp = client.stamp_after(self.revision)
        later = [version for version, _, _ in writes if stamp is not None and version > stamp]
        return self.low[client.group], later[1] if len(later) > 1 else float("inf")


@pytest.fixture(scope="module")
def stack(during):
    with during(Stack("restart", fixtures.with_widgets)) as stack:
        api = fixtures.Api(stack.server)
        for i in range(OBJECTS):
            api.create(fixtures.pods("default"), fixtures.pod(f"o{i}", {"app": "demo"}))
            api.create(fixtures.widgets("default"), fixtures.widget(f"o{i}", {"app": "demo"}))
        warm(stack)
        yield stack


@pytest.fixture
def api(stack):
    return fixtures.Api(stack.server)


def restart_server(check, stack, api, load, clients):
    """One outage; returns when all clients have recovered."""
    load.wait_more(ROUNDS_BETWEEN)
    stack.kill_server()
    outage = Outage(check, stack, clients)
    load.allowed = WRITES_AWAY
    stack.start_server()
    load.wait_allowed()
    for resource, collection in COLLECTIONS.items():  # a write for every client, which ends the outage for those that no other write concerns
        load.newest = api.patch(f"{collection}/o1", matching(resource, 0))
        for c in clients if not stack.direct else ():
            if c.resource == resource:
                c.stream.wait(lambda s, c=c: s.end or c.stamp_after(outage.revision), 60, "event after the restart")
    load.allowed = None
    load.wait_more(ROUNDS_BETWEEN)
    return outage


def test_the_server_is_killed_while_writes_are_in_flight(check, stack, api):
    load = Load(api)
    load.start()
    load.wait_more(OBJECTS)
    clients = open_clients(stack, lambda: load.newest)
    try:
        outages = [restart_server(check, stack, api, load, clients) for _ in range(RESTARTS)]
        load.end()
        when = f"{RESTARTS} restarts of the server under load"
        if judge_streams(check, when, clients, stack):
            odd = converge(clients, api)
            check(f"{when}: every client has the server's state", not odd, "\n".join(odd[:10]))
            end_in_quiet(check, when, clients, api)
            events, excused = judge_history(check, when, clients, stack, lambda c, writes: [o.of(c, writes) for o in outages])
            share = f"{excused} of {events} events, {excused / events:.1%}"
            check(f"{when}: at most {EXCUSED_SHARE_MAX:.0%} of the events are excused by an outage", excused <= EXCUSED_SHARE_MAX * events, share)
    finally:
        load.end()
        for c in clients:
            c.stream.close()


@pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="there is no gateway")
def test_no_event_is_missing_after_gateways_were_suspended(check, stack, api):
    load = Load(api)
    load.start()
    load.wait_more(OBJECTS)
    clients = open_clients(stack)
    when = f"gateways stopped for {STOPPED_SECONDS} s under load"
    try:
        load.wait_more(ROUNDS_BETWEEN)
        began = time.monotonic()
        for process in stack.gateways.values():
            process.send_signal(signal.SIGSTOP)
        before = load.done
        wire.poll("the end of the pause", lambda: time.monotonic() - began > STOPPED_SECONDS, 60, 0.1)
        written = load.done - before
        for process in stack.gateways.values():
            process.send_signal(signal.SIGCONT)
        load.wait_more(ROUNDS_BETWEEN)
        load.end()
        judge_streams(check, when, clients, stack)
        check(f"{when}: there were writes meanwhile", written > 0)
        end_in_quiet(check, when, clients, api)
        judge_history(check, when, clients, stack, lambda c, writes: [])
    finally:
        for process in stack.gateways.values():
            process.send_signal(signal.SIGCONT)
        load.end()
        for c in clients:
            c.stream.close()


def rewrite(stack, name):
    """Writes to etcd while no API server runs: changes, deletions, an object recreated with another uid, a new object."""
    _, items = History(stack, name).now()
    put = lambda k, value: stack.etcd("/v3/kv/put", {"key": b64(k), "value": b64(value)})
    drop = lambda k: stack.etcd("/v3/kv/deleterange", {"key": b64(k)})
    keys = [f"{PREFIX[name]}default/o{i}" for i in range(10)]
    value = {k: base64.b64decode(items[k][0]) for k in keys}
    for k in keys[:5]:  # the same value at a new revision: MODIFIED
        put(k, value[k])
    for k in keys[5:8]:
        drop(k)
    drop(keys[8])
    put(keys[8], other_uid(value[keys[8]]))
    put(f"{PREFIX[name]}default/n9", other_uid(value[keys[9]]).replace(b"o9", b"n9", 1))


def other_uid(value):
    uid = uid_in(value)
    return value.replace(uid, bytes(reversed(uid[:8])) + uid[8:])


def uid_in(value):
    """The uid in a stored protobuf object: 36 characters with dashes at their positions."""
    for at in range(len(value) - 36):
        text = value[at:at + 36]
        if all(text[i] == 45 for i in (8, 13, 18, 23)) and all(c in b"0123456789abcdef-" for c in text):
            return text
    raise ValueError("no uid")


def test_history_is_compacted_while_the_server_is_away(check, stack, api):
    """No watch can resume."""
    clients = open_clients(stack)
    marks = {name: api.patch(f"{c}/o1", matching(name, 1)) for name, c in COLLECTIONS.items()}
    try:
        for c in clients:
            c.stream.wait(lambda s, c=c: any(e.version == marks[c.resource] for e in c.events()), 30, "the last event before")
        stack.kill_server()
        for name in COLLECTIONS:
            rewrite(stack, name)
        revision, _ = History(stack, "pods").now()
        stack.etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        stack.start_server()
        after = {name: wire.poll(f"a write to the {name}", lambda name=name, c=c: api.patch(f"{c}/o2", matching(name, 2)), 30) for name, c in COLLECTIONS.items()}
        if not stack.direct:
            for c in clients:
                c.stream.wait(lambda s, c=c: s.end or any(e.version == after[c.resource] for e in c.events()), 60, "an event after the compaction")
        if judge_streams(check, "compaction while the server is away", clients, stack):
            odd = converge(clients, api)
            check("after the compaction: every client has the server's state", not odd, "\n".join(odd[:10]))
            end_in_quiet(check, "after the compaction", clients, api)
            for name in COLLECTIONS:
                whole = [c for c in clients if c.resource == name and not c.selector.name]
                got = [[e.kind for e in c.events() if e.key == "default/o8"] for c in whole]
                check(f"after the compaction: an object of the {name} made anew is DELETED and ADDED", all(g == ["DELETED", "ADDED"] for g in got), f"{got[:3]}")
                born = [[e.kind for e in c.events() if e.key == "default/n9"] for c in whole]
                check(f"after the compaction: a new object of the {name} is ADDED", all(b == ["ADDED"] for b in born), f"{born[:3]}")
                gone = [{e.key for e in c.events() if e.kind == "DELETED"} for c in whole]
                check(f"after the compaction: deletions of the {name} were told", all({"default/o5", "default/o6", "default/o7"} <= g for g in gone), f"{gone[:3]}")
    finally:
        for c in clients:
            c.stream.close()
