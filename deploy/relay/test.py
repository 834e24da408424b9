#!/usr/bin/env python3
"""Runs haproxy.cfg as nodes do: test.py [--bounds] [NODES]. `.ci/check.sh relay` calls it. GATEWAY is the program, by default that of the last build.

A relay for each of 20 nodes, all on loopback, before two gateways and the embedded API server. On each node two clients go through the
relay: one renews a lease every second, one watches. All servers have certificates for kubernetes.default.svc; the subject says which
server answers. While percentages change and gateways are killed, frozen, drained, or answer nonsense, clients must come to where they
belong. A reload must end no connection. With --bounds, for a quiet machine, they must be there within 30 seconds, and no lease may go
without renewal for 10 seconds.
"""

import asyncio
import contextlib
import hashlib
import json
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
import time

HERE = pathlib.Path(__file__).resolve().parent
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") or "haproxy"
PROGRAM = os.environ.get("GATEWAY", str(HERE.parents[1] / "target/debug/kube-fanout"))
COUNTS = [int(argument) for argument in sys.argv[1:] if argument != "--bounds"]
NODES = [f"node-{number}" for number in range(COUNTS[0] if COUNTS else 20)]
# How long clients may take to be where they belong, and a lease may go without renewal. A busy machine only has to get there.
MOVE_SECONDS, LEASE_SECONDS = (30, 10) if "--bounds" in sys.argv else (180, float("inf"))
GATEWAYS = {"gateway-1", "gateway-2"}
NAME = "kubernetes.default.svc"


def fail(text):
    raise SystemExit(f"relay: {text}")


def place(node):
    """What docs/HOWTO.md says."""
    return int.from_bytes(hashlib.sha256(b"relay\0" + node.encode()).digest()[:8], "big") / 2**64


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"openssl {arguments[0]}: {done.stderr}")


