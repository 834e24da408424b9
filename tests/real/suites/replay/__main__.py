"""Records the requests of clients, and sends them again to two servers: see tests/real/replay.sh."""
import argparse
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from .. import wire
from ..differential.case import shown
from .exchange import fetch
from .judge import compare
from .recorder import Journal, Relay
from .request import Unreadable, read_line

SAFE = ("GET", "HEAD", "OPTIONS")
LINE_MAX = 4 << 20
TOP = "/api/v1/namespaces?limit=1"  # its list shows the newest version


def secret(text):
    """The value itself, or @FILE."""
    if text and text.startswith("@"):
        with open(text[1:]) as file:
            return file.read().strip()
    return text


def endpoint(name, url, ca, token):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        sys.exit(f"replay.sh: {url!r} is not http(s)://HOST:PORT")
    https = parts.scheme == "https"
    if https and not ca:
        sys.exit(f"replay.sh: {url} needs --ca FILE")
    return wire.Endpoint(name, parts.hostname, parts.port or (443 if https else 80), ca if https else None, secret(token))


def record(args):
    host, _, port = args.listen.rpartition(":")
    if host != "127.0.0.1" or not port.isdigit():
        sys.exit("replay.sh: --listen 127.0.0.1:PORT")
    upstream, journal = endpoint("upstream", args.upstream, args.ca, args.token), Journal(args.out)
    with Relay(int(port), upstream, journal) as relay:
        print(f"http://127.0.0.1:{relay.address[1]} forwards to {args.upstream}; Ctrl-C stops it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
    print(f"{journal.count} requests in {args.out}" + (f", {journal.dropped} more did not fit" if journal.dropped else ""))
    return 0


def captured(path):
    """The requests of a file, each with its line number. An invalid line is reported."""
    with open(path, errors="replace") as file:
        number = 0
        while line := file.readline(LINE_MAX):
            number += 1
            try:
                yield number, read_line(line)
            except Unreadable as e:
                sys.exit(f"replay.sh: {path}, line {number}: {e}")


def newest(server):
    """The server's newest version, or no bound if the server does not show it."""
    try:
        return int(json.loads(wire.request(server, "GET", TOP).body)["metadata"]["resourceVersion"])
    except (OSError, wire.WireError, ValueError, KeyError, TypeError):
        return sys.maxsize


def replay(args):
    server = endpoint("server", args.server, args.ca, args.server_token or args.token)
    gateway = endpoint("gateway", args.gateway, args.gateway_ca or args.ca, args.gateway_token or args.token)
    same = different = left = 0
    for number, request in captured(args.file):
        if request.method not in SAFE or request.left_out:
            left += 1
            continue
        differences = difference(server, gateway, request, args.watch_seconds)
        if not differences:
            same += 1
            continue
        different += 1
        print(f"DIFF line {number}: {shown(str(request), 300)}\n     | {request.curl('$SERVER')}")
        print("\n".join(f"     | {line}" for line in differences), flush=True)
    print(f"{same} the same, {different} different, {left} left out because they write")
    return 1 if different else 0


def difference(server, gateway, request, watch_seconds):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fetch, side, request, watch_seconds) for side in (server, gateway)]
        try:
            left, right = (job.result() for job in jobs)
        except (OSError, wire.WireError, ValueError, IndexError) as e:
            return [f"no answer: {type(e).__name__}: {e}"]
    return compare(request, left, right, newest(server))


def main(words=None):
    parser = argparse.ArgumentParser(prog="replay.sh")
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("record", help="run a relay that records requests")
    verb.set_defaults(run=record)
    verb.add_argument("--upstream", required=True, metavar="URL")
    verb.add_argument("--listen", required=True, metavar="127.0.0.1:PORT")
    verb.add_argument("--out", required=True, metavar="FILE")
    verb = verbs.add_parser("replay", help="send recorded requests to both sides and compare the responses")
    verb.set_defaults(run=replay)
    verb.add_argument("file")
    verb.add_argument("--server", required=True, metavar="URL")
    verb.add_argument("--gateway", required=True, metavar="URL")
    verb.add_argument("--server-token", metavar="@FILE")
    verb.add_argument("--gateway-token", metavar="@FILE")
    verb.add_argument("--gateway-ca", metavar="FILE")
    verb.add_argument("--watch-seconds", type=float, default=3, help="seconds to read a watch that does not end by itself [3]")
    for verb in verbs.choices.values():
        verb.add_argument("--ca", metavar="FILE")
        verb.add_argument("--token", metavar="@FILE", help="sent when a request has none")
    args = parser.parse_args(words)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
