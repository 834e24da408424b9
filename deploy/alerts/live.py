#!/usr/bin/env python3
"""Alerts and dashboard with a real Prometheus and a real gateway: live.py PROGRAM, where PROGRAM is kube-fanout.

Everything runs on loopback, with its data in a temporary directory. The rules are copied with times of seconds instead of minutes. While
all is well, only the alerts fire whose faults are there from the beginning, and each query of the dashboard returns data. Then one fault
after the other is planted, and its alert must fire. check.sh --live runs this.
"""

import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import check

# For everything together.
DEADLINE = time.monotonic() + 300
TOKEN = "a-token-of-the-test"
CLIENTS = 12
# Events that a client must miss: more than the history holds.
HISTORY = 200
OBJECT_LEN = 2000
# So many that a gateway with them takes more than the least --memory-max, 64Mi.
PODS = 32_000
# Queries that are empty without a fault or without a setting, by the title of the panel and the beginning of the expression.
EMPTY = {
    ("Given up, filled", "sum by (resource, reason)"): "no cache is given up",
    ("No free permit", "sum by (place, bound)"): "nobody reaches a bound",
    ("Frames rejected, contradictions", ""): "upstream sends no nonsense",
    ("Lists", "sum by (resource, reason) (increase(kube_fanout_upstream_relists"): "nothing is listed again",
    ("Resident", "sum (kube_fanout_memory_limit"): "the first gateway has no --memory-max",
    ("Pressure", "sum by (step)"): "the first gateway has no --memory-max",
    ("Expiry", "(kube_fanout_upstream_credential"): "upstream is used without credentials",
    ("Files read again", ""): "files were read before the first scrape, and do not change",
    ("Given up, filled", "sum by (resource) (increase(kube_fanout_cache_init"): "the caches were filled before the first scrape",
    ("Watches of Tables", ""): "the embedded API server has no Tables",
    ("Age of events at arrival", "sum by (resource) (rate(kube_fanout_upstream_future_writes"): "all have the same clock",
    ("Handovers", "sum by (outcome) (increase(kube_fanout_handovers_taken"): "no --handover-from",
}


def fail(text):
    raise SystemExit(f"live: {text}")


