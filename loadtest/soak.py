#!/usr/bin/env python3
"""Clients join, leave, stall and watch for hours while objects change: does the gateway's memory stay flat?

    cargo build --release --workspace
    loadtest/soak.py --hours 2 --out target/soak

Starts the embedded API server and a gateway with checkpoints, a memory bound and the comparison with upstream, and plays scenarios of the load
test in turns until the time is over, each in a namespace of its own. Every ten seconds it reads the gateway's resident size, open files,
connections and metrics into OUT/samples.csv. At the end it judges: every round passed, memory and files are flat,
no cache differed from upstream. Exit code: 0 all held, 1 something did not, 2 usage or set-up.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

SAMPLE_SECONDS = 10
# Growth of the last quarter's median above that of the second, beyond which memory or files are not flat.
FLAT = 0.05
# Rounds of each player, in turns; the words are those of `kube-fanout-loadtest`.
PLAYERS = {
    "joiners": [
        "joiners --watchers 300 --duration 60s --write-rate 20",
        "joiners --watchers 100 --duration 30s --write-rate 5 --object-size 40000 --http2",
    ],
    "stalled": [
        "slow --kind never-reads --kind half --watchers 300 --duration 20s --write-rate 20",
        "slow --kind reads-slowly --kind pauses --watchers 200 --duration 20s --write-rate 20",
    ],
    "steady": [
        "steady --watchers 300 --duration 120s --write-rate 10",
        "steady --watchers 300 --duration 120s --write-rate 10 --http2 --mixed",
    ],
}


class Server:
    """A process of kube-fanout that says in its log where it listens."""

    def __init__(self, program, words, log):
        self.log = log
        self.file = open(log, "wb")
        self.process = subprocess.Popen([program, *words, "--log-format", "json"], stdin=subprocess.DEVNULL, stdout=self.file, stderr=self.file)

    def address(self, which):
        """The address in the line of the log that names `which`."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = re.search(rf'"{which}":"(127[^"]*)"', self.log.read_text(errors="replace"))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"no address in {self.log}: {self.log.read_text(errors='replace')[-400:]}")

    def stop(self):
        """Asks the process to end, and waits; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def metrics(address):
    """All samples of the gateway's metrics, as {name: {labels: value}}."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
        found.setdefault(name, {})[labels] = float(value)
    return found


def sample(pid, admin):
    """What one row of the table shows. Sizes are in MiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    read = metrics(admin)

    def total(name):
        return sum(read.get(name, {}).values())

    def part(name):
        return read["kube_fanout_memory_bytes"][f'part="{name}"'] / 2**20

    return {
        "resident": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,
        "counted": total("kube_fanout_memory_bytes") / 2**20,
        "other": part("other"),
        "free": part("free"),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "connections": total("kube_fanout_connections"),
        "compared": total("kube_fanout_drift_objects_compared_total"),
        "contradictions": total("kube_fanout_upstream_contradictions_total"),
        "upstream_lists": total("kube_fanout_upstream_lists_total"),
    }


class Player(threading.Thread):
    """Plays its rounds in turns until the time is over, and keeps the output of those that failed."""

    def __init__(self, name, program, target, reference, until, out):
        super().__init__(daemon=True)
        self.name, self.until, self.out = name, until, out
        self.common = ["--target", target, "--reference", reference, "--path", f"/api/v1/namespaces/{name}/configmaps"]
        self.program = program
        self.rounds, self.failed = 0, []

    def run(self):
        while time.monotonic() < self.until:
            words = PLAYERS[self.name][self.rounds % len(PLAYERS[self.name])]
            self.rounds += 1
            done = subprocess.run([self.program, *words.split(), *self.common], stdin=subprocess.DEVNULL, capture_output=True, timeout=1200)
            if done.returncode:
                log = self.out / f"failed-{self.name}-{self.rounds}.log"
                log.write_bytes(done.stdout + done.stderr)
                self.failed.append(f"{words}: {log}")


def growth(rows, key):
    """How much the median of the last quarter is above that of the second quarter, as a part of it."""
    quarter = len(rows) // 4
    early = statistics.median(row[key] for row in rows[quarter : 2 * quarter])
    late = statistics.median(row[key] for row in rows[-quarter:])
    return late / early - 1


def judge(rows, players, code):
    """Lines of (holds, text)."""
    yield code == 0, f"the gateway ended with {code}"
    for player in players:
        yield not player.failed, f"{player.name}: {player.rounds} rounds, failed: {'; '.join(player.failed) or 'none'}"
    for key in ("resident", "files"):
        grown = growth(rows, key)
        yield grown <= FLAT, f"{key}: median {statistics.median(row[key] for row in rows):.0f}, growth to the last quarter {grown:+.1%}"
    for what, key in (("counted", "counted"), ("allocated and unnamed", "other"), ("free", "free")):
        share = [row[key] / row["resident"] for row in rows]
        yield True, f"memory {what} / resident: median {statistics.median(share):.2f}, {min(share):.2f} to {max(share):.2f}"
    last = rows[-1]
    yield last["compared"] > 0 and last["contradictions"] == 0, f"objects compared {last['compared']:.0f}, contradictions {last['contradictions']:.0f}"
    yield True, f"lists upstream {last['upstream_lists']:.0f}"


def main():
    top = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--bin", type=pathlib.Path, default=top / "target/release", help="folder of the programs")
    parser.add_argument("--out", type=pathlib.Path, default=top / "target/soak")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    program, player = arguments.bin / "kube-fanout", arguments.bin / "kube-fanout-loadtest"
    for file in (program, player):
        if not file.exists():
            parser.error(f"{file} is missing: cargo build --release --workspace")
    begun = time.monotonic()
    until = begun + arguments.hours * 3600
    rows, servers = [], []
    with tempfile.TemporaryDirectory() as state:
        os.chmod(state, 0o700)
        try:
            upstream = Server(program, "apiserver --listen 127.0.0.1:0 --objects pods=20000 --churn 50".split(), arguments.out / "apiserver.log")
            servers.append(upstream)
            reference = f"http://{upstream.address('address')}"
            words = f"serve --upstream {reference} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --plain-http --memory-max 1GiB"
            words += f" --drift-interval 10s --auth none --pin-resources pods.v1,configmaps.v1 --state-dir {state}"
            gateway = Server(program, words.split(), arguments.out / "gateway.log")
            servers.append(gateway)
            target, admin = f"http://{gateway.address('address')}", gateway.address("admin")
            players = [Player(name, player, target, reference, until, arguments.out) for name in PLAYERS]
            for each in players:
                each.start()
            with open(arguments.out / "samples.csv", "w", newline="") as file:
                table = None
                while any(each.is_alive() for each in players):
                    time.sleep(SAMPLE_SECONDS)
                    row = {"minute": (time.monotonic() - begun) / 60, **sample(gateway.process.pid, admin)}
                    rows.append(row)
                    table = table or csv.DictWriter(file, row)
                    if len(rows) == 1:
                        table.writeheader()
                    table.writerow({key: f"{value:.2f}" for key, value in row.items()})
                    file.flush()
            code = gateway.stop()
        finally:
            for server in reversed(servers):
                if server.process.poll() is None:
                    server.stop()
    verdicts = list(judge(rows, players, code))
    for holds, text in verdicts:
        print("ok  " if holds else "FAIL", text)
    (arguments.out / "verdicts.json").write_text(json.dumps(verdicts, indent=1))
    return 0 if all(holds for holds, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
