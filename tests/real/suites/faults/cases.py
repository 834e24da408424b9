"""The faults. Each is a function of the Bed that returns when the fault is over; the writer writes meanwhile."""
import os
import random
import signal
import socket
from dataclasses import dataclass
from typing import Callable

from .. import wire
from .crowds import CACHES
from .gateways import PORT

RELISTED = CACHES  # a server that has restarted has no history from before, so it answers 410 to every watch that is not newer
AWAY_SECONDS = 3  # of something that is killed and started again
HELD_SECONDS = 20  # of something that is stopped, cut or short
LONG_SECONDS = 40  # longer than both sides wait for the answer to a ping
LOSS, DELAY_SECONDS = 0.2, 0.2
KILLS, KILL_SEED = 6, 7
TAIL_BYTES = 7  # of a block that was not written to its end
IDLE_CONNECTIONS, SPARE_FILES = 300, 4
MEMORY_MIN, MEMORY_SHARE, BALLAST_BYTES = 64 << 20, 0.6, 200_000


@dataclass(frozen=True)
class Fault:
    """`upstream`: the most lists that may reach upstream, of one gateway; `clients`: whether clients may list."""

    name: str
    text: str
    act: Callable
    upstream: int = 0
    clients: bool = False


FAULTS = {}


def fault(name, text, **expected):
    def add(act):
        FAULTS[name] = Fault(name, text, act, **expected)
        return act
    return add


def stopped(bed, send):
    """SEND sends a signal."""
    send(signal.SIGSTOP)
    try:
        bed.hold(HELD_SECONDS)
    finally:
        send(signal.SIGCONT)


@fault("server-killed", f"API server: SIGKILL, back after {AWAY_SECONDS} s", upstream=RELISTED)
def server_killed(bed):
    bed.stack.kill_server()
    bed.hold(AWAY_SECONDS)
    bed.stack.start_server()


@fault("server-stopped", f"API server: SIGSTOP for {HELD_SECONDS} s")
def server_stopped(bed):
    stopped(bed, lambda number: os.kill(bed.stack.pid("real-apiserver"), number))


@fault("etcd-killed", f"etcd: SIGKILL, back after {AWAY_SECONDS} s", upstream=RELISTED)
def etcd_killed(bed):
    bed.stack.kill_etcd()
    bed.hold(AWAY_SECONDS)
    bed.stack.start_server()


@fault("etcd-stopped", f"etcd: SIGSTOP for {HELD_SECONDS} s")
def etcd_stopped(bed):
    stopped(bed, lambda number: os.kill(bed.stack.pid("etcd"), number))


@fault("gateway-killed", f"gateway: SIGKILL, started {AWAY_SECONDS} s later from its checkpoints")
def gateway_killed(bed):
    bed.gateway.kill()
    bed.hold(AWAY_SECONDS)
    bed.gateway.start()


@fault("checkpoint-killed", f"gateway: SIGKILL {KILLS} times while it writes checkpoints every second, the last blocks torn before the last start")
def checkpoint_killed(bed):
    choose = random.Random(KILL_SEED)
    for _ in range(KILLS):
        bed.gateway.kill()
        bed.gateway.start()
        bed.hold(choose.uniform(0.5, 1.5))
    bed.gateway.kill()
    for path in bed.gateway.checkpoints.glob("*.checkpoint"):
        with open(path, "ab") as file:  # only what is appended can be torn: whole files are written aside and renamed
            file.write(bytes(TAIL_BYTES))
    bed.gateway.start()


@fault("gateway-drained", "gateway: SIGTERM, started again when it has ended")
def gateway_drained(bed):
    bed.gateway.drain()
    bed.gateway.start()


@fault("gateway-stopped", f"gateway: SIGSTOP for {HELD_SECONDS} s")
def gateway_stopped(bed):
    stopped(bed, bed.gateway.signal)


def compact(bed):
    """Nobody has the history any more: neither etcd nor the server's watch caches."""
    bed.hold(AWAY_SECONDS)
    bed.stack.etcd("/v3/kv/compaction", {"revision": str(bed.stack.revision()), "physical": True})
    bed.stack.kill_server()
    bed.stack.start_server()


@fault("compacted-drained", "history compacted while a drained gateway is away", upstream=RELISTED)
def compacted_drained(bed):
    bed.gateway.drain()
    compact(bed)
    bed.gateway.start()


@fault("compacted-killed", "history compacted while a killed gateway is away", upstream=RELISTED, clients=True)
def compacted_killed(bed):
    bed.gateway.kill()
    compact(bed)
    bed.gateway.start()


@fault("gateway-replaced", "gateway replaced by another one that takes its caches over")
def gateway_replaced(bed):
    old, new = bed.gateway, bed.spare
    new.forget()
    new.start(peer=old)
    bed.switch()
    old.drain()


@fault("peer", "gateway: SIGKILL while another one runs, which then gets its clients")
def peer(bed):
    old, new = bed.gateway, bed.spare
    new.forget()
    new.start(peer=old)
    bed.hold(AWAY_SECONDS)
    old.kill()
    bed.switch()


@fault("peer-unreviewed", f"gateway: SIGKILL while another one runs, which then gets its clients, and which for {HELD_SECONDS} s cannot reach the server that knows them")
def peer_unreviewed(bed):
    old, new = bed.gateway, bed.spare
    new.forget()
    new.start(peer=old)
    new.up.cut()
    try:
        old.kill()
        bed.switch()
        bed.hold(HELD_SECONDS)
    finally:
        new.up.heal()


