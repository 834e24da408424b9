"""An API server that injects pods by deploy/inject, and what a cluster has besides: the controller of EndpointSlices, a kubelet for the
gateways' pods, and a TCP balancer that chooses endpoints as kube-proxy does."""
import os
import random
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import yaml

from .. import fixtures, wire
from ..stack import ROOT, Stack

INJECT = ROOT / "deploy" / "inject"
LABEL = "kube-fanout.io/inject"
GATEWAYS = "/api/v1/namespaces/kube-fanout"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/kube-fanout/endpointslices"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names
RBAC = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
MOUNTS = """mount --make-rprivate / && mount --bind "$1/hosts" /etc/hosts && mount -t tmpfs none /run && d=/run/secrets/kubernetes.io/serviceaccount &&
mkdir -p $d && cp "$1/token" "$1/ca.crt" $d && printf default >$d/namespace && shift && exec "$@" """


def injected(pod):
    """The percentage at which the pod was injected; None if it was not."""
    return pod["metadata"].get("annotations", {}).get("kube-fanout.io/injected")


def untouched(pod):
    spec = pod["spec"]
    return injected(pod) is None and "hostAliases" not in spec and "env" not in spec["containers"][0]


class InjectStack(Stack):
    """With the objects of deploy/inject but the publisher."""

    def __init__(self, name="inject", server_flags=""):
        super().__init__(name, server_flags=f"--mutating-admission-policies {server_flags}")

    def apply(self):
        self.api = fixtures.Api(self.server)
        policy, binding = yaml.safe_load_all((INJECT / "policy.yaml").read_text())
        for matching in (policy["spec"]["matchConstraints"], binding["spec"]["matchResources"]):  # kube-apiserver's defaults
            matching.update({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}} | matching)
        self.namespace("kube-fanout", "true")
        self.api.create(f"{POLICIES}ies", policy)
        self.api.create(f"{POLICIES}ybindings", binding)
        service, settings = yaml.safe_load_all((INJECT / "service.yaml").read_text())
        service["spec"]["clusterIP"] = self.address()
        self.api.create(f"{GATEWAYS}/services", service)
        self.api.create(f"{GATEWAYS}/configmaps", settings)

    def address(self):
        """The Service's: one of loopback's that no other suite has."""
        return f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"

    def namespace(self, name, label=None):
        labels = {"kubernetes.io/metadata.name": name, **({LABEL: label} if label else {})}
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    def pod(self, namespace, more=None, volume=None):
        """Creates a pod, for the answer only, as ServiceAccount admission leaves it."""
        more = more or {}
        token = {"name": volume or f"kube-api-access-{''.join(random.choices(LETTERS, k=5))}", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}
        pod = {"metadata": {"generateName": "p-", **more.get("metadata", {})},
               "spec": {"containers": [{"name": "a", "image": "x"}], "volumes": [token], **more.get("spec", {})}}
        return self.api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)


