"""The client programs of the converge suite: processes that hold informers and print their contents on request."""
import json
import os
import queue
import subprocess
import threading
from pathlib import Path

from .. import clients, stack as stacks, wire

ANSWER_SECONDS = 90
PYTHON_PROGRAM = Path(__file__).with_name("python_program.py")
JAVASCRIPT_PROGRAM = stacks.HERE / "javascript" / "informers.js"
RUST_TEST = "kube_rs::asked::tells_what_its_stores_hold"
COLLECTIONS = {"pods": "/api/v1/pods", "configmaps": "/api/v1/configmaps", "widgets": "/apis/example.com/v1/widgets"}
RESOURCES = {"pods": "pods", "configmaps": "configmaps", "widgets": "widgets.v1.example.com"}

FORMS = {
    "typed JSON": ["--client=typed"],
    "typed protobuf": ["--client=typed", "--content-type=protobuf"],
    "dynamic": ["--client=dynamic"],
    "metadata JSON": ["--client=metadata"],
    "metadata protobuf": ["--client=metadata", "--content-type=protobuf"],
}
WATCH_LIST, LIST = "--watch-list=on", "--watch-list=off"
GO = [(form, "pods", way, http, "", "") for form in FORMS for way in (WATCH_LIST, LIST) for http in ("HTTP/1.1", "HTTP/2")] + [
    ("typed protobuf", "pods", WATCH_LIST, "HTTP/2", "app=demo", ""),
    ("typed JSON", "pods", LIST, "HTTP/1.1", "app notin (demo, test)", ""),
    ("dynamic", "pods", WATCH_LIST, "HTTP/1.1", "app in (demo, prod)", ""),
    ("metadata protobuf", "pods", WATCH_LIST, "HTTP/2", "app=demo", ""),
    ("typed protobuf", "pods", WATCH_LIST, "HTTP/1.1", "", "spec.nodeName=node-1"),
    ("typed JSON", "pods", LIST, "HTTP/2", "", "spec.nodeName=node-1"),
    ("metadata JSON", "pods", WATCH_LIST, "HTTP/2", "app", "spec.nodeName=node-1"),
    ("typed protobuf", "pods", LIST, "HTTP/2", "", "metadata.name=o1"),
    ("dynamic", "widgets", WATCH_LIST, "HTTP/2", "", ""),
    ("dynamic", "widgets", LIST, "HTTP/1.1", "", "spec.color=red"),
    ("metadata JSON", "widgets", WATCH_LIST, "HTTP/1.1", "", ""),
    ("metadata protobuf", "widgets", LIST, "HTTP/2", "app=demo", ""),
    ("typed JSON", "configmaps", WATCH_LIST, "HTTP/2", "", ""),
    ("typed protobuf", "configmaps", LIST, "HTTP/1.1", "", ""),
    ("typed protobuf", "configmaps", WATCH_LIST, "HTTP/2", "app=demo", ""),
    ("metadata protobuf", "configmaps", WATCH_LIST, "HTTP/1.1", "", ""),
]


class Client:
    """One informer of a program: its name, and the objects that it should hold."""

    def __init__(self, name, resource, labels, fields, metadata_only):
        self.name, self.resource, self.metadata_only = name, resource, metadata_only
        self.target = wire.query(COLLECTIONS[resource], labelSelector=labels or None, fieldSelector=fields or None)


