#!/usr/bin/env python3
"""table.py EQUIVALENT OUTCOMES_JSON...: prints how many mutants of each module the tests caught, and which mutants they missed. For a
mutant that ran more than once, the last run counts."""
import collections
import json
import pathlib
import re
import sys

runs = [json.loads(pathlib.Path(path).read_text())["outcomes"] for path in sys.argv[2:]]
outcomes = {outcome["scenario"]["Mutant"]["name"]: outcome for run in runs for outcome in run if outcome["scenario"] != "Baseline"}
equivalent = {line.partition("  # ")[0].strip() for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if line and not line.startswith("#")}
tables, missed, named = collections.defaultdict(collections.Counter), [], set()
for outcome in outcomes.values():
    mutant = outcome["scenario"]["Mutant"]
    module = re.sub(r"^src/|\.rs$", "", mutant["file"]).replace("/", "::")
    # Without line and column, which change with every edit above them.
    name = mutant["file"] + ": " + re.sub(r"^\S+:\d+:\d+: ", "", mutant["name"])
    kind = outcome["summary"]
    if kind == "MissedMutant":
        kind = "equivalent" if name in equivalent else "missed"
        (named.add(name) if kind == "equivalent" else missed.append(f"{mutant['name']}"))
    tables[module.split("::")[0] if module.startswith(("cache", "view")) else "::".join(module.split("::")[:2])][kind] += 1
print(f"{'module':24} {'viable':>7} {'caught':>7} {'hung':>5} {'equivalent':>11} {'missed':>7} {'caught of viable':>17}")
total = collections.Counter()
for module, count in [*sorted(tables.items()), ("all", total)]:
    if module != "all":
        total.update(count)
    caught, hung = count["CaughtMutant"], count["Timeout"]
    viable = caught + hung + count["equivalent"] + count["missed"]
    share = f"{100 * (caught + hung + count['equivalent']) / viable:.1f} %" if viable else "-"
    print(f"{module:24} {viable:7} {caught:7} {hung:5} {count['equivalent']:11} {count['missed']:7} {share:>17}")
for name in missed:
    print("missed:", name)
sys.exit(bool(missed))
