"""kubectl get -w in its output forms: the state that a reader would derive from the printed lines alone."""
import json
import re
import subprocess
import threading
import time

from .. import wire
from .kubectl import Kubectl

EVENT = re.compile(r"^(ADDED|MODIFIED|DELETED)\s+(\S+)\s+(\S+)\s+(\S+)")
YAML_TYPE = re.compile(r"^type: (\w+)", re.M)
YAML_META = {name: re.compile(rf"^    {name}: \"?([^\"\n]+)", re.M) for name in ("namespace", "name", "uid", "resourceVersion")}
AGE = re.compile(r"\b(\d+[dhms])+ *$", re.M)
READS = ("get pods -A -o yaml", "get widgets -A", "get configmaps -A -o json", "wait pod/o1 --for=jsonpath={.metadata.name}=o1 --timeout=30s")
COMMANDS = {  # command: resource
    "get widgets -A -w --output-watch-events": "widgets",
    "get widgets -A -w": "widgets",
    "get pods -A -w -l app=demo --output-watch-events -o json --show-managed-fields": "pods",
    "get pods -A -w --field-selector=spec.nodeName=node-1 --output-watch-events -o json": "pods",
    "get configmaps -A -w --output-watch-events -o yaml": "configmaps",
}
QUERIES = {command: dict(labelSelector="app=demo" if "-l " in command else None, fieldSelector="spec.nodeName=node-1" if "--field" in command else None) for command in COMMANDS}


class Watch:
    """One kubectl; text() is its output so far."""

    def __init__(self, kubectl, command):
        self.command, self.name = command, f"kubectl {command}, {kubectl.name}"
        self.process = subprocess.Popen(kubectl.args(command), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pieces, self.errors = [], []
        for stream, into in ((self.process.stdout, self.pieces), (self.process.stderr, self.errors)):
            threading.Thread(target=self._read, args=(stream, into), daemon=True).start()

    @staticmethod
    def _read(stream, into):
        for line in stream:
            into.append(line)

    def text(self):
        return "".join(list(self.pieces))

    def differs(self, truth):
        """The reason why the output does not show the server's state, or ''."""
        if self.process.poll() is not None:
            return f"it ended with {self.process.returncode}: {''.join(self.errors)[-500:]}"
        if "-o json" in self.command or "-o yaml" in self.command:
            return self._objects_differ(truth)
        return self._table_differs(truth)

    def _objects_differ(self, truth):
        held, newest = {}, {}
        for kind, key, uid, version in (json_events if "-o json" in self.command else yaml_events)(self.text()):
            if int(version) < newest.get(key, 0):
                return f"{key} went back to {version} after {newest[key]}"
            newest[key] = int(version)
            if kind == "DELETED":
                held.pop(key, None)
            else:
                held[key] = [uid, version]
        return "" if held == truth.ids else f"{len(held)} objects, {len(truth.ids)} at the server: {sorted(set(map(str, held.items())) ^ set(map(str, truth.ids.items())))[:4]}"

    def _table_differs(self, truth):
        """Tables of widgets show namespace, name and size; without --output-watch-events a deletion looks like a change."""
        wanted, held, rows = {k: str(i["spec"]["size"]) for k, i in truth.whole.items()}, {}, self.text().splitlines()
        for row in rows:
            kind, (namespace, name, size) = "MODIFIED", (row.split() + ["", "", ""])[:3]
            if "watch-events" in self.command:
                if not (event := EVENT.match(row)):
                    continue
                kind, namespace, name, size = event.groups()
            key = f"{namespace}/{name}"
            if kind == "DELETED":
                held.pop(key, None)
            elif size.isdigit():
                held[key] = size
        if "watch-events" not in self.command:
            held = {k: v for k, v in held.items() if k in wanted}
        odd = [f"{k}: kubectl {held.get(k)}, server {wanted.get(k)}" for k in held.keys() | wanted.keys() if held.get(k) != wanted.get(k)]
        return "\n".join(odd[:5])

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def json_events(text):
    """(type, key, uid, version) of the whole events printed so far."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:  # the last event is still incomplete
            return
        meta = event["object"]["metadata"]
        yield event["type"], f"{meta['namespace']}/{meta['name']}", meta["uid"], meta["resourceVersion"]


def yaml_events(text):
    for document in text.split("---\n"):
        found = {name: pattern.search(document) for name, pattern in YAML_META.items()}
        kind = YAML_TYPE.search(document)
        if kind and all(found.values()):  # the type comes last, so the document is complete
            meta = {name: match[1] for name, match in found.items()}
            yield kind[1], f"{meta['namespace']}/{meta['name']}", meta["uid"], meta["resourceVersion"]


class Kubectls:
    """Its watches at both gateways, and single commands."""

    def __init__(self, program, stack):
        self.server, *self.gateways = (Kubectl(program, stack, endpoint) for endpoint in (stack.server, stack.plain, stack.tls))
        self.watches = [Watch(kubectl, command) for kubectl in self.gateways for command in COMMANDS]

    def judge(self, check, stage, truth_of, seconds):
        end = time.monotonic() + seconds
        for watch in self.watches:
            odd = {}

            def right(watch=watch, odd=odd):
                odd[watch] = watch.differs(truth_of(COMMANDS[watch.command], **QUERIES[watch.command]))
                return not odd[watch]
            try:
                wire.poll(watch.name, right, max(end - time.monotonic(), 0), 0.3)
            except wire.WireError as e:
                odd.setdefault(watch, str(e))
            check(f"{stage}: {watch.name}", not odd[watch], odd[watch])

    def judge_ends(self, check, stage):
        """kubectl exits when its stream ends, also when the API server ends it."""
        for watch in self.watches:
            try:
                wire.poll("its end", lambda w=watch: w.process.poll() is not None, 30, 0.1)
            except wire.WireError:
                pass
            code = watch.process.poll()
            check(f"{stage}: {watch.name} ends with its stream", code in (0, 1), f"exit code {code}: {''.join(watch.errors)[-500:]}")
            watch.kill()
        self.watches = []

    def judge_reads(self, check, stage):
        """Single commands print the same at the restarted gateway as at the server."""
        for command in READS:
            wanted = printed(self.server, command)
            for kubectl in self.gateways:
                mine = printed(kubectl, command)
                check(f"{stage}: kubectl {command}, {kubectl.name}", mine == wanted, f"{str(mine)[:600]}\nat the server:\n{str(wanted)[:600]}")

    def kill(self):
        for watch in self.watches:
            watch.kill()


def printed(kubectl, command):
    done = kubectl.run(command)
    return done.returncode, AGE.sub("AGE", done.stdout), done.stderr