class PodStack(InjectStack):
    """Two gateways, whose pods and addresses the API server knows, the publisher, and an address of the API for pods."""

    gateway_flags = ("--drain-timeout=20s", "--drain-delay=2s")

    def __init__(self):
        super().__init__("inject-clients", "--authorization-mode=RBAC")
        self.running, self.proxy, self.ended = {}, None, threading.Event()

    def certificate(self, names=None):
        return super().certificate(names or "DNS:localhost,IP:127.0.0.1,DNS:kubernetes.default.svc")

    def start_gateways(self):
        self.apply()
        self.grant()
        self.namespace("default")
        self.namespace("in", "true")
        fixtures.install_crd(self.api)
        for i in range(20):
            labels = {"app": "demo"} if i % 2 else {}
            self.api.create(fixtures.pods("default"), fixtures.pod(f"o{i}", labels, f"node-{i % 2}"))
            self.api.create(fixtures.widgets("default"), fixtures.widget(f"o{i}", labels))
            self.api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"o{i}", "labels": labels}})
        servers = {"metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": "IPv4",
                   "ports": [{"name": "https", "port": self.api_port, "protocol": "TCP"}], "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]}
        self.api.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", servers)
        self.proxy = Proxy(self.address(), 443)
        self.start_workload()
        self.controller = threading.Thread(target=self.control, daemon=True)
        self.controller.start()
        log = open(self.state / "publisher.log", "ab")
        config = self.kubeconfig("publisher", self.server.url(), {"token": "publisher"})
        self.publisher = subprocess.Popen([self.gateway, "inject", "publish", f"--kubeconfig={config}"], stdout=log, stderr=log)

    def grant(self):
        """The publisher's rights, and no others."""
        with open(self.pki / "tokens.csv", "a") as tokens:
            tokens.write("publisher,system:serviceaccount:kube-fanout:kube-fanout-inject,publisher\n")
        for file in ("publisher.yaml", "bundle.yaml"):
            for item in yaml.safe_load_all((INJECT / file).read_text()):
                if item["kind"] in RBAC:
                    namespace = item["metadata"].get("namespace")
                    self.api.create(f"/apis/rbac.authorization.k8s.io/v1{f'/namespaces/{namespace}' if namespace else ''}/{item['kind'].lower()}s", item)

    def command(self, *arguments):
        return [self.gateway, "inject", *map(str, arguments), f"--kubeconfig={self.pki / f'kubeconfig-{self.api_port}'}"]

    def inject(self, *arguments):
        """The command's output; an error if it does not do everything."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise wire.WireError(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def start_workload(self):
        """Two new pods, with a process each."""
        for kind in ("plain", "tls"):
            name = f"g-{kind}-{len(self.running)}"
            flags = ["--kubeconfig", self.pki / f"kubeconfig-{self.api_port}", "--context", "admin", "--auth", "none", *self.gateway_flags]
            port, admin = self.gateway_ports[kind]
            wire.poll("the port is free", lambda: not listens(port) and not listens(admin), 60)
            self.launch(name, port, admin, flags, self.token)
            labels = {"app.kubernetes.io/name": "kube-fanout", "app.kubernetes.io/component": "gateway"}
            self.api.create(f"{GATEWAYS}/pods", fixtures.pod(name, labels))
            slice = {"metadata": {"name": f"kube-fanout-api-{name}", "labels": {"kubernetes.io/service-name": "kube-fanout-api"}}, "addressType": "IPv4",
                     "ports": [{"name": "https", "port": port, "protocol": "TCP"}], "endpoints": []}
            self.api.create(SLICES, slice)
            self.running[name] = (port, admin)

    def control(self):
        """What a cluster does all the time."""
        while not self.ended.wait(0.1):
            try:
                self.reconcile()
            except (wire.WireError, OSError, ValueError) as error:
                print("reconcile:", repr(error))

    def reconcile(self):
        running = list(self.running.items())  # before pods and slices are read, so that each has its own
        selector = self.api.get(f"{GATEWAYS}/services/kube-fanout-api")["spec"]["selector"]
        pods = {pod["metadata"]["name"]: pod["metadata"].get("labels", {}) for pod in self.api.get(f"{GATEWAYS}/pods")["items"]}
        slices = {item["metadata"]["name"]: item for item in self.api.get(SLICES)["items"]}
        for name, (_, admin) in running:
            process = self.gateways[name]
            if name not in pods and process.poll() is None and not getattr(process, "told", False):
                process.told = True
                process.terminate()
            selected = name in pods and selector.items() <= pods[name].items()
            endpoints = [{"addresses": ["127.0.0.1"], "conditions": {"ready": is_ready(admin)}}] if selected else []
            item = slices[f"kube-fanout-api-{name}"]
            if item.get("endpoints") != endpoints:
                self.api.call("PUT", f"{SLICES}/kube-fanout-api-{name}", {**item, "endpoints": endpoints})
                item["endpoints"] = endpoints
        self.proxy.endpoints = [(endpoint["addresses"][0], item["ports"][0]["port"], endpoint["conditions"])
                                for item in slices.values() if item.get("ports") for endpoint in item.get("endpoints") or []]

    def at_gateways(self):
        """Connections of pods to gateways."""
        ports = {port for port, _ in self.running.values()}
        return sum(count for port, count in self.proxy.open().items() if port in ports)

    def environment(self):
        """A folder with what a container of an injected pod has, and its variables."""
        pod = self.pod("in")
        assert injected(pod), "not injected"
        folder = Path(tempfile.mkdtemp(dir=self.state))
        aliases = [f"{alias['ip']} {' '.join(alias['hostnames'])}\n" for alias in pod["spec"]["hostAliases"]]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(aliases))
        (folder / "token").write_text(self.token)
        (folder / "ca.crt").write_text((self.pki / "ca.crt").read_text())
        return folder, {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}

    def in_pod(self, *command):
        """A command in such a container, and its variables."""
        folder, variables = self.environment()
        return ["unshare", "--mount", "sh", "-c", MOUNTS, "sh", folder, *command], variables

    def stop(self):
        self.ended.set()
        if getattr(self, "publisher", None):
            self.publisher.terminate()
            self.publisher.wait(10)
        if self.proxy:
            self.proxy.close()
        super().stop()

    def __exit__(self, kind, *rest):
        self.ended.set()
        self.controller.join()
        self.gateways = {name: process for name, process in self.gateways.items() if not getattr(process, "told", False)}
        return super().__exit__(kind, *rest)


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def is_ready(admin):
    try:
        return wire.request(wire.Endpoint("admin", "127.0.0.1", admin), "GET", "/readyz", timeout=5).status == 200
    except (OSError, wire.WireError):
        return False


class Proxy:
    """Passes TCP on to an endpoint that is ready, or, if none is, to one that serves and terminates. Open connections stay where they are."""

    def __init__(self, host, port):
        self.endpoints, self.connections, self.lock = [], set(), threading.Lock()
        self.listener = socket.create_server((host, port), backlog=128)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def chosen(self):
        endpoints = self.endpoints
        ready = [one for one in endpoints if one[2].get("ready") is not False]
        standby = [one for one in endpoints if one[2].get("serving") and one[2].get("terminating")]
        return random.choice(ready or standby or [None])

    def serve(self, client):
        with self.lock:  # so that a connection is counted as soon as its endpoint is chosen
            endpoint = self.chosen()
            key = endpoint and (endpoint[1], id(client))
            if endpoint:
                self.connections.add(key)
        if endpoint:
            self.join(client, endpoint)
        client.close()
        with self.lock:
            self.connections.discard(key)

    def join(self, client, endpoint):
        try:
            server = socket.create_connection(endpoint[:2], 5)
        except OSError:
            return
        server.settimeout(None)
        halves = [threading.Thread(target=passes, args=pair, daemon=True) for pair in ((client, server), (server, client))]
        for half in halves:
            half.start()
        for half in halves:
            half.join()
        server.close()

    def open(self):
        """The number of connections by the endpoint's port."""
        with self.lock:
            ports = [port for port, _ in self.connections]
        return {port: ports.count(port) for port in set(ports)}

    def close(self):
        self.listener.close()


def passes(source, target):
    """Until the source ends; both are told, so that no half-open connection stays."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for sock in (source, target):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
