"""What is excused and what is not."""
import unittest
from types import SimpleNamespace

from .clients import Client
from .judge import Event, expected, judge


def e(kind, key, version, uid="u"):
    return Event(kind, key, version, uid)


CHANGES = [e("MODIFIED", "a", v) for v in range(10, 20)]
INITIAL = {"a": (1, "u"), "b": (2, "u")}


class Judge(unittest.TestCase):
    def faults(self, wanted, got, outages=()):
        return judge(INITIAL, wanted, got, outages).faults

    def test_outside_outages_each_event_counts(self):
        self.assertEqual([], self.faults(CHANGES, CHANGES))
        self.assertTrue(self.faults(CHANGES, CHANGES[:4] + CHANGES[5:]))
        self.assertTrue(self.faults(CHANGES, CHANGES[:4] + [CHANGES[5], CHANGES[4]] + CHANGES[6:]))
        self.assertTrue(self.faults(CHANGES, CHANGES + [e("MODIFIED", "b", 30)]))

    def test_inside_an_outage_a_newer_version_replaces_others(self):
        verdict = judge(INITIAL, CHANGES, CHANGES[:2] + CHANGES[6:], [(11, 16)])
        self.assertEqual(([], 4), (verdict.faults, verdict.excused))

    def test_an_outage_ends(self):
        self.assertTrue(self.faults(CHANGES, CHANGES[:2] + CHANGES[6:], [(11, 14)]))
        self.assertTrue(self.faults(CHANGES, CHANGES[:2] + CHANGES[6:], [(13, 16)]))

    def test_what_is_never_replaced_is_missing(self):
        self.assertTrue(self.faults(CHANGES, CHANGES[:2] + CHANGES[8:], [(11, 17)]))
        away = [*CHANGES[:5], e("DELETED", "b", 15), *CHANGES[6:]]
        self.assertTrue(self.faults(away, CHANGES[:5] + CHANGES[6:], [(12, 16)]))

    def test_a_deletion_that_a_list_showed_has_its_version(self):
        wanted = [*CHANGES[:5], e("DELETED", "b", 15), *CHANGES[6:]]
        self.assertEqual([], self.faults(wanted, [*CHANGES[:3], CHANGES[6], e("DELETED", "b", 16), *CHANGES[7:]], [(12, 17)]))

    def test_a_short_life_in_an_outage_need_not_be_told(self):
        wanted = [e("ADDED", "c", 10), e("DELETED", "c", 11), *CHANGES[2:]]
        self.assertEqual([], self.faults(wanted, CHANGES[2:], [(9, 12)]))

    def test_versions_that_never_were_are_none(self):
        self.assertTrue(self.faults(CHANGES, [*CHANGES[:2], e("MODIFIED", "b", 13), *CHANGES[2:]], [(11, 19)]))


class Expected(unittest.TestCase):
    def test_a_selector_sees_objects_come_and_go(self):
        thing = lambda on: SimpleNamespace(uid="u", on=on)
        history = [(5, "a", thing(False)), (6, "a", thing(True)), (7, "a", thing(True)), (8, "b", thing(False)), (9, "b", None), (10, "a", None)]
        wanted = [e("DELETED", "a", 5), e("ADDED", "a", 6), e("MODIFIED", "a", 7), e("DELETED", "a", 10)]
        self.assertEqual(wanted, expected({"a": (1, thing(True))}, history, lambda t: t.on))


class Streams(unittest.TestCase):
    def faults(self, *events):
        client = Client.__new__(Client)
        client.start, client.initial, client.events = 5, INITIAL, lambda: events
        return client.faults()

    def test_a_stream_goes_on_from_its_list(self):
        self.assertEqual([], self.faults(e("MODIFIED", "a", 6), e("ADDED", "c", 7), e("DELETED", "c", 8), e("ADDED", "c", 8, "v")))

    def test_an_error_and_an_event_that_comes_twice_or_late_are_faults(self):
        change = e("MODIFIED", "a", 7)
        for bad in ([e("ERROR", "gone", 0)], [change, change], [change, e("MODIFIED", "b", 6)], [e("MODIFIED", "a", 4)], [e("ADDED", "a", 7)], [e("DELETED", "c", 7)], [e("MODIFIED", "a", 7, "v")]):
            self.assertTrue(self.faults(*bad), bad)
