"""The table in docs/ matches the tests."""
import os
import re
import unittest

from . import framework, table
from .conformance_test import DECISIONS, Result
from ..known import Known

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

    @unittest.skipIf(os.environ.get("CONFORMANCE_TABLE"), "the table is being made")
    def test_the_document_counts_or_names_every_entry(self):
        self.assertEqual([], table.faults(table.DOCUMENT.read_text(), self.tests, framework.PINS))

    def test_a_made_table_is_right_and_a_cut_one_is_not(self):
        made = table.text({str(t): Result(t) for t in self.tests}, {}, "v1.36.1")
        self.assertEqual([], table.faults(made, self.tests, framework.PINS))
        self.assertIn("\n| 53 |", made)
        cut = re.sub(r"^\| 53 \|.*\n", "", made, flags=re.M)
        self.assertIn("Lists: 3 rows, and another count of the 60 entries", table.faults(cut, self.tests, framework.PINS))

    def test_results_that_need_no_words_are_counted(self):
        entries = {n: (upstream, "", "same") for n, (_, upstream, _) in table.rows().items()}
        entries[3] = (entries[3][0], "", "forwarded")
        entries[4] = (entries[4][0], "", "different by decision")
        made = table.page(entries, "v1.36.1")
        self.assertIn("## Lists\n\nOf 60 entries 58 same, 1 forwarded.", made)
        self.assertEqual([4], [int(n) for n in re.findall(r"^\| (\d+) \|", made, re.M)])

    def test_the_named_unit_tests_exist(self):
        sources = "\n".join(p.read_text() for p in (table.ROOT / "src").rglob("*.rs"))
        for number, pin in framework.PINS.items():
            if pin.unit:
                self.assertIn(f"fn {pin.unit.rpartition('::')[2]}(", sources, f"entry {number}: no such unit test")

    def test_decisions_name_tests(self):
        self.assertLessEqual({name for name in Known(DECISIONS).entries if not name.startswith("8.")}, {str(t) for t in self.tests})

    def test_every_entry_has_a_test_or_the_reason_why_nothing_can_be_seen(self):
        tested = {t.number for t in self.tests}
        self.assertEqual([], [n for n in table.rows() if n not in tested and (n not in framework.PINS or framework.PINS[n].observable)])