def until(what, ready):
    """Asks until the answer is true, and returns it. Everything together has one deadline."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            if answer := ready():
                return answer
        if time.monotonic() > DEADLINE:
            fail(f"not in time: {what() if callable(what) else what}")
        time.sleep(0.2)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def get(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as response:
        return response.read().decode()


class Gateway:
    """A gateway's ports, and requests to it."""

    def __init__(self, serving, admin):
        self.serving, self.admin = serving, admin
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    def value(self, pattern):
        """The sum of the series whose line in /metrics matches."""
        lines = [line for line in get(f"http://127.0.0.1:{self.admin}/metrics").splitlines() if re.match(pattern, line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def send(self, path, headers="", buffer=1 << 20):
        """Sends a request over a connection of its own."""
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        plain.settimeout(30)
        plain.connect(("127.0.0.1", self.serving))
        stream = self.tls.wrap_socket(plain)
        if "Authorization" not in headers:
            headers += f"Authorization: Bearer {TOKEN}\r\n"
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        stream.sendall(request.encode())
        return stream

    def read(self, path, headers=""):
        with self.send(path, headers) as stream:
            return b"".join(iter(lambda: stream.recv(1 << 16), b""))


class Traffic:
    """Clients of every kind, until it is stopped."""

    WATCHES = [
        ("/api/v1/pods?watch=1", ""),
        ("/api/v1/pods?watch=1&labelSelector=app%3Dx", ""),
        ("/api/v1/configmaps?watch=1", ""),
    ]
    READS = [
        ("/api/v1/pods", "Accept-Encoding: gzip\r\n"),
        ("/api/v1/pods", "Accept-Encoding: gzip\r\n"),
        ("/api/v1/pods?resourceVersion=0", ""),
        ("/api/v1/configmaps", ""),
        ("/api/v1/namespaces/ns-01/configmaps/none", ""),
        ("/api/v1/pods?labelSelector=%2C", ""),
    ]

    def __init__(self, gateway):
        self.gateway, self.stopped = gateway, threading.Event()
        self.threads = [threading.Thread(target=self.watch, args=one, daemon=True) for one in self.WATCHES]
        self.threads.append(threading.Thread(target=self.lists, daemon=True))
        for one in self.threads:
            one.start()

    def watch(self, path, headers):
        while not self.stopped.wait(0.1):
            with contextlib.suppress(OSError), self.gateway.send(path, headers) as stream:
                while not self.stopped.is_set() and stream.recv(1 << 16):
                    pass

    def lists(self):
        for number in itertools.count():
            if self.stopped.wait(1):
                return
            # A token that is not remembered, so that upstream is asked.
            unknown = ("/api/v1/pods", f"Authorization: Bearer unknown-{number}\r\n")
            for path, headers in [*self.READS, unknown]:
                with contextlib.suppress(OSError):
                    self.gateway.read(path, headers)

    def stop(self):
        self.stopped.set()


def resource_version(gateway):
    found = re.search(rb'"resourceVersion":\s*"(\d+)"', gateway.read("/api/v1/pods?limit=1"))
    return found[1].decode()


class Prometheus:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/api/v1/"

    def query(self, expr):
        answer = json.loads(get(self.url + "query?" + urllib.parse.urlencode({"query": expr})))
        return [float(one["value"][1]) for one in answer["data"]["result"]]

    def firing(self):
        alerts = json.loads(get(self.url + "alerts"))["data"]["alerts"]
        return {(one["labels"]["alertname"], one["labels"]["severity"]) for one in alerts if one["state"] == "firing"}

    def await_firing(self, *expected):
        until(lambda: f"{expected} firing; firing are {sorted(self.firing())}", lambda: set(expected) <= self.firing())
        for name, severity in expected:
            print(f"live: {name} fires as {severity}", flush=True)


def shortened(rules):
    """The rules with seconds instead of minutes and hours."""
    rules = re.sub(r"\bfor: \w+", "for: 2s", rules)
    rules = re.sub(r"\[\w+\]", "[15s]", rules)
    return re.sub(r"offset \w+", "offset 10s", rules)


class Stage:
    """The processes and the temporary directory of one run. All of them end with it."""

    def __init__(self, program, stack):
        self.program, self.stack = program, stack
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kube-fanout-alerts-")))

    def start(self, name, *command):
        log = self.stack.enter_context(open(self.folder / f"{name}.log", "wb"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def apiserver(self, name, port, *more):
        url = f"http://127.0.0.1:{port}"
        tokens = self.write("tokens.csv", f'{TOKEN},alice,1,"system:masters"\n')
        flags = ["--listen", f"127.0.0.1:{port}", "--token-auth-file", tokens, *more]
        process = self.start(name, self.program, "apiserver", *flags)
        until(name, lambda: get(url + "/readyz"))
        # Its uid tells clusters apart.
        namespace = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"}}'
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(url + "/api/v1/namespaces", namespace, headers)
        urllib.request.urlopen(request, timeout=5).close()
        return process, url

    def gateway(self, name, upstream, *more):
        serving, admin = free_ports(2)
        certificate, key = self.folder / "tls.crt", self.folder / "tls.key"
        if not key.exists():
            # It expires in a day: the first fault.
            make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
            make += ["-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
            subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
        flags = ["--upstream", upstream, "--listen", f"127.0.0.1:{serving}", "--admin-listen", f"127.0.0.1:{admin}"]
        flags += ["--tls-cert", certificate, "--tls-key", key, "--pin-resources", "pods.v1", *more]
        process = self.start(name, self.program, "serve", *flags)
        until(lambda: f"{name} ready: {self.tail(name)}", lambda: get(f"http://127.0.0.1:{admin}/readyz"))
        return process, Gateway(serving, admin)

    def tail(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def prometheus(self):
        (port,) = free_ports(1)
        self.write("rules.yaml", shortened(check.RULES.read_text(encoding="utf-8")))
        self.write("targets.json", "[]")
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "kube-fanout", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
            ],
        }
        path = self.write("prometheus.yml", json.dumps(config))
        flags = [f"--config.file={path}", f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        self.start("prometheus", "prometheus", *flags)
        until(lambda: f"Prometheus: {self.tail('prometheus')}", lambda: get(f"http://127.0.0.1:{port}/-/ready"))
        return Prometheus(port)

    def targets(self, *gateways):
        groups = [
            {"targets": [f"127.0.0.1:{one.admin}"], "labels": {"namespace": "kube-fanout", "pod": f"kube-fanout-{number}"}}
            for number, one in enumerate(gateways)
        ]
        # Prometheus must not read half a file.
        new = self.write("targets.new", json.dumps(groups))
        os.replace(new, self.folder / "targets.json")


def reason(title, expr):
    """Why a query may be empty."""
    bare = re.sub(r"\{[^}]*\}", "", expr)
    found = [why for (panel, start), why in EMPTY.items() if panel == title and bare.startswith(start)]
    return found[0] if found else None


def await_dashboard(prometheus):
    """Each query returns a number that is one, or is known to be empty."""
    board = json.loads(check.DASHBOARD.read_text(encoding="utf-8"))
    waiting = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            # The interval that Grafana would choose for scrapes once a second is too short for a busy machine.
            expr = check.plain(target["expr"]).replace("[5m]", "[15s]")
            waiting[(panel["title"], expr)] = reason(panel["title"], expr)
    count, empty = len(waiting), {one for one, why in waiting.items() if why}
    missing = set(waiting) - empty

    def found():
        for one in list(missing):
            if any(not math.isnan(value) for value in prometheus.query(one[1])):
                missing.discard(one)
        return not missing

    until(lambda: "data for " + "; ".join(f"{title}: {expr}" for title, expr in sorted(missing)), found)
    filled = {one for one in empty if prometheus.query(one[1])}
    print(f"live: {count - len(empty) + len(filled)} of {count} queries of the dashboard return data; empty are:", flush=True)
    for title, expr in sorted(empty - filled):
        print(f"live:   {title}: {waiting[title, expr]}", flush=True)


def cut_slow_clients(gateway):
    """Clients that read nothing until what they need next is gone."""
    received = r'kube_fanout_upstream_events_received_total\{.*resource="pods"'
    version = resource_version(gateway)
    streams = [gateway.send(f"/api/v1/pods?watch=1&resourceVersion={version}", buffer=4096) for _ in range(CLIENTS)]
    before = gateway.value(received)
    until("events", lambda: gateway.value(received) > before + 5 * HISTORY)
    for stream in streams:
        with stream:
            end = b""
            while b'"code":410' not in end:
                data = stream.recv(1 << 16)
                if not data:
                    fail("a slow client did not get 410")
                end = end[-1000:] + data


def stop_reading(gateway):
    """Clients that never read: the gateway cuts them after two minutes. They are kept open until the end."""
    version = resource_version(gateway)
    paths = [f"/api/v1/pods?watch=1&resourceVersion={version}", "/api/v1/pods"]
    return [gateway.send(path, buffer=4096) for path in paths for _ in range(CLIENTS)]


def short_of_memory(stage, url):
    """A gateway whose bound is little more than what the same gateway takes without one."""
    process, unbounded = stage.gateway("unbounded", url)
    resident = until("a reading", lambda: unbounded.value("kube_fanout_memory_resident_bytes "))
    stage.end(process)
    return stage.gateway("short", url, "--memory-max", str(int(resident * 1.02)))


def play(stage):
    servers = free_ports(2)
    churn = ["--objects", "pods=200,configmaps=20", "--churn", "100", "--object-len", str(OBJECT_LEN)]
    first, url = stage.apiserver("apiserver", servers[0], *churn)
    # Its store is its own, so it is another cluster: the second fault.
    _, foreign = stage.apiserver("foreign", servers[1], "--objects", f"pods={PODS}", "--churn", "0")
    policy = stage.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    flags = ["--ring-bytes-max", str(HISTORY * OBJECT_LEN), "--state-dir", stage.folder / "state", "--drift-interval", "2s"]
    flags += ["--audit-policy-file", policy, "--audit-log-path", stage.folder / "audit.log"]
    (stage.folder / "state").mkdir(mode=0o700)
    _, gateway = stage.gateway("gateway", f"{url},{foreign}", *flags)
    prometheus = stage.prometheus()
    stage.targets(gateway)
    traffic = Traffic(gateway)
    stage.stack.callback(traffic.stop)

    planted = {
        ("KubeFanoutServingCertificateExpiring", "warning"),
        ("KubeFanoutServingCertificateExpiring", "critical"),
        ("KubeFanoutEndpointForeign", "critical"),
    }
    await_dashboard(prometheus)
    prometheus.await_firing(*sorted(planted))
    until(lambda: f"all others silent: {sorted(prometheus.firing())}", lambda: prometheus.firing() == planted)
    print("live: no other alert fires", flush=True)

    stopped = stop_reading(gateway)
    cut_slow_clients(gateway)
    prometheus.await_firing(("KubeFanoutClientsCutForLag", "warning"))

    short, second = short_of_memory(stage, foreign)
    stage.targets(gateway, second)
    prometheus.await_firing(("KubeFanoutMemoryNearBound", "warning"))
    stage.end(short)
    prometheus.await_firing(("KubeFanoutReplicaDown", "critical"))
    stage.end(first)
    prometheus.await_firing(("KubeFanoutUpstreamGone", "critical"), ("KubeFanoutUpstreamWatchDown", "warning"))
    # This takes longest.
    prometheus.await_firing(("KubeFanoutClientsStalled", "warning"))
    for stream in stopped:
        stream.close()


def main():
    if len(sys.argv) != 2 or not os.access(sys.argv[1], os.X_OK):
        fail("name the program kube-fanout, which must be built")
    for program in ["prometheus", "openssl"]:
        if not shutil.which(program):
            fail(f"{program} is missing: install it, or run .ci/setup.sh test")
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        play(Stage(os.path.abspath(sys.argv[1]), stack))
    print(f"live: passed, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
