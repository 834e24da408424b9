"""Named conformance tests: one or more per entry of the checklist in checklist.txt, each run against both sides.

Tests are written with framework.py (the world) and asking.py (one side); outcome.py compares the results of the two sides,
conformance_test.py runs the tests, table.py writes docs/CONFORMANCE.md. Lists are in lists.py, pages.py, list_caches.py, list_forms.py
(entries 1-60); every other file with an @entry contains tests too.
"""
