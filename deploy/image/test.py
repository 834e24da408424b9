#!/usr/bin/env python3
"""Runs the image as the manifests do: test.py ARCHIVE NAME:TAG. image.sh --test calls it.

Two containers run: the embedded API server, and a gateway in front of it. They have a read-only root, no capabilities and no new
privileges, and the image's own user. The gateway reaches the API server by a name, once from /etc/hosts and once from a name server. Its
probes must succeed, a list and a watch must pass through it, and SIGTERM must end it with the exit code 0. Everything is on loopback.
"""

import contextlib
import json
import pathlib
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

DEADLINE = time.monotonic() + 120
NAME = "api.image-test.internal"
# A name server listens on port 53; this address is less likely to have one than 127.0.0.1.
NAME_SERVER = "127.0.53.1"


def fail(text):
    raise SystemExit(f"image: {text}")


def until(what, ready):
    """Asks until the answer is true, and returns it."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            if answer := ready():
                return answer
        if time.monotonic() > DEADLINE:
            fail(f"not in time: {what}")
        time.sleep(0.01)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


class NameServer:
    """Answers every question for an IPv4 address with 127.0.0.1, and others with no records."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.bind((NAME_SERVER, 53))
        except OSError as error:
            fail(f"cannot be a name server on {NAME_SERVER}:53, run this as root: {error}")
        self.asked = set()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            query, address = self.socket.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode())
                at += 1 + query[at]
            self.asked.add(".".join(labels))
            kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
            answers = 1 if kind == 1 else 0
            answer = query[:2] + struct.pack(">HHHHH", 0x8580, 1, answers, 0, 0) + query[12:end]
            if answers:
                answer += struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 127, 0, 0, 1)
            self.socket.sendto(answer, address)


class Podman:
    """Containers in a storage of their own."""

    def __init__(self, folder):
        self.options = ["podman", f"--root={folder}/root", f"--runroot={folder}/run", f"--tmpdir={folder}/tmp", "--storage-driver=vfs"]
        self.options += ["--cgroup-manager=cgroupfs", "--runtime=runc", "--events-backend=none"]
        self.running = []

    def call(self, *arguments):
        done = subprocess.run([*self.options, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            fail(f"podman {' '.join(arguments)}: {done.stderr}")
        return done.stdout.strip()

    def start(self, name, image, arguments, options=()):
        """Starts a container as the manifests would."""
        # What the runtime may set without more rights than a container in a build has.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = [f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=1000:1000"]
        self.running.append(name)
        self.call(
            *("run", "--detach", f"--name={name}", "--network=host", "--pull=never", "--log-driver=k8s-file"),
            *("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"),
            *(*limits, *options, image, *arguments),
        )

    def end(self, name):
        """Stops a container as the kubelet would, and returns its exit code."""
        self.call("stop", "--time=30", name)
        code = int(self.call("inspect", "--format={{.State.ExitCode}}", name))
        self.call("rm", name)
        self.running.remove(name)
        return code

    def close(self):
        for name in self.running:
            logs = subprocess.run([*self.options, "logs", name], capture_output=True, text=True, check=False)
            print(f"--- {name}\n{logs.stdout}{logs.stderr}", file=sys.stderr)
            subprocess.run([*self.options, "rm", "--force", "--time=0", name], capture_output=True, check=False)


def serve(podman, image, server, resolve):
    """Runs a gateway, which finds the API server's name with these options, and returns the seconds until it is ready."""
    listen, admin = free_port(), free_port()
    began = time.monotonic()
    arguments = ["serve", f"--upstream=http://{NAME}:{server}", "--auth=none", "--i-know-this-is-insecure", "--plain-http"]
    arguments += [f"--listen=127.0.0.1:{listen}", f"--admin-listen=127.0.0.1:{admin}", "--pin-resources=pods.v1", "--drain-delay=0s"]
    podman.start("gateway", image, arguments, resolve)
    until("the gateway is ready", lambda: status(f"http://127.0.0.1:{admin}/readyz") == 200)
    took = time.monotonic() - began
    for probe in ("livez", "readyz"):
        if (code := status(f"http://127.0.0.1:{admin}/{probe}")) != 200:
            fail(f"/{probe} answers {code}")
    with urllib.request.urlopen(f"http://127.0.0.1:{listen}/api/v1/pods", timeout=10) as response:
        listed = json.load(response)
    # Among the API server's own writes are deletions, each followed by a creation.
    if len(listed["items"]) not in (9, 10):
        fail(f"the list has {len(listed['items'])} pods instead of 9 or 10")
    version = listed["metadata"]["resourceVersion"]
    address = f"http://127.0.0.1:{listen}/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds=30"
    with urllib.request.urlopen(address, timeout=30) as response:
        if (event := json.loads(response.readline()))["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            fail(f"the watch begins with {event['type']} instead of a change")
    if code := podman.end("gateway"):
        fail(f"the gateway ends with the exit code {code}")
    return took


def inspect(podman, image):
    """The image is what the manifests expect: its user, its program, and nothing else."""
    settings = json.loads(podman.call("image", "inspect", image))[0]
    if settings["Config"]["User"] != "65532:65532":
        fail(f"the user is {settings['Config']['User']}")
    if settings["Config"]["Entrypoint"] != ["/usr/local/bin/kube-fanout"] or settings["Config"]["Cmd"] != ["serve", "--in-cluster"]:
        fail(f"the command is {settings['Config']['Entrypoint']} {settings['Config']['Cmd']}")
    return settings["Size"]


def main():
    archive, image = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        podman = Podman(folder)
        podman.call("load", f"--input={archive}")
        size = inspect(podman, image)
        try:
            server = free_port()
            podman.start("apiserver", image, ["apiserver", f"--listen=127.0.0.1:{server}", "--objects=pods=10", "--churn=10"])
            until("the API server answers", lambda: status(f"http://127.0.0.1:{server}/readyz") == 200)
            hosts = serve(podman, image, server, [f"--add-host={NAME}:127.0.0.1"])
            names = NameServer()
            asked = serve(podman, image, server, [f"--dns={NAME_SERVER}"])
            if NAME not in names.asked:
                fail("the gateway did not ask the name server")
            podman.end("apiserver")
        finally:
            podman.close()
    seconds = min(hosts, asked)
    archived = pathlib.Path(archive).stat().st_size
    print(f"image: {size / 1e6:.1f} MB, {archived / 1e6:.1f} MB as an archive; ready {seconds:.2f} s after podman began; its probes succeed")


if __name__ == "__main__":
    main()
