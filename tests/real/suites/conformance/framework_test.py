"""Tests that must fail do fail."""
import json
import unittest
from types import SimpleNamespace

from .asking import Failed, Response, Watch, cached_read
from .framework import Test, World
from .outcome import differences
from .conformance_test import run_test

HEADERS = {"content-type": "application/json", "cache-control": "no-cache, private", "audit-id": "x"}


class Known(World):
    """A world without servers, whose store is at version 50."""

    def revision(self):
        return 50


def outcome(run, live=False):
    """(failures of the server, failures of the other side)"""
    test = Test(1, "a_test", (), live, None, run)
    world = Known(test, SimpleNamespace(server=None, plain=None), "n")
    world.prepare()
    return run_test(test, world)


def listed(version, names=("a",), target="/l", item=7, floor=0):
    items = [{"metadata": {"name": n, "resourceVersion": str(item)}} for n in names]
    body = json.dumps({"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": items}).encode()
    return Response(target, SimpleNamespace(status=200, headers=HEADERS, body=body), floor)


class Sides(unittest.TestCase):
    def test_a_list_is_as_new_as_the_store_was_when_it_was_asked_for(self):
        self.assertEqual([], differences(listed(50, floor=0), listed(41, floor=41), 50))
        self.assertTrue(differences(listed(50, floor=0), listed(41, floor=42), 50))

    def test_equal_outcomes_are_equal(self):
        self.assertEqual(([], []), tuple(outcome(lambda side, t: {"a": [1, "x"]})))

    def test_an_outcome_that_differs_is_told(self):
        server, tested = outcome(lambda side, t: {"a": [side.is_gateway]})
        self.assertEqual(([], 1), (server, len(tested)))

    def test_a_property_that_fails_on_one_side_is_that_sides_fault(self):
        server, tested = outcome(lambda side, t: t.check(not side.is_gateway, "odd"))
        self.assertEqual(([], ["gateway: odd"]), (server, tested))
        server, tested = outcome(lambda side, t: t.check(side.is_gateway, "odd"))
        self.assertEqual((["server: odd"], []), (server, tested))

    def test_a_property_that_fails_on_both_sides_is_no_agreement(self):
        server, tested = outcome(lambda side, t: t.check(False, "odd"))
        self.assertEqual((["server: odd"], ["gateway: odd"]), (server, tested))

    def test_an_exception_is_a_failure(self):
        server, tested = outcome(lambda side, t: {}["nope"])
        self.assertTrue(server and tested)

    def test_a_side_that_waits_for_one_that_failed_is_not_blamed(self):
        def run(side, t):
            t.check(not side.is_gateway, "odd")
            t.once(lambda: None)
        server, tested = outcome(run, live=True)
        self.assertEqual(([], ["gateway: odd"]), (server, tested))

    def test_writes_happen_once_and_both_get_the_result(self):
        count = []
        server, tested = outcome(lambda side, t: t.once(lambda: count.append(1) or len(count)), live=True)
        self.assertEqual(([], [], [1]), (server, tested, count))

    def test_a_write_outside_its_place_is_refused(self):
        server, tested = outcome(lambda side, t: t.create("/c", {"metadata": {"name": "a"}}))
        self.assertTrue(server and tested)

    def test_an_error_in_the_writes_is_told_by_both(self):
        def broken():
            raise Failed("broken")
        server, tested = outcome(lambda side, t: t.once(broken), live=True)
        self.assertEqual((["server: broken"], ["gateway: broken"]), (server, tested))


class Answers(unittest.TestCase):
    def check(self, left, right, equal):
        found = differences(left, right, 50)
        self.assertEqual(not found, equal, found)

    def test_a_list_that_a_cache_answers_may_have_another_version(self):
        self.check(listed(40), listed(41), True)
        self.check(listed(40), listed(51), False)
        self.check(listed(40), listed(6), False)
        self.check(listed(40, target="/l?resourceVersion=30"), listed(29, target="/l?resourceVersion=30"), False)

    def test_an_exact_list_may_not(self):
        self.check(*(listed(v, target="/l?resourceVersion=40&resourceVersionMatch=Exact") for v in (40, 41)), False)

    def test_pages_by_a_sides_own_token_have_its_own_version(self):
        self.check(listed(40, target="/l?continue=a"), listed(41, target="/l?continue=b"), True)
        self.check(listed(40, target="/l?continue=a"), listed(41, ("b",), target="/l?continue=b"), False)

    def test_items_and_shapes_count(self):
        self.check([listed(40)], [listed(40, item=8)], False)
        self.check({"x": listed(40)}, {"y": listed(40)}, False)
        self.check([listed(40)], [listed(40), listed(40)], False)
        self.check([listed(40)], ["a"], False)


class CachedReads(unittest.TestCase):
    def check(self, target, cached, at_least=0):
        self.assertEqual(cached_read(target), (cached, at_least))

    def test_whose_version_is_the_servers_choice(self):
        self.check("/l", True)
        self.check("/l?resourceVersion=0", True)
        self.check("/l?limit=2", True)
        self.check("/l?resourceVersion=7", True, 7)
        self.check("/l?resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan", True, 7)

    def test_whose_version_is_the_clients(self):
        self.check("/l?resourceVersion=7&resourceVersionMatch=Exact", False, 7)
        self.check("/l?resourceVersion=7&limit=2", False, 7)
        self.check("/l?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTQsInN0YXJ0IjoiYVx1MDAwMCJ9", False)
        self.check("/l?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9", True)


class Ends(unittest.TestCase):
    """A test has finished with an open watch; then one side ends it, or both do, or neither."""

    def watch(self, end=None, later=None):
        made = Watch.__new__(Watch)
        made.target, made.random_retry, made.taken, made.left_open = "/w", False, 0, end is None
        made.stream = SimpleNamespace(status=200, headers_sent={}, headers={**HEADERS}, body=b"", end=end, frames=[], binary=False, endpoint=SimpleNamespace(name="one"))
        made.ended_within = lambda seconds: setattr(made.stream, "end", made.stream.end or later) or made.stream.end is not None
        made.close = lambda: setattr(made.stream, "end", made.stream.end or "closed")
        return made

    def test_a_watch_that_only_the_server_ended_is_a_difference(self):
        self.assertEqual(1, len(differences(self.watch("clean"), self.watch(), 50)[1:]))
        self.assertEqual(1, len(differences(self.watch(), self.watch("clean"), 50)[1:]))

    def test_a_watch_that_both_ended_or_none_is_none(self):
        self.assertEqual([], differences(self.watch("clean"), self.watch(later="clean"), 50))
        self.assertEqual([], differences(self.watch(), self.watch(), 50))
