"""A suite's own etcd, API server and gateways, on ports and in a folder of their own.

Every process is stopped by its pid, also when the suite fails or is interrupted. With GATEWAY=direct there is no
gateway: its endpoints are the API server itself."""
import json
import os
import shutil
import socket
import subprocess
import threading
import zlib
from pathlib import Path

from . import http2, wire

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
SCRIPT = HERE / "apiserver" / "real-apiserver.sh"
WORK = ROOT / "target" / "real"
ADMIN_CONTEXT = "admin"
GATEWAY_AGENT = "fanout-tests/1 (gateway)"  # distinct, because the agent's name becomes the field manager of the fields that it writes
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata", "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"]}]}
GIVEN = set()  # ports reserved by this process's stacks, perhaps not yet in use
GIVING = threading.Lock()


def drawn(name):
    """A tenth of all names uses TLS, a tenth HTTP/2. TRANSPORT selects one transport for all."""
    number = zlib.crc32(f"{os.environ.get('TRANSPORT_SEED') or 1} {name}".encode()) % 10
    return os.environ.get("TRANSPORT") or {0: "tls", 1: "http2"}.get(number, "plain")


def home():
    """The folder where real-apiserver.sh keeps its binaries."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("REAL_APISERVER_HOME") or f"{cache}/kube-fanout-real-apiserver")


def free_ports(count):
    """Ports that were free a moment ago, below the range of outgoing connections. They are reserved within this process, so they differ."""
    with GIVING:
        return _free_ports(count)


def _free_ports(count):
    held, start = [], 15000 + (os.getpid() * 37) % 14000
    for port in list(range(start, 30000)) + list(range(15000, start)):
        if port in GIVEN:
            continue
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
            held.append(sock)
        except OSError:
            sock.close()
        if len(held) == count:
            break
    ports = [s.getsockname()[1] for s in held]
    GIVEN.update(ports)
    for s in held:
        s.close()
    return ports


def can_listen(port):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
            sock.listen()
        except OSError:
            return False
        return True


class Stack:
    """with Stack("name") as stack: stack.server and stack.plain, stack.tls are endpoints."""

    # The suite's own flags, before those of GATEWAY_ARGS. Caches are compared with the server all the time.
    gateway_flags = ("--drift-interval=1s",)
    audit_policy = AUDIT_POLICY

    def __init__(self, name, before_gateways=None, audited=False, server_flags=""):
        """BEFORE_GATEWAYS(server) prepares the server, for example with the custom resource that gateways must find. AUDITED: the
        server logs the requests that reach it, which shows which ones the gateways forwarded."""
        self.name, self.before_gateways = name, before_gateways
        self.state = WORK / f"{name}-{os.getpid()}"
        self.pki = self.state / "pki"
        self.gateway = os.environ.get("GATEWAY") or str(ROOT / "target" / "release" / "kube-fanout")
        self.direct = self.gateway == "direct"
        ports = free_ports(7)
        self.api_port = int(os.environ.get("REAL_APISERVER_PORT") or ports[0])
        self.etcd_port = int(os.environ.get("REAL_APISERVER_ETCD_PORT") or ports[1])
        self.gateway_ports = {"plain": ports[3:5], "tls": ports[5:7]}
        self.env = dict(os.environ, REAL_APISERVER_HOME=str(home()), REAL_APISERVER_STATE=str(self.state), REAL_APISERVER_PORT=str(self.api_port),
                        REAL_APISERVER_ETCD_PORT=str(self.etcd_port), REAL_APISERVER_PEER_PORT=str(ports[2]),
                        REAL_APISERVER_ARGS=f"--etcd-compaction-interval=0 {server_flags} {os.environ.get('REAL_APISERVER_ARGS', '')}".strip())
        self._pooled, self._pooling = {}, threading.Lock()
        self.gateways, self.to_gateways, self.audit = {}, wire.Count(), self.state / "audit.log" if audited else None
        self.failed = False

    def __enter__(self):
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        if self.audit:
            (self.state / "audit-policy.json").write_text(json.dumps(self.audit_policy))
            self.env["REAL_APISERVER_ARGS"] += f" --audit-policy-file={self.state / 'audit-policy.json'} --audit-log-path={self.audit} --audit-log-mode=blocking"
        try:
            self.start_server()
            self.token = self.read_token("admin")
            self.server = wire.Endpoint("server", "127.0.0.1", self.api_port, str(self.pki / "ca.crt"), self.token)
            if self.before_gateways:
                self.before_gateways(self.server)
            self.start_gateways()
        except BaseException:
            print(self.logs())
            self.stop()
            raise
        return self

    def __exit__(self, kind, *_):
        died = [k for k, p in self.gateways.items() if p.poll() is not None]
        broken = died or self.failed or kind and kind is not KeyboardInterrupt
        if broken:
            print(self.logs())
        self.stop()
        if not broken and not os.environ.get("REAL_KEEP"):
            shutil.rmtree(self.state, ignore_errors=True)
        if died and not kind:
            raise RuntimeError(f"gateways exited unexpectedly: {died}")

    def script(self, verb):
        done = subprocess.run([str(SCRIPT), verb], env=self.env, capture_output=True, text=True, timeout=180)
        if done.returncode:
            raise RuntimeError(f"real-apiserver.sh {verb}:\n{done.stderr[-3000:]}")

    def read_token(self, user):
        return (self.pki / f"{user}.token").read_text().strip()

    def kubeconfig(self, name, url, user=None, cluster=None, namespace="default"):
        """A kubeconfig file with one context, for the administrator or USER."""
        user = user or {"token": self.token}
        cluster = {"server": url, **({"certificate-authority": str(self.pki / "ca.crt")} if url.startswith("https") else {}), **(cluster or {})}
        path = self.pki / f"{name}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "one", "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one", "namespace": namespace}}],
            "clusters": [{"name": "one", "cluster": cluster}], "users": [{"name": "one", "user": user}]}))
        return path

    def start_server(self):
        """Starts the processes that are not running: after kill_server() only the API server."""
        self.script("start")

    def server_pid(self):
        return int((self.state / "run" / "real-apiserver.pid").read_text())

    def kill_server(self):
        """kill -9; returns when the process is gone and its port is free. etcd keeps running."""
        pid = self.server_pid()
        os.kill(pid, 9)

        def gone():
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                state = "X"
            return state in "XZ" and can_listen(self.api_port)  # the memory is freed first, the sockets later
        wire.poll("the API server's end", gone, 20, 0.02)

    def etcd(self, path, message, timeout=20):
        """One call of etcd's HTTP API."""
        endpoint = wire.Endpoint("etcd", "127.0.0.1", self.etcd_port)
        answer = wire.request(endpoint, "POST", path, {"Content-Type": "application/json"}, json.dumps(message).encode(), timeout)
        if answer.status != 200:
            raise RuntimeError(f"etcd {path}: {answer.status} {answer.text()}")
        return json.loads(answer.body)

    def revision(self):
        """etcd's."""
        return int(self.etcd("/v3/maintenance/status", {})["header"]["revision"])

    def start_gateways(self):
        self.plain = self.as_gateway(self._start_gateway("plain"))
        self.tls = self.as_gateway(self._start_gateway("tls"))

    def sides(self, name, target, headers=()):
        """The server and a gateway, over the transport that is drawn for a name."""
        transport = drawn(name)
        if transport == "http2" and http2.expressible(target, headers):
            return self.over_http2("server"), self.over_http2("tls")
        return self.server, self.tls if transport == "tls" else self.plain

    def transports(self):
        """The gateways over each transport."""
        return [self.plain, self.tls, self.over_http2("tls")]

    def over_http2(self, kind):
        """"server" or "tls", over shared connections."""
        with self._pooling:
            if kind not in self._pooled:
                self._pooled[kind] = getattr(self, kind).over_http2()
            return self._pooled[kind]

    def as_gateway(self, endpoint):
        """An endpoint that counts its requests; its agent identifies them where they are forwarded."""
        endpoint.agent, endpoint.asked = GATEWAY_AGENT, self.to_gateways
        return endpoint

    def audited(self):
        """The requests that reached the server."""
        return map(json.loads, self.audit.read_text(errors="replace").splitlines())

    def answered_from_memory(self):
        """The number of requests to gateways that did not reach the server."""
        return self.to_gateways.value - sum(seen.get("userAgent") == GATEWAY_AGENT for seen in self.audited())

    def restart_gateways(self):
        self.stop_gateways()
        self.start_gateways()

    def certificate(self, names="DNS:localhost,IP:127.0.0.1"):
        """A gateway's certificate and key, signed by the server's CA."""
        cert, key = self.pki / "gateway.crt", self.pki / "gateway.key"
        if not cert.exists():
            run = lambda *args: subprocess.run(["openssl", *args], cwd=self.pki, check=True, capture_output=True, timeout=60)
            (self.pki / "gateway.ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
            run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "gateway.key", "-out", "gateway.csr", "-subj", "/CN=gateway")
            run("x509", "-req", "-in", "gateway.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-out", "gateway.crt", "-extfile", "gateway.ext")
        return cert, key

    def _start_gateway(self, kind):
        if self.direct:
            return wire.Endpoint(f"{kind} (direct)", "127.0.0.1", self.api_port, str(self.pki / "ca.crt"), self.token)
        flags = ["--kubeconfig", self.pki / f"kubeconfig-{self.api_port}", "--context", ADMIN_CONTEXT, "--auth", os.environ.get("GATEWAY_AUTH") or "none", *self.gateway_flags]
        return self.launch(kind, *self.gateway_ports[kind], flags, self.token, tls=kind == "tls")

    def launch(self, name, port, admin, flags, token, tls=True):
        """Starts a gateway; returns its endpoint when TOKEN's owner is served."""
        transport = ["--plain-http"]
        if tls:
            cert, key = self.certificate()
            transport = ["--tls-cert", cert, "--tls-key", key]
        # The real API server has no aggregator, and so no APIServices: custom resources are cached only if they are named.
        args = [self.gateway, "serve", "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}", "--cache-resources=*,*.example.com",
                *transport, *flags, *os.environ.get("GATEWAY_ARGS", "").split()]
        with open(self.state / f"gateway-{name}.log", "ab") as log:
            process = subprocess.Popen(list(map(str, args)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.gateways[name] = process
        endpoint = wire.Endpoint(f"gateway ({name})", "127.0.0.1", port, str(self.pki / "ca.crt") if tls else None, token)

        def ready():
            if process.poll() is not None:
                raise RuntimeError(f"the {name} gateway exited with {process.returncode}")
            return wire.request(endpoint, "GET", "/version", timeout=5).status == 200
        wire.poll(f"the {name} gateway", ready, 30)
        return endpoint

    def stop_gateways(self):
        for process in self.gateways.values():
            if process.poll() is None:
                process.terminate()
        for process in self.gateways.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                print("     | a gateway did not end within ten seconds of SIGTERM", flush=True)
                process.kill()
                process.wait(10)
        self.gateways = {}

    def stop(self):
        self.stop_gateways()
        try:
            self.script("stop")
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(e)

    def logs(self):
        out = []
        for log in [*self.state.glob("gateway-*.log"), *self.state.glob("run/*.log")]:
            out.append(f"--- the end of {log.relative_to(ROOT)}\n" + log.read_text(errors="replace")[-3000:])
        return "\n".join(out)

    def metric(self, name, **labels):
        """The sum of an API server metric over the series with these labels."""
        return self._sum_at(self.server, name, labels)

    def gateway_metric(self, kind, name, **labels):
        """The sum of a metric of one gateway over the series with these labels."""
        return self._sum_at(wire.Endpoint(f"{kind} admin", "127.0.0.1", self.gateway_ports[kind][1], None, None), name, labels)

    def _sum_at(self, endpoint, name, labels):
        total = 0.0
        for line in wire.request(endpoint, "GET", "/metrics", timeout=30).text().splitlines():
            if line.startswith((name + "{", name + " ")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total
