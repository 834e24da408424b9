"""What counts as the server's state, and what does not."""
import unittest

from .compare import Truth, disturbed, verdict

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "a"}}
TRUTH = Truth({"items": [POD]})


def answer(objects=None, **more):
    return {"synced": True, "objects": {"n/p": ["u", "7"]} if objects is None else objects, **more}


class Verdicts(unittest.TestCase):
    def test_the_same_objects_are_right(self):
        self.assertEqual("", verdict(answer(), TRUTH, False))
        self.assertEqual("", verdict(answer(told={"n/p": ["u", "7"]}, whole={"n/p": POD}), TRUTH, False))
        self.assertEqual("", verdict({"synced": 1, "objects": [1], "hashes": {TRUTH.digest(): 1}}, TRUTH, False))

    def test_a_missing_an_old_and_another_object_are_told(self):
        for objects in ({}, {"n/p": ["u", "6"]}, {"n/p": ["v", "7"]}, {"n/p": ["u", "7"], "n/q": ["w", "3"]}):
            self.assertTrue(verdict(answer(objects), TRUTH, False), objects)
        self.assertTrue(verdict({**answer(), "synced": False}, TRUTH, False))
        self.assertTrue(verdict({"synced": 1, "objects": [1], "hashes": {"another": 1}}, TRUTH, False))

    def test_handlers_that_were_given_something_else_are_told(self):
        self.assertIn("handlers", verdict(answer(told={}), TRUTH, False))

    def test_the_content_of_objects_counts(self):
        other = {**POD, "spec": {"nodeName": "b"}}
        self.assertIn("spec.nodeName", verdict(answer(whole={"n/p": other}), TRUTH, False))
        date = {**POD, "metadata": {**POD["metadata"], "creationTimestamp": "2026-01-01T00:00:00+00:00"}}
        self.assertEqual("", verdict(answer(whole={"n/p": date}), TRUTH, False))
        self.assertEqual("", verdict(answer(whole={"n/p": {"metadata": POD["metadata"]}}), TRUTH, True))

    def test_a_second_list_is_a_disturbance(self):
        self.assertEqual("", disturbed({"lists": 1, "errors": 0}, {"lists": 1}))
        self.assertEqual("lists: 2, not 1", disturbed({"lists": 2, "errors": 0}, {"lists": 1}))
