"""Network namespaces for the gateways and their clients, and what is done to the links between them.

    home: etcd, the API server, the suite          up: the gateway's link to the API server, 10.77.3.0/30 and 10.77.3.4/30
      |  |                                          office: how the suite, and the other gateway, reach a gateway; never disturbed
      up office                                     down: the clients' link; both gateways have the address SERVICE, and the
      |  |                                          clients' route decides which of them gets it
    gateway a, gateway b -- down -- clients

Packets are dropped where they arrive, by a filter of the kernel (cls_bpf), so a sender does not notice it. The kernel here may have no
netem; a delay is therefore a detour through a process of the suite's own (detour.py). Namespaces and mounts belong to the suite's
process: they vanish with it, whatever happens."""
import ctypes
import os
import subprocess
import sys
from pathlib import Path

from .. import stack as stacks, wire

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
UP = "10.77.3."  # of both gateways' links to the server
SERVICE, CLIENTS = "10.77.0.2", "10.77.0.3"
DROP_ALL = "1,6 0 0 2"  # return TC_ACT_SHOT
RANDOM = 0xFFFFF038  # the offset at which a classic BPF program reads a random number
SYSCTLS = {"all/rp_filter": 0, "default/rp_filter": 0, "all/arp_ignore": 0}


def enter_home():
    """This process, and what it starts, in a network and with mounts of its own. Errors if that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    run(["mount", "--make-rprivate", "/"])


def run(args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: {done.stderr.strip()}")


class Space:
    """A namespace, kept by a process that ends with the suite's. Without NAME: the one that the suite is in."""

    def __init__(self, name=None):
        self.name, self.holder = name or "home", None
        if name:
            self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.holder.stdout.read(1)
        self.pid = self.holder.pid if self.holder else os.getpid()
        settings = " && ".join(f"echo {value} > /proc/sys/net/ipv4/conf/{key}" for key, value in SYSCTLS.items())
        # Without it the kernel repeats the FIN of a killed process for minutes, and no connection would ever be half open.
        self.run("sh", "-c", f"{settings} && echo 1 > /proc/sys/net/ipv4/tcp_orphan_retries && echo 1 > /proc/sys/net/ipv4/ip_forward")
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *args):
        """The same command in this namespace; the process has the pid that its parent sees."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, args)] if self.holder else [str(a) for a in args]

    def run(self, *args):
        run(self.command(*args))

    def end(self):
        if self.holder:
            self.holder.stdin.close()
            self.holder.wait(10)


class Link:
    """Two ends, each a (space, device, address); routes at each end that use the link, as (address, source or None)."""

    def __init__(self, name, a, b):
        (self.a, address_a, routes_a), (self.b, address_b, routes_b) = a, b
        self.name, self.devices, self._detour = name, (f"{name}-0", f"{name}-1"), None
        run(["ip", "link", "add", self.devices[0], "netns", self.a.pid, "type", "veth", "peer", "name", self.devices[1], "netns", self.b.pid])
        for space, device, address in ((self.a, self.devices[0], address_a), (self.b, self.devices[1], address_b)):
            space.run("ip", "address", "add", f"{address}/30", "dev", device)
            space.run("ip", "link", "set", device, "up")
        self.routes = [(self.a, self.devices[0], route) for route in routes_a] + [(self.b, self.devices[1], route) for route in routes_b]
        self.peers = [(self.a, address_b), (self.b, address_a)]
        self.use()

    def use(self):
        """Takes the routes over."""
        for space, device, (target, source) in self.routes:
            space.run("ip", "route", "replace", f"{target}/32", "dev", device, *(["src", source] if source else []))

    def drop(self, program, to_a=True, to_b=True):
        for wanted, space, device in ((to_a, self.a, self.devices[0]), (to_b, self.b, self.devices[1])):
            if wanted:
                space.run("tc", "qdisc", "add", "dev", device, "clsact")
                space.run("tc", "filter", "add", "dev", device, "ingress", "bpf", "direct-action", "bytecode", program)

    def lose(self, share):
        """Both ways lose this share of the packets: load the random number, compare, return TC_ACT_OK or TC_ACT_SHOT."""
        self.drop(f"4,32 0 0 {RANDOM},37 0 1 {int(share * 0xFFFFFFFF)},6 0 0 0,6 0 0 2")

    def cut(self, to_a=True, to_b=True):
        self.drop(DROP_ALL, to_a, to_b)

    def delay(self, seconds):
        """Both ways take this much longer."""
        names = (f"{self.name}-t0", f"{self.name}-t1")
        self._detour = subprocess.Popen([sys.executable, "-m", "suites.faults.detour", *names, str(seconds)], cwd=stacks.HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if not self._detour.stdout.readline():
            raise wire.WireError("the detour did not start")
        for (space, peer), name, own in zip(self.peers, names, reversed(self.peers)):
            if space.holder:
                run(["ip", "link", "set", name, "netns", space.pid])
            space.run("ip", "link", "set", name, "mtu", "1500", "up")
            through = [(target, source) for where, _, (target, source) in self.routes if where is space] or [(peer, own[1])]
            for target, source in through:
                space.run("ip", "route", "replace", f"{target}/32", "dev", name, *(["src", source] if source else []))

    def heal(self):
        """As at first."""
        for space, device in ((self.a, self.devices[0]), (self.b, self.devices[1])):
            subprocess.run(space.command("tc", "qdisc", "del", "dev", device, "clsact"), capture_output=True, timeout=60)  # there may be none
        if self._detour:
            self._detour.stdin.close()
            self._detour.wait(10)  # its devices and their routes vanish with it
            self._detour = None
            self.use()


class Network:
    """All namespaces and links."""

    def __init__(self):
        self.home, self.clients = Space(), Space("clients")
        self.gateways = [Space("gateway a"), Space("gateway b")]
        self.up, self.office, self.down = [], [], []
        for i, (letter, space) in enumerate(zip("ab", self.gateways)):
            low = 4 * i
            space.run("ip", "address", "add", f"{SERVICE}/32", "dev", "lo")
            self.up.append(Link(f"up-{letter}", (self.home, f"{UP}{low + 1}", []), (space, f"{UP}{low + 2}", [])))
            self.office.append(Link(f"of-{letter}", (self.home, f"10.77.1.{low + 1}", []), (space, f"10.77.1.{low + 2}", [])))
            space.run("ip", "route", "add", "default", "via", f"10.77.1.{low + 1}")
        self.clients.run("ip", "address", "add", f"{CLIENTS}/32", "dev", "lo")
        for i, (letter, space) in enumerate(zip("ab", self.gateways)):
            low = 4 * i
            link = Link(f"dn-{letter}", (space, f"10.77.4.{low + 1}", [(CLIENTS, SERVICE)]), (self.clients, f"10.77.4.{low + 2}", [(SERVICE, CLIENTS)]))
            self.down.append(link)
        self.down[0].use()

    def server_address(self, number):
        """The API server's, as one gateway sees it."""
        return f"{UP}{4 * number + 1}"

    def office_address(self, number):
        """A gateway's, for the suite and for the other gateway."""
        return f"10.77.1.{4 * number + 2}"

    def heal(self):
        for link in (*self.up, *self.down):
            link.heal()

    def end(self):
        for space in (*self.gateways, self.clients):
            space.end()


def mount_memory(path, size):
    """A small disk."""
    Path(path).mkdir(parents=True, exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", path])


def unmount(path):
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, timeout=60)
