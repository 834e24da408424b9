"""The informers suite: a hundred client-go informers through the gateway, and one of each kind at the server, during
writes; afterwards all stores hold the same objects. The same for this project's own informers, at the server and through the gateway."""
import hashlib
import json
import os
import pathlib
import subprocess
import threading
import time

from . import fixtures, quiet, stack as stacks, wire
from .stack import Stack

EACH = 10  # informers of each kind through the gateway
WRITES = 800  # a fixed count; the rate is whatever the server accepts
SORTS = [  # name, resource, flags
    ("pods typed JSON, watch-list, HTTP/2", "pods", ["--client=typed", "--watch-list=on"]),
    ("pods typed JSON, list+watch, HTTP/1.1", "pods", ["--client=typed", "--watch-list=off", "--http1"]),
    ("pods typed protobuf, watch-list, HTTP/2", "pods", ["--client=typed", "--watch-list=on", "--content-type=protobuf"]),
    ("pods typed protobuf, list+watch, HTTP/1.1", "pods", ["--client=typed", "--watch-list=off", "--content-type=protobuf", "--http1"]),
    ("pods dynamic, watch-list, HTTP/1.1", "pods", ["--client=dynamic", "--watch-list=on", "--http1"]),
    ("pods metadata protobuf, watch-list, HTTP/2", "pods", ["--client=metadata", "--watch-list=on", "--content-type=protobuf"]),
    ("pods metadata JSON, list+watch, HTTP/1.1", "pods", ["--client=metadata", "--watch-list=off", "--http1"]),
    ("widgets dynamic, watch-list, HTTP/2", "widgets.v1.example.com", ["--client=dynamic", "--watch-list=on"]),
    ("widgets dynamic, list+watch, paged, HTTP/1.1", "widgets.v1.example.com", ["--client=dynamic", "--watch-list=off", "--http1", "--pagesize=7"]),
    ("widgets metadata, watch-list, HTTP/2", "widgets.v1.example.com", ["--client=metadata", "--watch-list=on"]),
]


READERS = ["typed", "typed-bare", "packed", "raw", "metadata"]  # forms of this project's own informer
TOP = pathlib.Path(__file__).resolve().parents[3]


def own_program():
    """The program that runs one of this project's own informers, or None."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    found = [path for path in (target / profile / "kube-fanout-informers" for profile in ("release", "debug")) if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def kubeconfig(stack, endpoint, path):
    """A kubeconfig file for an endpoint."""
    cluster = {"server": endpoint.url()}
    if endpoint.tls:
        cluster["certificate-authority"] = str(stack.pki / "ca.crt")
    user = {"token": (stack.pki / "admin.token").read_text().strip()}
    context = {"cluster": "one", "user": "one"}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "one"}
    for key, name, value in (("clusters", "cluster", cluster), ("users", "user", user), ("contexts", "context", context)):
        config[key] = [{"name": "one", name: value}]
    path.write_text(json.dumps(config))
    return path


class Informers:
    """A process of the informer program, which prints its state for each line of input."""

    def __init__(self, stack, endpoint, resource, flags, count, log):
        self._start(self._arguments(stack, endpoint, resource, flags, count), log)

    @staticmethod
    def _arguments(stack, endpoint, resource, flags, count):
        args = [str(stacks.home() / "bin" / "informer"), "--server", endpoint.url(), "--resource", resource, "--count", str(count), "--duration=10m", "--interactive", *flags]
        args += ["--token", f"@{stack.pki / 'admin.token'}"]
        if endpoint.tls:
            args += ["--ca", str(stack.pki / "ca.crt")]
        return args

    def _start(self, args, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def _read(self, event):
        for line in self.process.stdout:
            parsed = json.loads(line)
            if parsed["event"] == event:
                return parsed
        raise wire.WireError(f"the informers ended with {self.process.wait(10)}")

    def state(self):
        """The number of synced informers, and the number of stores per hash."""
        self.process.stdin.write("state\n")
        self.process.stdin.flush()
        return self._read("state")

    def finish(self):
        """The final reports of all informers."""
        self.process.stdin.close()
        reports = [json.loads(line) for line in self.process.stdout]
        self.process.wait(30)
        return [r for r in reports if r["event"] == "final"]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.process.stdout.close()
        self.log.close()


class OwnInformer(Informers):
    """One of this project's own informers, in a process with the same protocol."""

    def __init__(self, program, config, reader, log):
        self._start([str(program), "follow", "--reader", reader, "--kubeconfig", str(config)], log)


