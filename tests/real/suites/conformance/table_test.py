"""The table in docs/ matches the tests: python3 -m unittest suites.conformance.table_test, from tests/real."""
import os
import re
import unittest

from . import framework, table
from .run import Result, decisions


class Table(unittest.TestCase):
    def setUp(self):
        self.tests = framework.load()

    def test_the_checklist_has_152_entries(self):
        self.assertEqual(list(table.rows()), list(range(1, 153)))

    def test_names_are_sentences_and_unique(self):
        names = [t.name for t in self.tests]
        self.assertEqual(sorted(names), sorted(set(names)))
        for name in names:
            self.assertRegex(name, r"^[a-z0-9]+(_[a-z0-9]+)+$")

    def test_every_test_says_what_it_checks(self):
        self.assertEqual([], [str(t) for t in self.tests if not (t.run.__doc__ or "").strip()])

    @unittest.skipIf(os.environ.get("CONFORMANCE_TABLE") or os.environ.get("CONFORMANCE_ONLY"), "the table is being made, or tests are being written")
    def test_the_document_names_every_entry_and_every_test(self):
        self.assertEqual([], table.faults(table.DOCUMENT.read_text(), self.tests, framework.PINS))

    def test_a_made_table_is_right_and_a_cut_one_is_not(self):
        made = table.text({str(t): Result(t) for t in self.tests}, {})
        self.assertEqual([], table.faults(made, self.tests, framework.PINS))
        cut = re.sub(r"^\| 60 \|.*\n", "", made, flags=re.M)
        self.assertIn("entries in the table: [60]", table.faults(cut, self.tests, framework.PINS))

    def test_the_named_unit_tests_exist(self):
        sources = "\n".join(p.read_text() for p in (table.ROOT / "src").rglob("*.rs"))
        for number, pin in framework.PINS.items():
            if pin.unit:
                self.assertIn(f"fn {pin.unit.rpartition('::')[2]}(", sources, f"entry {number}: no such unit test")

    def test_decisions_name_tests(self):
        self.assertLessEqual(set(decisions()), {str(t) for t in self.tests})


if __name__ == "__main__":
    unittest.main()
