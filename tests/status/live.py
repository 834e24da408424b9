#!/usr/bin/env python3
"""The status page of a gateway with so many clients, one in twenty slow, as a desktop, a phone and a dark desktop; and `kube-fanout top`.

    live.py target/release/kube-fanout 3 300 5000

Writes screenshots and text to target/status, to be looked at. Exit code: 0 all is well, 1 something was found, 3 setup failed.
"""
import os
import subprocess
import sys
import time

from stage import HERE, stage

WRITES_PER_SECOND = 50
# The history gets some length, and slow clients fall behind in it.
SETTLE_SECONDS = 20


def main():
    program, *counts = sys.argv[1:]
    work = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{HERE}/../../target"), "status")
    worst = 0
    for count in map(int, counts):
        with stage(program, count, max(1, count // 20), WRITES_PER_SECOND) as (_, admin):
            time.sleep(SETTLE_SECONDS)
            found = subprocess.run([f"{HERE}/run.sh", f"http://{admin}/status", f"clients-{count}"], check=False)
            worst = max(worst, found.returncode)
            for columns in (60, 120):
                with open(f"{work}/clients-{count}-top-{columns}.txt", "w", encoding="utf-8") as file:
                    # A terminal of this width, without colours.
                    command = f"stty cols {columns} rows 45; {program} top --once --url http://{admin}"
                    subprocess.run(["script", "--quiet", "--return", "--command", command, "/dev/null"], stdout=file, stdin=subprocess.DEVNULL, check=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