def churn(api, failures):
    """Creates, changes, relabels, deletes and recreates objects, of both resources in turn."""
    try:
        for i in range(WRITES // 4):
            for collection, make in ((fixtures.pods, fixtures.pod), (fixtures.widgets, fixtures.widget)):
                where = collection(f"ns{i % 3}")
                name = f"o{i % 40}"
                if i < 40:
                    api.create(where, make(name, {"turn": "0"}))
                elif i % 9 == 0:
                    api.call("DELETE", f"{where}/{name}", good=(200, 404))
                else:
                    api.call("PATCH", f"{where}/{name}", {"metadata": {"labels": {"turn": str(i)}, "annotations": {"pad": "x" * (i % 50)}}}, fixtures.MERGE, good=(200, 404))
                api.create(where, make(f"n{i}", {"turn": str(i)}))
    except Exception as e:  # the caller reports it
        failures.append(e)


def converge(sorts, seconds=60):
    """{kind: (gateway's state, direct state)} when all agree, or the last states seen."""
    end = time.monotonic() + seconds
    while True:
        states = {name: (through.state(), direct.state()) for name, (through, direct) in sorts.items()}
        good = all(a["synced"] == EACH and b["synced"] == 1 and len(a["contents"]) == 1 and set(a["contents"]) == set(b["contents"]) for a, b in states.values())
        newest = {}
        for name, (_, b) in states.items():  # direct informers agree with each other, whatever their form
            newest.setdefault(name.split()[0], set()).update(b["hashes"])
        if good and all(len(h) == 1 for h in newest.values()) or time.monotonic() > end:
            return states
        time.sleep(0.3)


def digest(api, collection):
    """The hash of a store that holds the server's state."""
    lines = [f"{i['metadata']['namespace']}/{i['metadata']['name']}/{i['metadata']['resourceVersion']}\n" for i in api.get(collection)["items"]]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def end_in_quiet(report, api, sorts, own):
    """Bursts, each followed by silence: all stores come to hold the server's state without a further event."""
    targets = [f"{fixtures.pods('ns0')}/before0", f"{fixtures.widgets('ns0')}/before0"]
    stores = [(name, one) for name, pair in sorts.items() for one in pair] + [(f"pods, our own {name}", one) for name, one in own.items()]

    def write(count, length):
        for target in targets:
            quiet.annotate(api, target, count, length)
        return {"pods": digest(api, fixtures.pods()), "widgets.v1.example.com": digest(api, fixtures.widgets())}
    newest = {}

    def behind(wanted):
        for name, one in stores:
            newest[name, one] = one.state()["hashes"]
        resource = lambda name: "widgets.v1.example.com" if name.startswith("widgets") else "pods"
        return [f"{name}: {hashes}, server {wanted[resource(name)]}" for (name, _), hashes in newest.items() if set(hashes) != {wanted[resource(name)]}]
    quiet.bursts(report, f"{len(stores)} processes of informers", write, behind, lambda: str(newest))


def complaints(logs, lines=8):
    """The last lines in the logs of client-go and of the gateway that report a problem."""
    complaints_found = []
    for log in logs:
        if log.exists():
            found = [line[:400] for line in log.read_text(errors="replace").splitlines() if line[:1] in "WEF" or " WARN " in line or " ERROR " in line]
            complaints_found += [f"{log.name}: {line}" for line in found[-lines:]]
    return "\n".join(complaints_found)


def agreed(one, hashes, seconds=20):
    """The state of an informer when it agrees with the others, or the last state seen."""
    end = time.monotonic() + seconds
    while True:
        state = one.state()
        if set(state["hashes"]) == hashes or time.monotonic() > end:
            return state
        time.sleep(0.3)


def run(report):
    program = stacks.home() / "bin" / "informer"
    if not program.exists():
        report.missing("informers", f"{program} is missing: real-apiserver.sh informer")
        return
    with Stack("informers", fixtures.with_widgets) as stack:
        api, sorts, own = fixtures.Api(stack.server), {}, {}
        for i in range(30):
            api.create(fixtures.pods("ns0"), fixtures.pod(f"before{i}"))
            api.create(fixtures.widgets("ns0"), fixtures.widget(f"before{i}"))
        failures = []
        writer = threading.Thread(target=churn, args=(api, failures), daemon=True)
        try:
            for i, (name, resource, flags) in enumerate(SORTS):
                if i == len(SORTS) // 2:
                    writer.start()  # half of them start while the state changes
                through = stack.plain if "HTTP/1.1" in name else stack.tls
                log = stack.state / f"informers-{i}.log"
                sorts[name] = (Informers(stack, through, resource, flags, EACH, log), Informers(stack, stack.server, resource, flags, 1, log))
            if own_program():
                for where, endpoint in (("the server", stack.server), ("the gateway, HTTP/1.1", stack.plain), ("the gateway, TLS", stack.tls)):
                    config = kubeconfig(stack, endpoint, stack.state / f"own-{len(own)}.kubeconfig")
                    for reader in READERS:
                        own[f"{reader}, {where}"] = OwnInformer(own_program(), config, reader, stack.state / "own-informers.log")
            else:
                report.missing("our own informers", "cargo build -p kube-fanout-loadtest")
            writer.join(180)
            report.check("the writes ended", not writer.is_alive() and not failures, f"{failures}")
            states = converge(sorts)
            expected = {r: len(api.get(c)["items"]) for r, c in (("pods", fixtures.pods()), ("widgets", fixtures.widgets()))}
            for name, (a, b) in states.items():
                report.check(f"{EACH} informers agree with one at the server: {name}", a["synced"] == EACH and b["synced"] == 1 and len(a["contents"]) == 1 and a["contents"].keys() == b["contents"].keys()
                             and a["objects"] == [expected[name.split()[0]]], f"through: {a}\ndirect: {b}\nobjects at the server: {expected}")
            newest = set(states[SORTS[0][0]][1]["hashes"])
            for name, one in own.items():
                state = agreed(one, newest)
                report.check(f"our own informer agrees: {name}", set(state["hashes"]) == newest and state["objects"] == [expected["pods"]], f"{state}\nclient-go's: {newest}")
            end_in_quiet(report, api, sorts, own)
            for i, (name, (through, direct)) in enumerate(sorts.items()):
                finals, alone = through.finish(), direct.finish()
                odd = [f for f in finals if f["relists"] or f["http410"] or f["http429"] or f["httpOther"] or f["transportErrors"]
                       or f["lists"] != alone[0]["lists"] or f["watchLists"] != alone[0]["watchLists"] or f["protocols"] != [name.split(", ")[-1].replace("HTTP/2", "HTTP/2.0")]]
                report.check(f"no relist, no fallback, no error: {name}", len(finals) == EACH and not odd, f"{len(finals)} reports; odd ones:\n" + "\n".join(map(str, odd[:3]))
                             + f"\ndirect: {alone}\n" + complaints([stack.state / f"informers-{i}.log", *stack.state.glob("gateway-*.log")]))
        finally:
            for one in own.values():
                one.kill()
            for pair in sorts.values():
                for one in pair:
                    one.kill()
