"""Named conformance tests: one or more per entry of the checklist in checklist.txt, each asked of both sides.

A test is written with framework.py (the world) and asking.py (one side); outcome.py compares what the two sides gave,
run.py runs them, table.py writes docs/CONFORMANCE.md. Lists are in lists.py, pages.py, list_caches.py, list_forms.py
(entries 1-60); every other file with an @entry holds tests too.
"""
