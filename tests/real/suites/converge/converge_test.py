"""Informers of every client library through the gateway, while objects are written and while the
gateway and the API server are killed, stopped and started. After each of these the writer pauses, and every client must
come to hold the server's state; no client may see an object's version go back, exit, or need a restart.

Without a gateway (GATEWAY=direct) the API server is killed instead, which its clients survive in the same way."""
import subprocess
import time

from .. import fixtures, quiet, tools, wire
from . import churn, clients, compare
from .kubectl_watches import Kubectls
from .conftest import DRAIN_SECONDS

WRITES_BEFORE, WRITES_AFTER = 150, 250  # around each disturbance
DEADLINE_SECONDS = 120  # from the last write; client-go waits up to 60 s between two attempts, jitter included
START_SECONDS = 90  # of a program, until it has its first lists
QUIET_TARGETS = [f"{fixtures.pods('default')}/quiet", f"{churn.configmaps('default')}/quiet", f"{fixtures.widgets('default')}/quiet"]
ENCODINGS = {
    "JSON": "application/json", "protobuf": wire.PROTOBUF, "metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "metadata in protobuf": f"{wire.PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "Table": "application/json;as=Table;v=v1;g=meta.k8s.io",
}


class Scene:
    """State shared by all stages."""

    def __init__(self, check, stack):
        self.check, self.stack, self.api = check, stack, fixtures.Api(stack.server)
        self.programs, self.kubectl, self.writer = [], None, churn.Churn(stack.server)
        self.lost, self.failed = set(), set()  # programs that exited; clients that are no longer waited for

    def truth(self, target):
        return compare.Truth(self.api.get(target))

    def start_clients(self):
        """One program after the other, with caches that are there: so none has a reason to list twice."""
        for endpoint in (self.stack.plain, self.stack.tls):
            for resource, collection in clients.COLLECTIONS.items():
                for accept in ("application/json", wire.PROTOBUF) if resource != "widgets" else ("application/json",):
                    fixtures.wait_served(endpoint, collection, accept=accept)
        for program in clients.start(self.check, self.stack):
            self.programs.append(program)
            self.filled(program, START_SECONDS)
        if self.check("kubectl is there", tools.kubectl()):
            self.kubectl = Kubectls(tools.kubectl(), self.stack)

    def filled(self, program, seconds):
        """Waits until its clients have their first lists; clients without one are judged with the others, but no longer waited for."""
        answers = {}

        def synced():
            answers.update(program.ask("ids"))
            return all(a["synced"] for a in answers.values())
        try:
            wire.poll("the first lists", synced, seconds, 0.2)
        except wire.WireError as e:
            late = {c: a.get("last_error") for c, a in answers.items() if not a["synced"]}
            self.failed.update(late)
            self.check(f"the first lists of {program.name}", False, "\n".join([str(e), *(f"{c.name}: {error}" for c, error in late.items())]))

    def settle(self, stage):
        """The writer pauses; waits until the clients hold the server's state."""
        self.writer.rest()
        began, truths, waiting = time.monotonic(), {}, [p for p in self.programs if p not in self.lost]
        results = {}
        while waiting:
            for program in list(waiting):
                try:
                    odd = self.judge(program, "ids", truths)
                    over = time.monotonic() - began > DEADLINE_SECONDS
                    hopeful = any(why and client not in self.failed for client, why in odd.items())
                    if not hopeful:
                        odd.update((c, why) for c, why in self.judge(program, "whole", truths).items() if not odd[c])
                    elif not over:
                        continue
                except wire.WireError as e:
                    odd = dict.fromkeys(program.clients.values(), str(e))
                    self.lost.add(program)
                results.update(odd)
                waiting.remove(program)
            if waiting:
                time.sleep(0.2)  # between two comparisons
        for client, why in results.items():
            if why:
                self.failed.add(client)
            self.check(f"{stage}: {client.name}", not why, why)

    def end_in_quiet(self, stage):
        """Bursts, each followed by silence: clients come to hold the server's state without a further event. The clients may take
        longer for the first write: after what was done to the gateway, some may not have reopened their watches yet."""
        waiting = [p for p in self.programs if p not in self.lost]
        odd = {}

        def write(count, length):
            for target in QUIET_TARGETS:
                quiet.annotate(self.api, target, count, length)
            return {}, {program: None for program in waiting}

        def behind(written):
            truths, left = written
            for program in list(left):
                verdicts = self.judge(program, "ids", truths)
                left[program] = [f"{c.name}: {why}" for c, why in verdicts.items() if why and c not in self.failed and "short watches" not in c.name]
                if not left[program]:
                    del left[program]
            odd["now"] = [line for lines in left.values() for line in lines]
            return odd["now"]
        first = write(1, 100)
        try:
            wire.poll("a first write", lambda: not behind(first), DEADLINE_SECONDS, 0.2)
        except wire.WireError as e:
            return self.check(f"quiet end: {stage}", False, f"{e}\n{odd['now']}")
        quiet.bursts(self.check, stage, write, behind, lambda: str(odd["now"]))

    def judge(self, program, question, truths):
        """{client: the difference, or ''}"""
        out = {}
        for client, answer in program.ask(question).items():
            if client.target not in truths:
                truths[client.target] = self.truth(client.target)
            out[client] = f"versions went back: {answer['back']}" if answer.get("back") else compare.verdict(answer, truths[client.target], client.metadata_only)
            if out[client] and answer.get("last_error"):
                out[client] += f"\nits last error: {answer['last_error']}"
        return out

    def judge_undisturbed(self):
        """Before anything was done to servers no client listed again, fell back to another kind of list, or met an error."""
        for program in self.programs:
            for client, answer in program.ask("ids").items():
                odd = compare.disturbed(program.lap() if "hashes" in answer else answer, client.calm)
                self.check(f"one list, no error: {client.name}", not odd, f"{odd}\n{complaints(self.stack)}")

    def stage(self, name, disturb):
        self.writer.write_more(WRITES_BEFORE)
        disturb()
        self.writer.write_more(WRITES_AFTER)
        self.settle(name)
        self.end_in_quiet(name)

    def finish(self):
        for program in self.programs:
            try:
                code = program.finish()
            except (OSError, subprocess.TimeoutExpired) as e:
                code = repr(e)
            self.check(f"the end: {program.name} has gone on without a crash", code == 0, f"exit code {code}")


def kill_gateways(stack):
    """kill -9, and new gateways on the same ports."""
    if stack.direct:
        return kill_server(stack)
    for process in stack.gateways.values():
        process.kill()
        process.wait(10)
    stack.gateways = {}
    stack.start_gateways()


def stop_gateways(stack, check):
    """SIGTERM, and new gateways on the same ports."""
    if stack.direct:
        return kill_server(stack)
    streams = {f"{form}, {e.name}": wire.Stream(e, f"{fixtures.pods()}?watch=true", {"Accept": accept}) for form, accept in ENCODINGS.items() for e in (stack.plain, stack.tls)}
    for stream in streams.values():
        stream.wait(lambda s: s.frames, 30, "first event")
    for process in stack.gateways.values():
        process.terminate()
    codes = [process.wait(DRAIN_SECONDS + 30) for process in stack.gateways.values()]
    check("gateways stopped: they end by themselves", not any(codes), f"exit codes {codes}")
    for name, stream in streams.items():
        stream.wait_end(30)
        check(f"gateways stopped: a watch ends in order: {name}", stream.end == "clean", stream.end)
    stack.gateways = {}
    stack.start_gateways()


def kill_server(stack):
    stack.kill_server()
    stack.start_server()


def complaints(stack, lines=8):
    """The last lines in the logs of client-go and of the gateways that report a problem."""
    found = []
    for log in [stack.state / "client-go.log", *stack.state.glob("gateway-*.log")]:
        told = [line[:400] for line in log.read_text(errors="replace").splitlines() if line[:1] in "WEF" or " WARN " in line or " ERROR " in line]
        found += [f"{log.name}: {line}" for line in told[-lines:]]
    return "\n".join(found)


def test_clients_converge_through_kills_and_restarts(check, stack):
    scene = Scene(check, stack)
    try:
        labels = {"app": "demo"}
        scene.api.create(fixtures.pods("default"), fixtures.pod("quiet", labels, "node-1"))
        scene.api.create(churn.configmaps("default"), churn.configmap("quiet", labels, ""))
        scene.api.create(fixtures.widgets("default"), fixtures.widget("quiet", labels))
        scene.writer.start()
        scene.writer.write_more(WRITES_BEFORE)  # so that the first lists are not empty
        scene.start_clients()  # while objects are written
        scene.stage("churn", lambda: None)
        scene.judge_undisturbed()
        if scene.kubectl:
            scene.kubectl.judge(check, "churn", lambda resource, **selectors: scene.truth(wire.query(clients.COLLECTIONS[resource], **selectors)), DEADLINE_SECONDS)
        scene.stage("gateways killed", lambda: kill_gateways(stack))
        if scene.kubectl:
            scene.kubectl.judge_ends(check, "gateways killed")
            scene.kubectl.judge_reads(check, "gateways killed")
        scene.stage("gateways stopped", lambda: stop_gateways(stack, check))
        scene.stage("server killed", lambda: kill_server(stack))
        if scene.kubectl:
            scene.kubectl.judge_reads(check, "server killed")
        check("the writer's requests were accepted", not scene.writer.refused, "\n".join(scene.writer.refused))
        scene.finish()
    finally:
        scene.writer.end()
        for program in scene.programs:
            program.kill()
        if scene.kubectl:
            scene.kubectl.kill()
