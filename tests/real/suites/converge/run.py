"""The converge suite: informers of every client library through the gateway, while objects are written and while the
gateway and the API server are killed, stopped and started. After each of these the writer pauses, and every client must
come to hold the server's state; no client may see an object's version go back, exit, or need a restart.

Without a gateway (GATEWAY=direct) the API server is killed instead, which its clients survive in the same way."""
import subprocess
import time

from .. import fixtures, kubectl as kubectls, quiet, wire
from ..stack import Stack
from . import churn, compare, programs, relay, watches

WRITES_BEFORE, WRITES_AFTER = 150, 250  # around each disturbance
DEADLINE_SECONDS = 60  # from the last write; client-go waits up to 30 s between two attempts
START_SECONDS = 90  # from the start of the last program
DRAIN_SECONDS = 5  # the gateway's longest drain; while it lasts nothing listens, and clients back off further
QUIET_TARGETS = [f"{fixtures.pods('default')}/quiet", f"{churn.configmaps('default')}/quiet", f"{fixtures.widgets('default')}/quiet"]
ENCODINGS = {
    "JSON": "application/json", "protobuf": wire.PROTOBUF, "metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "metadata in protobuf": f"{wire.PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "Table": "application/json;as=Table;v=v1;g=meta.k8s.io",
}


class ConvergeStack(Stack):
    """With GATEWAY=relay the stand-in of this suite, which supports TLS and every encoding."""

    gateway_flags = (*Stack.gateway_flags, f"--drain-timeout={DRAIN_SECONDS}s",)

    def _start_gateway(self, kind):
        return relay.start(self, kind) if self.gateway == "relay" else super()._start_gateway(kind)


class Scene:
    """State shared by all stages."""

    def __init__(self, report, stack):
        self.report, self.stack, self.api = report, stack, fixtures.Api(stack.server)
        self.programs, self.kubectl, self.writer = [], None, churn.Churn(stack.server)
        self.course = {}  # the history of each client, printed on its line
        self.lost, self.failed = set(), set()  # programs that exited; clients that are no longer waited for

    def truth(self, target):
        return compare.Truth(self.api.get(target))

    def start_clients(self):
        for program in programs.start(self.stack, self.report):
            self.programs.append(program)
        if found := kubectls.find():
            self.kubectl = watches.Kubectl(found, self.stack)
        self.report.check("kubectl is there", found, "none of 1.32 or newer: real-apiserver.sh kubectl")
        end = time.monotonic() + START_SECONDS
        for program in self.programs:
            self.filled(program, max(end - time.monotonic(), 0))

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
            self.report.fail(f"the first lists of {program.name}", "\n".join([str(e), *(f"{c.name}: {error}" for c, error in late.items())]))

    def settle(self, stage):
        """The writer pauses; waits until the clients hold the server's state, and prints a line for each."""
        self.writer.rest()
        began, truths, waiting = time.monotonic(), {}, [p for p in self.programs if p not in self.lost]
        took, results = {}, {}
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
                    odd = dict.fromkeys((program.clients or {}).values(), str(e))
                    self.lost.add(program)
                results.update(odd)
                took.update(dict.fromkeys(odd, time.monotonic() - began))
                waiting.remove(program)
            if waiting:
                time.sleep(0.2)  # between two comparisons
        for client, why in results.items():
            count = len(truths[client.target].ids) if client.target in truths else 0
            if why:
                self.failed.add(client)
            self.report.check(f"{stage}: {client.name}", not why, why, f"equal after {took[client]:.1f} s, {count} objects{self.course.get(client, '')}")

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
            return self.report.fail(f"quiet end: {stage}", f"{e}\n{odd['now']}")
        quiet.bursts(self.report, stage, write, behind, lambda: str(odd["now"]))

    def judge(self, program, question, truths):
        """{client: the difference, or ''}"""
        out = {}
        for client, answer in program.ask(question).items():
            if client.target not in truths:
                truths[client.target] = self.truth(client.target)
            out[client] = f"versions went back: {answer['back']}" if answer["back"] else compare.verdict(answer, truths[client.target], client.metadata_only)
            if out[client] and answer.get("last_error"):
                out[client] += f"\nits last error: {answer['last_error']}"
            self.course[client] = f", {answer['lists']} lists, {answer['errors']} errors"
        return out

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
            self.report.check(f"the end: {program.name} has gone on without a crash", code == 0, f"exit code {code}")


def kill_gateways(stack):
    """kill -9, and new gateways on the same ports."""
    if stack.direct:
        return kill_server(stack)
    for process in stack.gateways.values():
        process.kill()
        process.wait(10)
    stack.gateways = {}
    stack.start_gateways()


def stop_gateways(stack, report):
    """SIGTERM, and new gateways on the same ports."""
    if stack.direct:
        return kill_server(stack)
    streams = {f"{form}, {e.name}": wire.Stream(e, f"{fixtures.pods()}?watch=true", {"Accept": accept}) for form, accept in ENCODINGS.items() for e in (stack.plain, stack.tls)}
    for stream in streams.values():
        stream.wait(lambda s: s.frames, 30, "first event")
    for process in stack.gateways.values():
        process.terminate()
    codes = [process.wait(DRAIN_SECONDS + 30) for process in stack.gateways.values()]
    if stack.gateway != "relay":  # it has no orderly shutdown
        report.check("gateways stopped: they end by themselves", not any(codes), f"exit codes {codes}")
        for name, stream in streams.items():
            stream.wait_end(30)
            report.check(f"gateways stopped: a watch ends in order: {name}", stream.end == "clean", stream.end)
    stack.gateways = {}
    stack.start_gateways()


def kill_server(stack):
    stack.kill_server()
    stack.start_server()


def run(report):
    with ConvergeStack("converge", fixtures.with_widgets) as stack:
        scene = Scene(report, stack)
        try:
            labels = {"app": "demo"}
            scene.api.create(fixtures.pods("default"), fixtures.pod("quiet", labels, "node-1"))
            scene.api.create(churn.configmaps("default"), churn.configmap("quiet", labels, ""))
            scene.api.create(fixtures.widgets("default"), fixtures.widget("quiet", labels))
            scene.writer.start()
            scene.writer.write_more(WRITES_BEFORE)  # so that the first lists are not empty
            scene.start_clients()  # while objects are written
            scene.stage("churn", lambda: None)
            if scene.kubectl:
                scene.kubectl.judge(report, "churn", lambda resource, **selectors: scene.truth(wire.query(programs.COLLECTIONS[resource], **selectors)), DEADLINE_SECONDS)
            scene.stage("gateways killed", lambda: kill_gateways(stack))
            if scene.kubectl:
                scene.kubectl.judge_ends(report, "gateways killed")
                scene.kubectl.judge_reads(report, "gateways killed", stack.server)
            scene.stage("gateways stopped", lambda: stop_gateways(stack, report))
            scene.stage("server killed", lambda: kill_server(stack))
            if scene.kubectl:
                scene.kubectl.judge_reads(report, "server killed", stack.server)
            report.check("the writer's requests were accepted", not scene.writer.refused, "\n".join(scene.writer.refused), f"{scene.writer.done} writes, {scene.writer.failed} while the server was away")
            scene.finish()
        finally:
            scene.writer.end()
            for program in scene.programs:
                program.kill()
            if scene.kubectl:
                scene.kubectl.kill()
