"""A stand-in gateway that tests the restart suite itself (GATEWAY=relay). It forwards everything, and keeps each watch open when
the server goes away, by listing again and sending the difference. RELAY_FAULT makes it break a promise, which the suite must
detect: drop (some events), repeat, forget (deletions in an outage), error, drop-in-outage (the first change that a list
showed), drop-selected (events, for clients with a selector), late (it lists again some time after an outage, so that newer
versions replace older ones; for clients without a selector).

python3 -m suites.relay SERVER_PORT CA TOKEN_FILE LISTEN_PORT"""
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from . import wire

FAULT = os.environ.get("RELAY_FAULT", "")
AWAY_SECONDS = 2  # reconnects this much later than the server returns, as gateways do between two attempts
LATE_EVENTS = 30  # replaced by newer ones
SELECTORS = ("labelSelector", "fieldSelector")


class Watch:
    """One client's watch: its state, and the frames that bring it up to date."""

    def __init__(self, server, path, params):
        self.server, self.path, self.params = server, path, params
        self.state, self.count = {}, 0
        self.version = params["resourceVersion"]

    def listed(self):
        """(version, {key: object}); waits for the server."""
        target = wire.query(self.path, **{name: self.params.get(name) for name in SELECTORS})
        body = wire.poll("a list", lambda: (lambda a: a.status == 200 and a.body)(wire.request(self.server, "GET", target)), 60)
        got = json.loads(body)
        for item in got["items"]:
            item.setdefault("kind", got["kind"].removesuffix("List"))
        return got["metadata"]["resourceVersion"], {key(i): i for i in got["items"]}

    def difference(self):
        version, now = self.listed()
        out = []
        for k, old in self.state.items():
            new = now.get(k)
            if new is None or new["metadata"]["uid"] != old["metadata"]["uid"]:
                gone = json.loads(json.dumps(old))
                gone["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"] if new else version
                if FAULT != "forget":
                    out.append((int(gone["metadata"]["resourceVersion"]), 0, "DELETED", gone))
        for k, new in now.items():
            old = self.state.get(k)
            if old is None or old["metadata"]["uid"] != new["metadata"]["uid"]:
                out.append((rv(new), 1, "ADDED", new))
            elif rv(old) != rv(new):
                out.append((rv(new), 1, "MODIFIED", new))
        self.state, self.version = now, version
        changes = [(kind, thing) for _, _, kind, thing in sorted(out, key=lambda e: e[:2])]
        if FAULT == "drop-in-outage" and changes:
            del changes[0]
        return changes

    def frames(self):
        _, self.state = self.listed()
        swallow = 0
        while True:
            stream = wire.Stream(self.server, wire.query(self.path, **{**self.params, "resourceVersion": self.version}))
            at = 0
            while True:
                with stream.changed:
                    stream.changed.wait_for(lambda: len(stream.frames) > at or stream.end)
                if at == len(stream.frames):
                    break
                event = json.loads(stream.frames[at])
                at += 1
                if event["type"] in ("ERROR", "BOOKMARK"):
                    continue
                if swallow > 0:
                    swallow -= 1
                    if not swallow:
                        for kind, thing in self.difference():
                            yield kind, thing
                        stream.close()
                        break
                    continue
                self.apply(event)
                yield from self.faulty(event["type"], event["object"])
            if swallow == 0 and not stream.end == "closed":
                self.listed()
                time.sleep(AWAY_SECONDS)
                for kind, thing in self.difference():
                    yield from self.faulty(kind, thing)
                swallow = LATE_EVENTS if FAULT == "late" and not self.selects() else 0

    def selects(self):
        return any(name in self.params for name in SELECTORS)

    def apply(self, event):
        thing = event["object"]
        self.version = thing["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            self.state.pop(key(thing), None)
        else:
            self.state[key(thing)] = thing

    def faulty(self, kind, thing):
        self.count += 1
        if (FAULT == "drop" or FAULT == "drop-selected" and self.selects()) and self.count % 20 == 0:
            return
        yield kind, thing
        if FAULT == "repeat" and self.count % 20 == 0:
            yield kind, thing
        if FAULT == "error" and self.count % 20 == 0:
            yield "ERROR", {"kind": "Status", "message": "as asked for"}


def key(thing):
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def rv(thing):
    return int(thing["metadata"]["resourceVersion"])


def serve(port, server):
    class Relay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = urlsplit(self.path)
            params = dict(parse_qsl(url.query))
            if params.get("watch") != "true":
                answer = wire.request(server, "GET", self.path)
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for kind, thing in Watch(server, url.path, params).frames():
                line = json.dumps({"type": kind, "object": thing}, separators=(",", ":")).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        def log_message(self, *_):
            pass

    front = ThreadingHTTPServer(("127.0.0.1", port), Relay)
    front.daemon_threads = True
    front.serve_forever()


if __name__ == "__main__":
    with open(sys.argv[3]) as token_file:
        serve(int(sys.argv[4]), wire.Endpoint("server", "127.0.0.1", int(sys.argv[1]), sys.argv[2], token_file.read().strip()))
