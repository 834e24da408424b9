"""Which clients count as behind, and which are waited for."""
import itertools
import unittest

from . import quiet


class Settle(unittest.TestCase):
    def test_that_everybody_has_everything_ends_it_at_once(self):
        self.assertEqual(quiet.settle(lambda: [], lambda: 0)[0], None)

    def test_that_something_is_missing_while_nothing_comes_is_told(self):
        missing, took = quiet.settle(lambda: ["one"], lambda: 7)
        self.assertEqual(missing, ["one"])
        self.assertEqual(took, 0)

    def test_while_something_comes_the_rest_is_waited_for(self):
        counted, left = itertools.count(), iter(range(80, -1, -1))
        missing, took = quiet.settle(lambda: next(left), lambda: next(counted))
        self.assertEqual(missing, None)
        self.assertGreater(took, quiet.BOUND_SECONDS)


class Carries(unittest.TestCase):
    def test_only_an_event_of_that_version_counts(self):
        modified = b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"%b"},"data":{"at":"71234"}}}'
        self.assertTrue(quiet.carries(modified % b"1234", 1234))
        self.assertFalse(quiet.carries(modified % b"1233", 1234))
        self.assertFalse(quiet.carries(modified % b"91234", 1234))
        self.assertFalse(quiet.carries(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1234"}}}', 1234))
        metadata = b"\n\x02p0\x12\x00\x2a\x04f123\x32\x041234\x38\x01"
        self.assertTrue(quiet.carries(b"\n\x08MODIFIED\x12" + metadata, 1234))
        self.assertFalse(quiet.carries(b"\n\x08MODIFIED\x12" + metadata, 12348))
        self.assertFalse(quiet.carries(b"\n\x08BOOKMARK\x12" + metadata, 1234))
