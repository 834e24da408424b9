"""The gateways: each in a namespace and with a small disk of its own, behind one address."""
import os
import signal
import subprocess

from .. import stack as stacks, wire
from .network import SERVICE, mount_memory, unmount

PORT, ADMIN_PORT = 8443, 9090
DRAIN_SECONDS = 5
READY_SECONDS = 90
USER = "admin-cert"  # the gateways', by certificate; clients have a token, so the server's audit log tells whose lists it got
DISK = "64m"


class Gateway:
    """One of the two; it is started and ended again and again with the same checkpoints."""

    def __init__(self, stack, network, number):
        self.stack, self.space, self.number = stack, network.gateways[number], number
        self.name, self.address = "ab"[number], network.office_address(number)
        self.up, self.down = network.up[number], network.down[number]
        self.disk, self.log = stack.state / f"disk-{self.name}", stack.state / f"gateway-{self.name}.log"
        self.checkpoints = self.disk / "state"
        self.admin = wire.Endpoint(f"gateway {self.name}, admin", self.address, ADMIN_PORT)
        self.endpoint = wire.Endpoint(f"gateway {self.name}", self.address, PORT, str(stack.pki / "ca.crt"), stack.token)
        self.process = None
        stack.certificate()
        mount_memory(self.disk, DISK)
        self.config = stack.kubeconfig(f"gateway-{self.name}", f"https://{network.server_address(number)}:{stack.api_port}",
                                       {"client-certificate": "admin.crt", "client-key": "admin.key"}, {"tls-server-name": "localhost"})

    def start(self, *flags, peer=None):
        """Returns when it is ready. PEER: a gateway from which it takes its caches over."""
        cert, key = self.stack.certificate()
        args = [self.stack.gateway, "serve", "--kubeconfig", self.config, "--listen", f"0.0.0.0:{PORT}", "--admin-listen", f"0.0.0.0:{ADMIN_PORT}", "--tls-cert", cert,
                "--tls-key", key, "--state-dir", self.checkpoints, f"--drain-timeout={DRAIN_SECONDS}s", "--drift-interval=0s",
                "--cache-resources=*,*.example.com", *os.environ.get("GATEWAY_ARGS", "").split(), *flags]
        if peer:
            args += ["--handover-from", f"https://{peer.address}:{PORT}", "--handover-ca-file", self.stack.pki / "ca.crt", "--handover-token-file", self.stack.pki / "admin.token"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.space.command(*args), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.stack.gateways[self.name] = self.process

        def ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"gateway {self.name} exited with {self.process.returncode}")
            return wire.request(self.admin, "GET", "/readyz", timeout=5).status == 200
        wire.poll(f"gateway {self.name}", ready, READY_SECONDS, 0.05)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self._gone(10)

    def drain(self):
        self.signal(signal.SIGTERM)
        self._gone(DRAIN_SECONDS + 30)

    def _gone(self, seconds):
        self.process.wait(seconds)
        self.stack.gateways.pop(self.name, None)

    def metric(self, name, **labels):
        """The sum over the series with these labels."""
        total = 0.0
        for line in wire.request(self.admin, "GET", "/metrics", timeout=30).text().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
                total += float(value)
        return total

    def forget(self):
        """Removes its checkpoints."""
        for path in self.checkpoints.glob("*.checkpoint"):
            path.unlink()


class FaultStack(stacks.Stack):
    """The API server listens on all addresses of the suite's own network; there are no gateways on loopback."""

    audit_policy = {**stacks.AUDIT_POLICY, "rules": [{"level": "Metadata", "omitStages": ["RequestReceived", "Panic"]}]}  # with the status of the response

    def __init__(self, before_gateways):
        super().__init__("faults", before_gateways, audited=True, server_flags="--bind-address=0.0.0.0")
        self.disks = []

    def start_gateways(self):
        pass

    def certificate(self):
        """Of the address that clients use, and of those between gateways."""
        return super().certificate(f"IP:{SERVICE},IP:10.77.1.2,IP:10.77.1.6")

    def pid(self, name):
        return int((self.state / "run" / f"{name}.pid").read_text())

    def kill_etcd(self):
        pid = self.pid("etcd")
        os.kill(pid, signal.SIGKILL)
        wire.poll("etcd's end", lambda: stacks.can_listen(self.etcd_port), 20, 0.02)

    def stop(self):
        for name in ("etcd", "real-apiserver"):  # a stopped process could not end
            try:
                os.kill(self.pid(name), signal.SIGCONT)
            except (OSError, ValueError):
                pass
        for process in self.gateways.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        super().stop()
        for disk in self.disks:
            unmount(disk)
