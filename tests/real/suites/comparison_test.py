"""The comparison detects what it should."""
import json
import unittest
from types import SimpleNamespace

from .comparison import Case, compare_answers, compare_streams, events, is_consistent, order_faults

LIST = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"name":"p","resourceVersion":"%d"}}]}\n'
HEADERS = {"content-type": "application/json", "cache-control": "no-cache, private", "audit-id": "x"}


def answer(body, status=200, **headers):
    return SimpleNamespace(status=status, headers={**HEADERS, **headers}, body=body)


def line(kind, version, name="p", **meta):
    return json.dumps({"type": kind, "object": {"kind": "Pod", "metadata": {"name": name, "resourceVersion": str(version), **meta}}}, separators=(",", ":")).encode()


def marker(version):
    return line("BOOKMARK", version, annotations={"k8s.io/initial-events-end": "true"})


def stream(*frames, end="clean", body=b"", **headers):
    return SimpleNamespace(status=200, headers={**HEADERS, **headers}, body=body, end=end, frames=list(frames), binary=False)


class Lists(unittest.TestCase):
    def check(self, left, right, equal, **case):
        found = compare_answers(Case("x", "/", **case), left, right, 50)
        self.assertEqual(not found, equal, found)

    def test_equal_answers_are_equal(self):
        self.check(answer(b"a"), answer(b"a"), True)

    def test_a_byte_a_status_and_a_header_count(self):
        self.check(answer(b"a"), answer(b"b"), False)
        self.check(answer(b"a"), answer(b"a", 201), False)
        self.check(answer(b"a"), answer(b"a", vary="Accept-Encoding"), False)
        self.check(answer(b"a"), SimpleNamespace(status=200, headers={k: v for k, v in HEADERS.items() if k != "audit-id"}, body=b"a"), False)

    def test_a_cached_list_may_have_another_version_within_bounds(self):
        self.check(answer(LIST % (40, 7)), answer(LIST % (30, 7)), True, cached=True)
        self.check(answer(LIST % (40, 7)), answer(LIST % (30, 7)), False)
        self.check(answer(LIST % (40, 7)), answer(LIST % (51, 7)), False, cached=True)  # the server has no such version
        self.check(answer(LIST % (40, 7)), answer(LIST % (6, 7)), False, cached=True)  # older than its item
        self.check(answer(LIST % (40, 7)), answer(LIST % (30, 7)), False, cached=True, at_least=31)

    def test_an_item_of_a_cached_list_counts(self):
        self.check(answer(LIST % (40, 8)), answer(LIST % (40, 7)), False, cached=True)

    def test_lengths_in_a_status_depend_on_how_far_a_cache_is(self):
        def status(text):
            raw = b"\x1a" + bytes([len(text)]) + text
            return answer(b"k8s\0" + b"\x12" + bytes([len(raw)]) + raw, 504)
        self.check(status(b"too large: 9, current: 99"), status(b"too large: 9, current: 100"), True)
        self.check(status(b"too large: 9, current: 99"), status(b"too large: 8, current: 100"), False)

    def test_ages_do_not_count_in_any_form(self):
        for text in (b'{"cells":["p","%ds"]}', b'{\n  "cells": [\n    "p",\n    "2m%ds"\n  ]\n}', b"rows:\n- cells:\n  - p\n  - 1m%ds\n"):
            self.check(answer(text % 9), answer(text % 11), True)

    def test_how_far_a_cache_is_does_not_count(self):
        self.check(answer(b"too large: 9, current: 3", 504), answer(b"too large: 9, current: 4", 504), True)
        self.check(answer(b"too large: 9, current: 3", 504), answer(b"too large: 8, current: 3", 504), False)


class Consistent(unittest.TestCase):
    def test_without_a_version_and_a_token_a_list_is(self):
        for target, expected in (("/l", True), ("/l?resourceVersion=&limit=2", True), ("/l?resourceVersion=0", False), ("/l?limit=2&continue=x", False), ("/l?watch=1", False)):
            self.assertEqual(expected, is_consistent(target), target)


class Streams(unittest.TestCase):
    def check(self, left, right, equal, **case):
        found = compare_streams(Case("x", "/", watch=True, **case), left, right)
        self.assertEqual(not found, equal, found)

    def test_plain_bookmarks_may_come_at_other_times(self):
        self.check(stream(line("ADDED", 1), line("BOOKMARK", 2)), stream(line("ADDED", 1), line("BOOKMARK", 3), line("BOOKMARK", 3)), True, bookmark=True)
        self.check(stream(line("BOOKMARK", 2)), stream(), False, bookmark=True)

    def test_a_marker_has_its_place(self):
        self.check(stream(line("ADDED", 1), marker(3)), stream(line("ADDED", 1), marker(4)), True)
        self.check(stream(line("ADDED", 1), marker(3)), stream(marker(3), line("ADDED", 1)), False)
        self.check(stream(line("ADDED", 1), marker(3)), stream(line("ADDED", 1)), False)

    def test_missing_doubled_and_changed_events_count(self):
        a, b = line("ADDED", 1), line("MODIFIED", 2)
        self.check(stream(a, b), stream(a), False)
        self.check(stream(a, b), stream(a, b, b), False)
        self.check(stream(a, b), stream(b, a), False)
        self.check(stream(a, b), stream(a, b + b" "), False)

    def test_only_a_watch_that_accepts_gzip_may_be_compressed(self):
        packed, given = {"content-encoding": "gzip", "vary": "Accept-Encoding"}, {"Accept-Encoding": "br, gzip"}
        self.check(stream(), stream(**packed), True, headers=given)
        self.check(stream(), stream(**packed), True, headers=list(given.items()), every_header=True)
        self.check(stream(), stream(**packed), False)
        self.check(stream(), stream(**packed), False, headers={"Accept-Encoding": "gzip;q=1.0"})
        self.check(stream(), stream(**{"content-encoding": "gzip"}), False, headers=given)
        self.check(stream(**packed), stream(), False, headers=given)
        self.check(stream(line("ADDED", 1)), stream(**packed), False, headers=given)

    def test_the_end_counts(self):
        self.check(stream(), stream(end="cut: x"), False)
        self.check(stream(), stream(end="closed"), False)
        self.check(stream(end="closed"), stream(), False)
        self.check(stream(), stream(body=b"\n"), False)

    def test_promises_of_one_stream(self):
        good = stream(line("ADDED", 9), line("ADDED", 3), marker(9), line("MODIFIED", 10), line("BOOKMARK", 10), line("DELETED", 11))
        self.assertEqual(order_faults(events(good)), [])
        for bad in ([line("MODIFIED", 3), line("MODIFIED", 3)], [line("MODIFIED", 3), line("BOOKMARK", 2)], [line("BOOKMARK", 5), line("MODIFIED", 4)]):
            self.assertTrue(order_faults(events(stream(*bad))))
