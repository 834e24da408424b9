"""Who is told behind, and who is waited for: python3 -m unittest suites.quiet_test"""
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


if __name__ == "__main__":
    unittest.main()