class Program:
    """A process with one or more informers. CLIENTS is {the program's own name of one: Client}, or a function of the first response."""

    def __init__(self, name, args, log, clients_of, env=None):
        self.name, self.clients_of, self.clients = name, clients_of, None
        self.log = open(log, "ab")
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=dict(os.environ, NO_PROXY="127.0.0.1", **(env or {})))
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{") and (parsed := json.loads(line))["event"] == "contents":
                self.answers.put(parsed["clients"])
        self.answers.put(None)

    def ask(self, question):
        """{Client: response}; WireError if the program ended or does not respond."""
        try:
            self.process.stdin.write(f"{question}\n")
            self.process.stdin.flush()
            answers = self.answers.get(timeout=ANSWER_SECONDS)
        except (OSError, queue.Empty) as e:
            raise wire.WireError(f"{self.name} does not answer: {e!r}; exit code {self.process.poll()}") from e
        if answers is None:
            raise wire.WireError(f"{self.name} ended with {self.process.wait(10)}")
        if self.clients is None:
            self.clients = {key: self.clients_of(key) for key in answers}
        return {self.clients[key]: answer for key, answer in answers.items()}

    def finish(self):
        """Closes the program's input; returns the exit code."""
        self.process.stdin.close()
        return self.process.wait(60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.log.close()


def credentials(stack):
    return str(stack.pki / "ca.crt"), str(stack.pki / "admin.token")


def go(stack):
    """client-go: one process per client."""
    ca, token = credentials(stack)
    for form, resource, way, http, labels, fields in GO:
        endpoint = stack.plain if http == "HTTP/1.1" else stack.tls
        words = [form, resource, "watch-list" if way == WATCH_LIST else "list+watch", http, labels, fields]
        one = Client("client-go, " + ", ".join(filter(None, words)), resource, labels, fields, form.startswith("metadata"))
        args = [str(stacks.home() / "bin" / "informer"), "--server", endpoint.url(), "--token", f"@{token}", "--resource", RESOURCES[resource], "--duration=1h",
                "--interactive", "--ledger", "--content-hash=false", way, *FORMS[form], "--label-selector", labels, "--field-selector", fields]
        args += ["--http1"] if http == "HTTP/1.1" else []
        args += ["--ca", ca] if endpoint.tls else []
        yield Program(one.name, args, stack.state / "client-go.log", lambda _, one=one: one)


def crowd(library, endpoint):
    """Clients that their program names 'form and resource|more|labels|fields'."""
    def client(key):
        what, more, labels, fields = key.split("|")
        resource = next(r for r in RESOURCES if r in what)
        return Client(", ".join(filter(None, [library, what, more, labels, fields, endpoint.name])), resource, labels, fields, what.startswith("metadata"))
    return client


def rust(stack, program):
    ca, token = credentials(stack)
    for endpoint in (stack.plain, stack.tls):
        env = {"KUBE_FANOUT_TEST_URL": endpoint.url(), "KUBE_FANOUT_TEST_CA_FILE": ca, "KUBE_FANOUT_TEST_TOKEN_FILE": token}
        yield Program(f"kube-rs, {endpoint.name}", [program, "--ignored", "--exact", "--nocapture", RUST_TEST], stack.state / "kube-rs.log", crowd("kube-rs", endpoint), env)


def python(stack, interpreter):
    for endpoint in (stack.plain, stack.tls):
        yield Program(f"Python, {endpoint.name}", [interpreter, str(PYTHON_PROGRAM), endpoint.url(), *credentials(stack)], stack.state / "python.log", crowd("Python", endpoint))


def javascript(stack, modules):
    for endpoint in (stack.plain, stack.tls):
        args = ["node", str(JAVASCRIPT_PROGRAM), modules, endpoint.url(), *credentials(stack)]
        yield Program(f"JavaScript, {endpoint.name}", args, stack.state / "javascript.log", crowd("JavaScript", endpoint))


def node_modules():
    """The folder with the official JavaScript client, or the reason why there is none."""
    done = subprocess.run([str(stacks.SCRIPT), "javascript"], capture_output=True, text=True, timeout=600)
    return (done.stdout.strip(), None) if done.returncode == 0 else (None, done.stderr.strip()[-300:])


def start(stack, report):
    """All programs. A missing library is a failure, because this suite is about the libraries' clients."""
    informer = stacks.home() / "bin" / "informer"
    needed = [
        ("client-go", lambda: (str(informer), None) if informer.exists() else (None, f"{informer} is missing: real-apiserver.sh informer"), lambda s, _: go(s)),
        ("kube-rs", clients.kube_rs_program, rust), ("the Python client", clients.python_with_client, python), ("the JavaScript client", node_modules, javascript),
    ]
    for name, find, begin in needed:
        found, why = find()
        if report.check(f"{name} is there", found, why):
            yield from begin(stack, found)