@fault("disk-full", f"disk of the checkpoints full for {HELD_SECONDS} s, then the gateway is killed and starts")
def disk_full(bed):
    filler = bed.gateway.disk / "filler"
    try:
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError:  # no space is left
                pass
        bed.hold(HELD_SECONDS)
        bed.note = f"{bed.gateway.metric('kube_fanout_checkpoint_errors_total'):.0f} failed writes"
        bed.gateway.kill()
        bed.gateway.start()
    finally:
        filler.unlink()


@fault("descriptors", f"gateway: no file descriptor left for {HELD_SECONDS} s, {IDLE_CONNECTIONS} connections that sit")
def descriptors(bed):
    pid = bed.gateway.process.pid
    before = bed.files_limit(pid)
    bed.limit_files(pid, len(os.listdir(f"/proc/{pid}/fd")) + SPARE_FILES)
    sitting = []
    try:
        for _ in range(IDLE_CONNECTIONS):
            sitting.append(socket.create_connection((bed.gateway.address, PORT), timeout=5))
        bed.hold(HELD_SECONDS)
        bed.note = f"{len(os.listdir(f'/proc/{pid}/fd'))} files open"
    except OSError as e:  # the queue of the listener is full
        bed.note = f"{len(sitting)} connections, then {e}"
        bed.hold(HELD_SECONDS)
    finally:
        for sock in sitting:
            sock.close()
        bed.limit_files(pid, before)


@fault("memory", f"gateway: {MEMORY_SHARE:.0%} of its memory bound are taken by one more resource that somebody lists, for {HELD_SECONDS} s")
def memory(bed):
    """Started again with a bound a tenth above what it uses, or the least one that is accepted."""
    bound = max(MEMORY_MIN, int(bed.gateway.metric("kube_fanout_memory_resident_bytes") * 1.1))
    bed.gateway.drain()
    bed.gateway.start(f"--memory-max={bound}")
    services = "/api/v1/namespaces/default/services"
    names = [f"ballast{i}" for i in range(int(bound * MEMORY_SHARE) // BALLAST_BYTES)]
    for name in names:
        bed.api.create(services, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {"ballast": "x" * BALLAST_BYTES}}, "spec": {"ports": [{"port": 80}]}})
    status = wire.request(bed.gateway.endpoint, "GET", services, timeout=60).status
    bed.hold(HELD_SECONDS)
    steps = {step: bed.gateway.metric("kube_fanout_memory_pressure_steps_total", step=step) for step in ("frames", "history", "admission", "eviction")}
    bed.note = f"bound {bound >> 20} MiB, the list got {status}; " + (", ".join(f"{name} {count:.0f} times" for name, count in steps.items() if count) or "no step taken")
    for name in names:
        bed.api.delete(f"{services}/{name}")
    bed.gateway.drain()
    bed.gateway.start()


def disturbed(bed, disturb, link, seconds=HELD_SECONDS):
    disturb(link)
    try:
        bed.hold(seconds)
    finally:
        link.heal()


def on_links(side, of, towards_b, towards_a):
    """The faults of a link; OF(gateway) is the link."""
    held = f"for {HELD_SECONDS} s"
    where = f"between the {towards_a} and the {towards_b}"
    fault(f"{side}-loss", f"{where}: {LOSS:.0%} of the packets lost {held}")(lambda bed: disturbed(bed, lambda link: link.lose(LOSS), of(bed.gateway)))
    fault(f"{side}-delay", f"{where}: {DELAY_SECONDS * 1000:.0f} ms more each way {held}")(lambda bed: disturbed(bed, lambda link: link.delay(DELAY_SECONDS), of(bed.gateway)))
    fault(f"{side}-cut", f"{where}: nothing arrives {held}")(lambda bed: disturbed(bed, lambda link: link.cut(), of(bed.gateway)))
    # After 45 s without an answer client-go gives an HTTP/2 connection up, and lists: it takes only some errors for the end of a stream.
    fault(f"{side}-long-cut", f"{where}: nothing arrives for {LONG_SECONDS} s", clients=side == "clients")(lambda bed: disturbed(bed, lambda link: link.cut(), of(bed.gateway), LONG_SECONDS))
    fault(f"{side}-{towards_b}", f"{where}: nothing arrives at the {towards_b} {held}")(lambda bed: disturbed(bed, lambda link: link.cut(to_a=False), of(bed.gateway)))
    fault(f"{side}-{towards_a}", f"{where}: nothing arrives at the {towards_a} {held}")(lambda bed: disturbed(bed, lambda link: link.cut(to_b=False), of(bed.gateway)))


on_links("clients", lambda gateway: gateway.down, "clients", "gateway")
on_links("upstream", lambda gateway: gateway.up, "gateway", "server")


@fault("clients-half-open", f"gateway killed and started while nothing arrives for {HELD_SECONDS} s: its clients do not learn of it")
def clients_half_open(bed):
    bed.gateway.down.cut()
    try:
        bed.gateway.kill()
        bed.gateway.start()
        bed.hold(HELD_SECONDS)
    finally:
        bed.gateway.down.heal()


@fault("upstream-half-open", f"API server killed and started while nothing arrives for {HELD_SECONDS} s: the gateway does not learn of it", upstream=RELISTED)
def upstream_half_open(bed):
    bed.gateway.up.cut()
    try:
        bed.stack.kill_server()
        bed.stack.start_server()
        bed.hold(HELD_SECONDS)
    finally:
        bed.gateway.up.heal()
