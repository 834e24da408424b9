"""The clients of the converge suite: informers of each library, in processes that print their contents on request."""
import sys
from pathlib import Path

from .. import programs, stack as stacks, tools, wire

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
READERS = ["typed", "typed-bare", "packed", "raw", "metadata"]  # forms of this project's own informer
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
    ("dynamic", "widgets", LIST, "HTTP/1.1", "", ""),
    ("metadata JSON", "widgets", WATCH_LIST, "HTTP/2", "", ""),
    ("metadata JSON", "widgets", WATCH_LIST, "HTTP/1.1", "", ""),
    ("metadata protobuf", "widgets", LIST, "HTTP/2", "app=demo", ""),
    ("typed JSON", "configmaps", WATCH_LIST, "HTTP/2", "", ""),
    ("typed protobuf", "configmaps", LIST, "HTTP/1.1", "", ""),
    ("typed protobuf", "configmaps", WATCH_LIST, "HTTP/2", "app=demo", ""),
    ("metadata protobuf", "configmaps", WATCH_LIST, "HTTP/1.1", "", ""),
]


MANY = {  # of these there are ten each
    ("typed JSON", "pods", WATCH_LIST, "HTTP/2"), ("typed JSON", "pods", LIST, "HTTP/1.1"), ("typed protobuf", "pods", WATCH_LIST, "HTTP/2"), ("typed protobuf", "pods", LIST, "HTTP/1.1"),
    ("dynamic", "pods", WATCH_LIST, "HTTP/1.1"), ("metadata protobuf", "pods", WATCH_LIST, "HTTP/2"), ("metadata JSON", "pods", LIST, "HTTP/1.1"),
    ("dynamic", "widgets", WATCH_LIST, "HTTP/2"), ("dynamic", "widgets", LIST, "HTTP/1.1"), ("metadata JSON", "widgets", WATCH_LIST, "HTTP/2"),
}
PAGED = ("dynamic", "widgets", LIST, "HTTP/1.1")


class Client:
    """One informer of a program: its name, and the objects that it should hold. CALM: what an undisturbed one answers besides."""

    def __init__(self, name, resource, labels="", fields="", metadata_only=False, calm=None):
        self.name, self.resource, self.metadata_only, self.calm = name, resource, metadata_only, calm or {}
        self.target = wire.query(COLLECTIONS[resource], labelSelector=labels or None, fieldSelector=fields or None)


class Clients(programs.Program):
    """A process with one or more informers. CLIENT_OF makes the Client of the program's own name of one."""

    def __init__(self, name, args, log, client_of, env=None):
        super().__init__(name, args, log, env)
        self.client_of, self.clients = client_of, {}

    def ask(self, question):
        """{Client: its answer}"""
        answer = super().ask(question)
        answers = answer["clients"] if answer["event"] == "contents" else {"": answer}
        for key in answers.keys() - self.clients.keys():
            self.clients[key] = self.client_of(key)
        return {self.clients[key]: one for key, one in answers.items()}

    def lap(self):
        """The counts of this project's informers."""
        return super().ask("lap")


def credentials(stack):
    return str(stack.pki / "ca.crt"), str(stack.pki / "admin.token")


def go(stack, program):
    """client-go: one process per kind of client."""
    for form, resource, way, http, labels, fields in GO:
        endpoint, sort = stack.plain if http == "HTTP/1.1" else stack.tls, (form, resource, way, http)
        words = [form, resource, "watch-list" if way == WATCH_LIST else "list+watch", http, labels, fields]
        name, many = "client-go, " + ", ".join(filter(None, words)), sort in MANY and not labels and not fields
        calm = {"lists": 1, "watchLists": int(way == WATCH_LIST), "errors": 0, "refused": 0, "protocols": ["HTTP/2.0" if http == "HTTP/2" else http]}
        flags = ["--resource", RESOURCES[resource], "--count", 10 if many else 1, "--ledger", "--content-hash=false", way, *FORMS[form], "--label-selector", labels, "--field-selector", fields,
                 *(["--http1"] if http == "HTTP/1.1" else []), *(["--pagesize=7"] if many and sort == PAGED else [])]
        client = lambda key, name=name, rest=(resource, labels, fields, form.startswith("metadata"), calm): Client(f"{name} {key}", *rest)
        yield Clients(name, programs.client_go(stack, endpoint, program, *flags), stack.state / "client-go.log", client)


def ours(stack, program):
    """This project's own informer, also at the server."""
    for endpoint in (stack.plain, stack.tls, stack.server):
        config = stack.kubeconfig(f"own-{endpoint.port}", endpoint.url())
        for reader in READERS:
            client = Client(f"our own, {reader}, {endpoint.name}", "pods", calm={"lists": 1})
            yield Clients(client.name, [program, "follow", "--reader", reader, "--kubeconfig", config], stack.state / "own-informers.log", lambda _, client=client: client)


def crowd(library, endpoint, calm=None):
    """Clients that their program names 'form and resource|more|labels|fields'."""
    def client(key):
        what, more, labels, fields = key.split("|")
        resource = next(r for r in RESOURCES if r in what)
        return Client(", ".join(filter(None, [library, what, more, labels, fields, endpoint.name])), resource, labels, fields, what.startswith("metadata"), calm)
    return client


def rust(stack, program):
    ca, token = credentials(stack)
    for endpoint in (stack.plain, stack.tls):
        env = {"KUBE_FANOUT_TEST_URL": endpoint.url(), "KUBE_FANOUT_TEST_CA_FILE": ca, "KUBE_FANOUT_TEST_TOKEN_FILE": token}
        args = [program, "--ignored", "--exact", "--nocapture", RUST_TEST]
        yield Clients(f"kube-rs, {endpoint.name}", args, stack.state / "kube-rs.log", crowd("kube-rs", endpoint, {"lists": 1, "errors": 0}), env)


def python(stack, interpreter):
    for endpoint in (stack.plain, stack.tls):
        args = [interpreter, PYTHON_PROGRAM, endpoint.url(), *credentials(stack)]
        yield Clients(f"Python, {endpoint.name}", args, stack.state / "python.log", crowd("Python", endpoint, {"lists": 1, "errors": 0}))


def javascript(stack, modules):
    for endpoint in (stack.plain, stack.tls):
        args = ["node", JAVASCRIPT_PROGRAM, modules, endpoint.url(), *credentials(stack)]
        yield Clients(f"JavaScript, {endpoint.name}", args, stack.state / "javascript.log", crowd("JavaScript", endpoint))


def start(check, stack):
    """All programs. A missing library is a failure, because this suite is about the libraries' clients."""
    libraries = {
        "client-go": (tools.client_go(), go), "kube-rs": (tools.integration_tests(), rust), "the Python client": (sys.executable, python),
        "the JavaScript client": (tools.node_modules(), javascript), "our own informers: cargo build -p kube-fanout-loadtest": (tools.informers(), ours),
    }
    for name, (program, begin) in libraries.items():
        if check(f"{name} is there", program):
            yield from begin(stack, program)
