#!/usr/bin/env python3
"""What does it cost the gateway to be scraped while thousands of clients watch?

    cargo build --release --workspace
    loadtest/scrape.py                            # 10,000 watchers
    loadtest/scrape.py --watchers 1000 --kinds 50

Starts the embedded API server and a gateway, fills caches of so many custom resources beside that of ConfigMaps, has the load test's clients watch
ConfigMaps while nothing is written, and reads /metrics again and again. The cost of a scrape is the processor
time of the gateway's process (/proc/PID/schedstat of its threads) from before it to after it, less what the process uses in as much time
without a scrape. Exit code: 0 within the bound, 1 not, 2 usage or set-up.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from soak import Server

# What the median scrape may cost, in milliseconds of processor time.
BOUND_MS = 5.0
# Between two scrapes.
PAUSE_SECONDS = 0.2
# Time for all clients to connect.
CONNECT_SECONDS = 120
# Time that the clients stay longer than the scrapes take on a quiet machine.
SPARE_SECONDS = 20


def processor_seconds(pid):
    """Processor time of all threads of a process, in nanosecond steps; that of threads that have ended is lost."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total / 1e9


def read(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


def watches(admin):
    lines = read(f"http://{admin}/metrics").decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("kube_fanout_longrunning_requests{"))


def measure(pid, admin, count):
    """Processor time and duration of each scrape in milliseconds, the idle processor time of one pause, and the last page."""
    costs, times, idle, page = [], [], [], b""
    for _ in range(count):
        before = processor_seconds(pid)
        time.sleep(PAUSE_SECONDS)
        quiet = processor_seconds(pid)
        begun = time.perf_counter()
        page = read(f"http://{admin}/metrics")
        elapsed = time.perf_counter() - begun
        cost = processor_seconds(pid) - quiet
        idle.append((quiet - before) / PAUSE_SECONDS)
        costs.append((cost - idle[-1] * elapsed) * 1e3)
        times.append(elapsed * 1e3)
    return costs, times, idle, page


def main():
    top = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--watchers", type=int, default=10_000)
    parser.add_argument("--kinds", type=int, default=0, help="custom resources whose caches have series, too")
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--bin", type=pathlib.Path, default=top / "target/release", help="folder of the programs")
    arguments = parser.parse_args()
    program, player = arguments.bin / "kube-fanout", arguments.bin / "kube-fanout-loadtest"
    for file in (program, player):
        if not file.exists():
            parser.error(f"{file} is missing: cargo build --release --workspace")
    servers, clients = [], None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            kinds = [f"kinds{at}.v1.example.com=Kind{at}" for at in range(arguments.kinds)]
            words = "apiserver --listen 127.0.0.1:0 --objects configmaps=0 --churn 0".split()
            words += [word for kind in kinds for word in ("--extra-kinds", kind)]
            upstream = Server(program, words, folder / "apiserver.log")
            servers.append(upstream)
            words = f"serve --upstream http://{upstream.address('address')} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --plain-http"
            # One client address may have four fifths of the connections.
            words += f" --auth none --connections-max {arguments.watchers * 13 // 10 + 100}"
            gateway = Server(program, words.split(), folder / "gateway.log")
            servers.append(gateway)
            target, admin, pid = gateway.address("address"), gateway.address("admin"), gateway.process.pid
            for at in range(arguments.kinds):
                read(f"http://{target}/apis/example.com/v1/kinds{at}")
            # So long they stay once all have connected.
            settle = int(SPARE_SECONDS + arguments.scrapes * PAUSE_SECONDS * 2)
            words = f"steady --target http://{target} --reference http://{upstream.address('address')} --watchers {arguments.watchers} --write-rate 0 --warm-up 0s --duration {settle}s"
            clients = subprocess.Popen([player, *words.split()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            until = time.monotonic() + settle + CONNECT_SECONDS
            while (open_watches := watches(admin)) < arguments.watchers:
                if clients.poll() is not None or time.monotonic() > until:
                    sys.stderr.write(f"{open_watches:.0f} watches are open\n")
                    return 2
                time.sleep(1)
            time.sleep(2)
            costs, times, idle, page = measure(pid, admin, arguments.scrapes)
            if watches(admin) != arguments.watchers:
                sys.stderr.write("watches have ended meanwhile\n")
                return 2
        finally:
            if clients is not None:
                clients.terminate()
                clients.wait()
            for server in reversed(servers):
                if server.process.poll() is None:
                    server.stop()
    cost = statistics.median(costs)
    print(f"{arguments.watchers} watchers, {arguments.kinds + 1} resources, {arguments.scrapes} scrapes")
    print(f"page: {len(page)} bytes, {page.count(10)} lines")
    print(f"processor time of a scrape, ms: median {cost:.2f}, {min(costs):.2f} to {max(costs):.2f}")
    print(f"duration of a scrape, ms: median {statistics.median(times):.2f}, {min(times):.2f} to {max(times):.2f}")
    print(f"processor without scrapes, of a core: {statistics.median(idle):.4f}")
    return 0 if cost <= BOUND_MS else 1


if __name__ == "__main__":
    sys.exit(main())
