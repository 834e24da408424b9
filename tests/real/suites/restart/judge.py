"""Compares what a stream had to carry, according to etcd, with what it carried.

While the gateway has no server it sees no events, and afterwards it may have to list: then a client receives the newest state
instead of the versions in between. For each client such an outage begins with the newest version that its gateway had when the
server was gone, and ends with the client's own first event of a version that was written after that. Outside its outages a
stream carries exactly what was written. Inside, an event may be missing if the events that came instead lead to the same
objects; the number of missing events is counted."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    kind: str
    key: str
    version: int
    uid: str

    def __str__(self):
        return f"{self.kind} {self.key} at {self.version}"


@dataclass
class Verdict:
    faults: list = field(default_factory=list)
    events: int = 0  # required by the history
    excused: int = 0  # of these, missing in an outage


def expected(initial, history, matches):
    """The events of a watch that selects by MATCHES(Thing). INITIAL is {key: (version, Thing)}."""
    known, out = {k: thing for k, (_, thing) in initial.items()}, []
    for version, key, thing in history:
        old, was, now = known.get(key), key in known and matches(known[key]), thing is not None and matches(thing)
        if was or now:
            kind = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
            out.append(Event(kind, key, version, (thing if now else old).uid))
        if thing is None:
            known.pop(key, None)
        else:
            known[key] = thing
    return out


def applied(state, events):
    """{key: (version, uid)} after these events."""
    state = dict(state)
    for e in events:
        if e.kind == "DELETED":
            state.pop(e.key, None)
        else:
            state[e.key] = (e.version, e.uid)
    return state


def judge(initial, wanted, got, outages):
    """INITIAL: {key: (version, uid)} of the selected objects. OUTAGES: [(low, high)], in order; versions in (low, high] belong to the
    outage."""
    verdict, state, wanted_at, got_at = Verdict(events=len(wanted)), initial, 0, 0

    def take(up_to):
        """The expected and the received events up to a version."""
        nonlocal wanted_at, got_at
        a, b = wanted_at, got_at
        while wanted_at < len(wanted) and wanted[wanted_at].version <= up_to:
            wanted_at += 1
        while got_at < len(got) and got[got_at].version <= up_to:
            got_at += 1
        return wanted[a:wanted_at], got[b:got_at]
    for low, high in [*outages, (float("inf"), None)]:
        should, did = take(low)
        verdict.faults += differing(should, did)
        state = applied(state, should)
        if high is not None:
            should, did = take(high)
            verdict.excused += len(set(should) - set(did))
            verdict.faults += substitutes(state, should, did, (low, high))
            state = applied(state, should)
    return verdict


def differing(should, did):
    """Outside outages: exactly these events."""
    if should == did:
        return []
    missing, more = [e for e in should if e not in set(did)], [e for e in did if e not in set(should)]
    return [f"missing: {e}" for e in missing] + [f"not in the history: {e}" for e in more] or [f"in another order, from {should[0]} on"]


def substitutes(state, should, did, outage):
    """Inside an outage: the events lead to the same objects, by existing versions. A deletion found by listing has that list's version."""
    real = {(e.key, e.version, e.uid) for e in should if e.kind != "DELETED"}
    out = [f"in the outage {outage}: no such version: {e}" for e in did if e.kind != "DELETED" and (e.key, e.version, e.uid) not in real]
    have, want = applied(state, did), applied(state, should)
    return out + [f"in the outage {outage}: {k} is {have.get(k)} instead of {want.get(k)}" for k in sorted(have.keys() | want.keys()) if have.get(k) != want.get(k)]
