#!/usr/bin/env python3
"""Watch clients of a gateway, some of them slow, for the status page and `kube-fanout top`; loads of thousands are the load test's business.

    swarm.py http://127.0.0.1:8443 --clients 300 --slow 6 --for 120

Each client is one HTTP/1.1 connection that watches PATH from its version on. The slow ones have small receive buffers: half of them read nothing,
the others --trickle bytes a second. Users cannot be chosen here; user agents are those below. Ends after --for seconds, or on Ctrl-C.
"""
import argparse
import json
import selectors
import socket
import time
import urllib.parse
import urllib.request

QUICK = ["kubelet/v1.36.0 (linux/amd64) kubernetes/abcdef0", "kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/abcdef0", "argocd/3.1 (linux/amd64)"]
SLOW = ["crawler/1.0 (linux/amd64) kubernetes/0123456", "<script>alert(1)</script>", "evil\u202egnp.exe\u200b", "w" * 160, ""]


def version(url, path):
    """The version of a collection. A watch from there on needs no list, of which the gateway serves few at a time."""
    with urllib.request.urlopen(f"{url}{path}?limit=1&resourceVersion=0") as answer:
        return json.load(answer)["metadata"]["resourceVersion"]


def connect(address, request, is_slow):
    client = socket.socket()
    if is_slow:
        # Before the connection, so that the window is small.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(request)
    client.setblocking(False)
    return client


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--path", action="append", help="collections to watch, in turn [/api/v1/pods]")
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--slow", type=int, default=0, help="how many of them are slow")
    parser.add_argument("--trickle", type=int, default=2000, help="bytes a second that every other slow client reads")
    parser.add_argument("--for", dest="seconds", type=float, default=60)
    options = parser.parse_args()
    url = urllib.parse.urlsplit(options.url)
    address, paths = (url.hostname, url.port), options.path or ["/api/v1/pods"]
    versions = {path: version(options.url, path) for path in paths}
    selector, slow = selectors.DefaultSelector(), []
    for number in range(options.clients):
        is_slow = number < options.slow
        agents = SLOW if is_slow else QUICK
        # Every other slow client is of the first agent, so that there is a group.
        agent = agents[0 if is_slow and number % 2 else number % len(agents)]
        path = paths[number % len(paths)]
        request = f"GET {path}?watch=1&resourceVersion={versions[path]} HTTP/1.1\r\nHost: {url.netloc}\r\nUser-Agent: {agent}\r\n\r\n".encode()
        client = connect(address, request, is_slow)
        if is_slow:
            slow.append(client)
        else:
            selector.register(client, selectors.EVENT_READ)
    print(f"{options.clients} clients, {options.slow} slow", flush=True)
    end, next_at, ended = time.monotonic() + options.seconds, time.monotonic(), 0
    while time.monotonic() < end:
        for key, _ in selector.select(0.2):
            if not key.fileobj.recv(1 << 18):
                selector.unregister(key.fileobj)
                ended += 1
        if time.monotonic() >= next_at:
            next_at += 1
            for client in slow[::2]:
                try:
                    client.recv(options.trickle)
                except OSError:
                    pass
    print(f"{ended} of the others were ended by the gateway", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
