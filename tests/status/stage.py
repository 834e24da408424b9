"""An embedded API server, a gateway and watch clients, some of them slow, for the status page: each a process, on free ports of 127.0.0.1."""
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
CONNECT_SECONDS = 180


def started(arguments, pattern):
    """Starts a program and waits until its log says where it listens."""
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for line in process.stderr:
        found = re.search(pattern, line)
        if found:
            # Whatever comes later must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found.groups()
    sys.exit(f"{arguments[0]} ended: {process.wait()}")


def totals(admin):
    with urllib.request.urlopen(f"http://{admin}/status.json") as answer:
        return json.load(answer)["totals"]


@contextlib.contextmanager
def stage(program, clients, slow, churn):
    """The gateway's process and its admin address, once all clients are connected; with churn, also once all slow ones are slow."""
    running = []
    try:
        objects = ["--objects", "pods=1000,configmaps=100", "--churn", str(churn)]
        apiserver, (upstream,) = started([program, "apiserver", "--listen", "127.0.0.1:0", *objects], r"address=(127\S+)")
        running.append(apiserver)
        serve = ["serve", "--upstream", f"http://{upstream}", "--plain-http", "--auth", "none", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        gateway, (address, admin) = started([program, *serve], r"serving address=(\S+) admin=(\S+)")
        running.append(gateway)
        swarm = [sys.executable, f"{HERE}/swarm.py", f"http://{address}", "--clients", str(clients), "--slow", str(slow), "--for", "100000"]
        running.append(subprocess.Popen([*swarm, "--path", "/api/v1/pods", "--path", "/api/v1/configmaps"]))
        until = time.monotonic() + CONNECT_SECONDS
        while (now := totals(admin))["watches"] < clients or (churn and now["slow"] < slow):
            if time.monotonic() > until:
                sys.exit(f"{now['watches']} watches are open, {now['slow']} are slow")
            time.sleep(1)
        print(f"{now['watches']} watches, {now['slow']} slow", flush=True)
        yield gateway, admin
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()
