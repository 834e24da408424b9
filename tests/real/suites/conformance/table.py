"""docs/CONFORMANCE.md: how many entries of checklist.txt are equal, and a row for each that needs words, made from a run's results."""
import functools
import re
from pathlib import Path

from . import framework

CHECKLIST = Path(__file__).with_name("checklist.txt")
ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = ROOT / "docs" / "CONFORMANCE.md"
TITLES = {"8.1": "Lists", "8.2": "Watches", "8.3": "Bookmarks and watch-lists", "8.4": "HTTP surface", "8.5": "Real clients"}
WORST = ("failed", "decision", "forwarded", "same")  # the result of an entry's row if its tests differ
WORDS = {"failed": "**fails**", "decision": "different by decision", "forwarded": "forwarded", "same": "same"}
COUNTED = ("same", "forwarded")
HEAD = """# Conformance

The Kubernetes API server's own tests of lists and watches (release 1.36), applied to the gateway. Each of our tests states a property of
an upstream test. It runs against a real API server and, in the same state, through the gateway: both must have the property, and their
responses must be equal. Every entry here was compared with kube-apiserver RELEASE.
`tests/real/suites/conformance/checklist.txt` describes each entry.

| result | meaning |
|---|---|
| same | equal responses; the gateway answered itself |
| forwarded | equal responses; the gateway forwarded at least one request, by the server's audit log. Some of these results vary, with how far the cache has come |
| different by decision | different responses, for the reason given |
| not observable | nothing shows from outside, for the reason given |

`CONFORMANCE_TABLE=docs/CONFORMANCE.md tests/real/run.sh conformance` writes this page. Beside the checklist, which also explains the
abbreviations, `outcome.py` lists what is masked, and `decisions.txt` the accepted differences. *Pinned by* names a unit test of what is
internal.
"""

@functools.lru_cache(maxsize=None)
def rows():
    """{number: (section, upstream tests, check)}"""
    out = {}
    for line in CHECKLIST.read_text().splitlines():
        if not line.startswith("#"):
            number, section_, upstream, check = line.split(" | ")
            out[int(number)] = (section_, upstream, check)
    return out

def section(number):
    return rows()[number][0]

def cell(text):
    return text.replace("|", "\\|")

def result_of(number, tests, results, reasons):
    """The last cell of a row."""
    pin = framework.PINS.get(number)
    got = [results[str(t)].verdict for t in tests if str(t) in results]
    if tests:
        worst = next((w for w in WORST if w in got), None)
        parts = [WORDS[worst] if worst else "not run"]
        parts += [f"{t.name}: {reasons[str(t)]}" for t in tests if str(t) in results and results[str(t)].verdict == "decision"]
    else:
        parts = ["not observable" if pin and not pin.observable else "**no test**"]
    if pin and pin.why:
        parts.append(pin.why)
    if pin and pin.unit:
        parts.append(f"pinned by `{pin.unit}`")
    return "; ".join(parts)

def page(entries, release):
    """The page of {number: (upstream tests, our tests, result)}: results that need no words are counted."""
    out = [HEAD.replace("RELEASE", release)]
    for section_, title in TITLES.items():
        of_section = {n: entry for n, entry in entries.items() if section(n) == section_}
        results = [entry[2] for entry in of_section.values()]
        listed = {n: entry for n, entry in of_section.items() if entry[2] not in COUNTED}
        counts = ", ".join(f"{results.count(word)} {word}" for word in COUNTED)
        out.append(f"\n## {title}\n\nOf {len(results)} entries {counts}. The others:\n")
        out.append("| # | upstream tests | our tests | result |\n|---|---|---|---|")
        out += ["| " + " | ".join(map(cell, (str(n), *entry))) + " |" for n, entry in listed.items()]
    return "\n".join(out) + "\n"

def text(results, reasons, release):
    tests, entries = {}, {}
    for test in framework.load():
        tests.setdefault(test.number, []).append(test)
    for number, (_, upstream, check) in rows().items():
        mine = tests.get(number, [])
        names = ", ".join(f"`{t.name}`" for t in mine) or f"none: {check}"
        entries[number] = (upstream, names, result_of(number, mine, results, reasons))
    return page(entries, release)

def faults(document, tests, pins):
    """The reasons why a document is not the table of these tests; needs no server."""
    named = [int(n) for n in re.findall(r"^\| (\d+) \|", document, re.M)]
    out = [] if named == [n for n in rows() if n in named] else [f"rows that are no entries, or not in order: {named}"]
    for section_, title in TITLES.items():
        entries = [n for n in rows() if section(n) == section_]
        listed = sum(n in named for n in entries)
        found = re.search(rf"## {title}\n\nOf (\d+) entries (\d+) same, (\d+) forwarded\.", document)
        counts = list(map(int, found.groups())) if found else [0]
        if counts[0] != len(entries) or sum(counts[1:]) + listed != len(entries):
            out.append(f"{title}: {listed} rows, and another count of the {len(entries)} entries")
    lines = {int(re.match(r"\| (\d+) ", line)[1]): line for line in document.splitlines() if re.match(r"\| \d+ ", line)}
    for number in lines:
        known = {t.name for t in tests if t.number == number}
        listed = lines[number].replace("\\|", "").split(" | ")
        named = set(re.findall(r"`(\w+)`", listed[2]) if len(listed) > 2 else [])
        out += [f"not in the table: {number} {name}" for name in sorted(known - named)]
        out += [f"in the table, and no test: {number} {name}" for name in sorted(named - known)]
    for number, pin in pins.items():
        if any(reason and cell(reason) not in lines.get(number, "") for reason in (pin.unit, pin.why)):
            out.append(f"the unit test or the reason of {number} is not in the table")
    return out
