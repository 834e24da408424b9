"""Tests of the two kinds of resources that the server handles differently: built-in (pods) and custom (widgets)."""
import functools
from dataclasses import dataclass

from .. import fixtures


@dataclass
class Kind:
    """One kind in a test's namespace; `state` is its setup's result."""
    name: str
    collection: str
    inside: object  # namespace → collection
    everywhere: str
    make: object  # (name, labels, …) → object
    field: str  # a field selector's label
    paint: object  # value → a change that sets that field
    state: object = None

    def at(self, name):
        return f"{self.collection}/{name}"


def kinds(t):
    return [
        Kind("pods", t.pods, fixtures.pods, fixtures.pods(), fixtures.pod, "spec.nodeName", lambda value: {"node": value}),
        Kind("widgets", t.widgets, fixtures.widgets, fixtures.widgets(), fixtures.widget, "spec.color", lambda value: {"color": value}),
    ]


def each(setup):
    """Runs a setup for each kind; returns the results by kind."""
    return lambda t: {k.name: setup(t, k) for k in kinds(t)}


def both(check):
    """Runs a test for each kind; returns the outcomes by kind."""
    @functools.wraps(check)
    def run(side, t):
        out = {}
        for kind in kinds(t):
            kind.state = (t.state or {}).get(kind.name) if isinstance(t.state, dict) else None
            out[kind.name] = check(side, t, kind)
        return out
    return run


def named(*names, **labels):
    """A setup: objects with these names."""
    return each(lambda t, k: [t.create(k.collection, k.make(name, labels)) for name in names])
