#!/usr/bin/env python3
"""What an open status page costs the gateway: its CPU time with the page open and closed, in turns.

    cost.py target/release/kube-fanout --clients 5000 --slow 500 --churn 20 [--rounds 5] [--seconds 20]

Starts an embedded API server, a gateway and swarm.py, each a process of its own, on free ports of 127.0.0.1, and ends them. An "open page" is
one reader of /status/events. CPU time is that of the gateway's process in /proc. One core is 100 %. Prints a line for each pair of intervals,
and the median difference with the lowest and the highest.

With churn the difference drowns in what the gateway does besides. Documents are collected by a thread that does nothing else, so its time is
shown, too: that of the threads that were idle while the page was closed. Exit code 1 if this is 10 ms or more for a document, 1 % of a core.
"""
import argparse
import os
import socket
import statistics
import sys
import threading
import time

from stage import stage

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def threads(pid):
    """CPU time of each thread, in milliseconds."""
    times = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                times[thread] = int(file.read().split()[0]) / 1e6
        except FileNotFoundError:
            pass
    return times


class Page(threading.Thread):
    """Reads the events as a page does, and connects again when the gateway ends them."""

    def __init__(self, admin):
        super().__init__(daemon=True)
        self.admin, self.documents, self.bytes, self.closed = admin, 0, 0, False

    def run(self):
        host, port = self.admin.rsplit(":", 1)
        while not self.closed:
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f"GET /status/events HTTP/1.1\r\nHost: {self.admin}\r\n\r\n".encode())
                connection.settimeout(0.5)
                while not self.closed:
                    try:
                        data = connection.recv(1 << 18)
                    except TimeoutError:
                        continue
                    if not data:
                        break
                    self.documents += data.count(b"data: ")
                    self.bytes += len(data)


def interval(pid, seconds):
    """CPU time in percent of a core, and what each thread took, in milliseconds."""
    before, earlier, at = cpu_seconds(pid), threads(pid), time.monotonic()
    time.sleep(seconds)
    used = (cpu_seconds(pid) - before) / (time.monotonic() - at) * 100
    return used, {thread: now - earlier.get(thread, 0) for thread, now in threads(pid).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--churn", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with stage(options.program, options.clients, options.slow, options.churn) as (gateway, admin):
        differences, collecting = [], []
        for _ in range(options.rounds):
            closed, idle = interval(gateway.pid, options.seconds)
            page = Page(admin)
            page.start()
            opened, busy = interval(gateway.pid, options.seconds)
            page.closed = True
            page.join()
            differences.append(opened - closed)
            collecting.append(sum(took for thread, took in busy.items() if idle.get(thread, 0) < 1) / max(1, page.documents))
            length = page.bytes // max(1, page.documents)
            print(f"closed {closed:6.2f} %  open {opened:6.2f} %  difference {opened - closed:+.2f} %  {collecting[-1]:.2f} ms a document, {page.documents} documents of {length} bytes", flush=True)
        middle = statistics.median(differences)
        print(f"{options.clients} clients, {options.slow} slow, {options.churn} writes/s: {middle:+.2f} % of a core ({min(differences):+.2f} to {max(differences):+.2f})")
        print(f"collecting a document: {statistics.median(collecting):.2f} ms ({min(collecting):.2f} to {max(collecting):.2f})")
        return 0 if statistics.median(collecting) < 10 else 1


if __name__ == "__main__":
    sys.exit(main())