class Stage:
    """The servers and the relays, and what clients see of them."""

    def __init__(self, folder):
        self.folder = folder
        names = ["api-1", *sorted(GATEWAYS)]
        ports = free_ports(len(names) + len(NODES) + len(GATEWAYS))
        self.ports = dict(zip(names, ports))
        self.relays = dict(zip(NODES, ports[len(names) :]))
        self.admin = dict(zip(sorted(GATEWAYS), ports[len(names) + len(NODES) :]))
        self.processes = {}
        self.logs = open(folder / "log", "w")
        self.tls = None
        # Where the clients of each node are, their connections so far, and the watches that did not end with a complete response.
        self.at, self.connections, self.broken = {node: [None, None] for node in NODES}, 0, 0
        # When each lease was renewed, and the times between two renewals.
        self.renewed, self.gaps = {}, [0.0]

    def certificates(self):
        ca = self.folder / "ca"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test",
                "-addext", "keyUsage=critical,keyCertSign", "-keyout", f"{ca}.key", "-out", f"{ca}.crt")
        for name in self.ports:
            path = self.folder / name
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1", "-keyout", f"{path}.key", "-out", f"{path}.csr")
            openssl("x509", "-req", "-in", f"{path}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-days", "2", "-copy_extensions",
                    "copy", "-out", f"{path}.crt")
        self.tls = ssl.create_default_context(cafile=f"{ca}.crt")

    def start(self, name, arguments, **environment):
        self.logs.write(f"--- {name} starts\n")
        self.logs.flush()
        self.processes[name] = subprocess.Popen(arguments, stdout=self.logs, stderr=self.logs, env=os.environ | environment)

    def start_apiserver(self):
        path = self.folder / "api-1"
        self.start("api-1", [PROGRAM, "apiserver", f"--listen=127.0.0.1:{self.ports['api-1']}", f"--tls-cert={path}.crt",
                             f"--tls-key={path}.key", "--churn=5", "--objects=nodes=20"])
        cluster = {"server": f"https://127.0.0.1:{self.ports['api-1']}", "certificate-authority": f"{self.folder}/ca.crt"}
        kubeconfig = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
                      "clusters": [{"name": "a", "cluster": cluster}],
                      "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))

    def start_gateway(self, name):
        path = self.folder / name
        self.start(name, [PROGRAM, "serve", f"--config={self.folder}/gateway.yaml", f"--listen=127.0.0.1:{self.ports[name]}",
                          f"--admin-listen=127.0.0.1:{self.admin[name]}", f"--tls-cert={path}.crt", f"--tls-key={path}.key"])

    def configure(self, percent):
        new = self.folder / "new"
        new.write_text(f"apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\nkubeconfig: {self.folder}/kubeconfig\n"
                       "auth: none\niKnowThisIsInsecure: true\npinResources: [nodes.v1]\ndrainDelay: 7s\ndrainTimeout: 12s\n"
                       f"relayPercent: {percent}\n")
        new.rename(self.folder / "gateway.yaml")

    def start_relay(self, node):
        """The file as it is, but for addresses and paths."""
        text = (HERE / "haproxy.cfg").read_text()
        text = text.replace("127.0.0.1:6444", f"127.0.0.1:{self.relays[node]}")
        text = text.replace("/etc/kube-fanout/relay/ca.crt", f"{self.folder}/ca.crt")
        text = text.replace("/run/kube-fanout-relay/admin.sock", f"{self.folder}/{node}.sock")
        lines = []
        for line in text.splitlines():
            server = re.match(r"( *server ([\w-]+)) \S+(.*)", line)
            if server and server[2] in self.ports:
                lines.append(f"{server[1]} 127.0.0.1:{self.ports[server[2]]}{server[3]}")
            elif not server:
                lines.append(line)
        path = self.folder / f"{node}.cfg"
        path.write_text("\n".join(lines) + "\n")
        self.start(node, [HAPROXY, "-W", "-db", "-f", str(path)], NODE_NAME=node)

    async def signal(self, name, number):
        self.processes[name].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            await asyncio.to_thread(self.processes[name].wait)

    def stop(self):
        for name, process in self.processes.items():
            # A relay ends its worker.
            process.send_signal(signal.SIGTERM if name in NODES else signal.SIGKILL)
            process.wait()
        self.logs.close()

    async def connect(self, node):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.relays[node], ssl=self.tls, server_hostname=NAME)
        self.connections += 1
        subject = dict(pair[0] for pair in writer.get_extra_info("peercert")["subject"])
        return reader, writer, subject["commonName"]

    async def renew(self, node):
        """Renews the node's lease every second, as a kubelet does every ten; like one, it gives an attempt up after some seconds."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node, "namespace": "kube-node-lease"}}
        connection, method, count = None, "POST", 0
        while True:
            try:
                async with asyncio.timeout(5):
                    if connection is None:
                        connection = await self.connect(node)
                    reader, writer, self.at[node][0] = connection
                    count += 1
                    body = json.dumps(lease | {"spec": {"holderIdentity": node, "leaseTransitions": count}})
                    target = path if method == "POST" else f"{path}/{node}"
                    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\n"
                                 f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    await reader.readexactly(int(re.search(r"(?i)content-length: *(\d+)", head)[1]))
                if head.split()[1] not in ("200", "201", "409"):
                    raise ValueError(head.splitlines()[0])
                method, now = "PUT", time.monotonic()
                self.gaps.append(now - self.renewed.get(node, now))
                self.renewed[node] = now
                if "connection: close" in head.lower():
                    writer.close()
                    connection = None
                await asyncio.sleep(1)
            except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
                if connection:
                    connection[1].close()
                self.at[node][0] = connection = None
                await asyncio.sleep(0.2)

    async def watch(self, node):
        """Watches until the stream ends, and again."""
        while True:
            writer, last = None, b""
            try:
                reader, writer, end = await self.connect(node)
                writer.write(f"GET /api/v1/nodes?watch=1&resourceVersion=0&allowWatchBookmarks=1 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                if head.split()[1] == b"200":
                    self.at[node][1] = end
                    while not last.endswith(b"0\r\n\r\n") and (chunk := await reader.read(65536)):
                        last = (last + chunk)[-7:]
            except (OSError, ValueError, asyncio.IncompleteReadError):
                pass
            if self.at[node][1] and not last.endswith(b"0\r\n\r\n"):
                self.broken += 1
            if writer:
                writer.close()
            self.at[node][1] = None
            await asyncio.sleep(0.2)

    async def settled(self, what, where):
        """Waits until all clients of each node are at the servers that `where` names, and prints how long that took."""
        began, self.gaps = time.monotonic(), [0.0]
        while not all(end in where(node) for node in NODES for end in self.at[node]):
            if time.monotonic() - began > MOVE_SECONDS:
                wrong = {node: ends for node, ends in self.at.items() if not all(end in where(node) for end in ends)}
                fail(f"{what}: not in time: {wrong}")
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
        await asyncio.sleep(1.5)
        gap = max(self.gaps + [time.monotonic() - at for at in self.renewed.values()])
        print(f"relay: {what}: {took:.1f} s, longest time without a renewal {gap:.1f} s", flush=True)
        if gap > LEASE_SECONDS:
            fail(f"{what}: a lease went without renewal for {gap:.1f} s")


async def nonsense(_, writer):
    with contextlib.suppress(OSError):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
        await writer.drain()
    writer.close()


async def percentages(stage):
    for percent in (50, 100, 12.5, 100):
        stage.configure(percent)
        await stage.settled(f"{percent} %", lambda node: GATEWAYS if place(node) * 100 < percent else {"api-1"})


async def faults(stage):
    one, other = sorted(GATEWAYS)

    def everywhere(ends):
        return lambda _: ends

    await stage.signal(one, signal.SIGKILL)
    await stage.settled("a gateway is killed", everywhere({other}))
    server = await asyncio.start_server(nonsense, "127.0.0.1", stage.ports[one])
    await stage.signal(other, signal.SIGSTOP)
    await stage.settled("the other is frozen, and the first answers nonsense", everywhere({"api-1"}))
    server.close()
    await stage.signal(other, signal.SIGCONT)
    await stage.settled("the frozen one continues", everywhere({other}))
    stage.start_gateway(one)
    # The clients stay with the other one; new ones would go to both.
    await ready(stage, one)
    await asyncio.sleep(10)
    broken = stage.broken
    await stage.signal(other, signal.SIGTERM)
    await stage.settled("a gateway is drained", everywhere({one}))
    # Once it accepts no connections, the relays take it for gone, and close what is left: clients resume.
    print(f"relay: {len(NODES) - (stage.broken - broken)} of {len(NODES)} watches were ended by the gateway")
    await stage.signal(one, signal.SIGKILL)
    await stage.settled("no gateway is left", everywhere({"api-1"}))
    for name in GATEWAYS:
        stage.start_gateway(name)
    await stage.settled("all gateways are back", everywhere(GATEWAYS))


async def reload(stage):
    before = stage.connections
    for node in NODES:
        await stage.signal(node, signal.SIGUSR2)
    await asyncio.sleep(6)
    if stage.connections != before:
        fail(f"{stage.connections - before} connections ended in a reload")
    for node in NODES:
        _, writer, end = await stage.connect(node)
        writer.close()
        if end not in GATEWAYS:
            fail(f"after a reload a new connection of {node} is at {end}")
    print("relay: a reload: no connection ended, and new ones are where they belong")


async def ready(stage, name):
    deadline = time.monotonic() + MOVE_SECONDS
    while True:
        with contextlib.suppress(OSError, IndexError):
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.admin[name])
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if answer.split()[1] == b"200":
                return
        if time.monotonic() > deadline:
            fail(f"{name} is not ready in time")
        await asyncio.sleep(0.05)


async def run(stage):
    stage.certificates()
    stage.configure(0)
    stage.start_apiserver()
    for name in GATEWAYS:
        stage.start_gateway(name)
    for name in GATEWAYS:
        await ready(stage, name)
    for node in NODES:
        stage.start_relay(node)
    async with asyncio.TaskGroup() as clients:
        tasks = [clients.create_task(client) for node in NODES for client in (stage.renew(node), stage.watch(node))]
        await stage.settled("0 %", lambda _: {"api-1"})
        await percentages(stage)
        await faults(stage)
        await reload(stage)
        for task in tasks:
            task.cancel()


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(pathlib.Path(folder))
        try:
            asyncio.run(run(stage))
        except BaseException:
            stage.logs.flush()
            print((stage.folder / "log").read_text()[-8000:], file=sys.stderr)
            raise
        finally:
            stage.stop()
    print(f"relay: {len(NODES)} nodes, all as it should be, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
