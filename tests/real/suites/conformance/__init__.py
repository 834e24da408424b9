"""Named conformance tests: one or more per entry of the checklist in checklist.txt, each asked of both sides.

framework.py is what a test is written with, outcome.py compares what the two sides gave, run.py runs them,
table.py writes docs/CONFORMANCE.md. The tests are in lists.py (1-60), watches.py, bookmarks.py, http.py, clients.py.
"""
