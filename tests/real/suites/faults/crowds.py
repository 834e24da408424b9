"""The clients: a process per library, resource and form, each with many informers."""
from .. import programs, tools
from .gateways import PORT
from .network import SERVICE

RESOURCES = {  # name: (group/version/plural, kind, for client-go)
    "pods": ("/v1/pods", "Pod", "pods"), "configmaps": ("/v1/configmaps", "ConfigMap", "configmaps"), "widgets": ("example.com/v1/widgets", "Widget", "widgets.v1.example.com"),
}
CLIENT_GO = "client-go"
SORTS = [  # library, resource, flags of client-go, share of all clients in twentieths
    (CLIENT_GO, "pods", ["--client=typed", "--content-type=protobuf", "--watch-list=on"], 2),
    (CLIENT_GO, "pods", ["--client=typed", "--content-type=protobuf", "--watch-list=off", "--http1"], 2),
    (CLIENT_GO, "pods", ["--client=metadata", "--watch-list=on"], 1),
    (CLIENT_GO, "configmaps", ["--client=typed", "--watch-list=on"], 1),
    (CLIENT_GO, "configmaps", ["--client=typed", "--watch-list=off", "--http1"], 1),
    (CLIENT_GO, "widgets", ["--client=dynamic", "--watch-list=on", "--http1"], 2),
    (CLIENT_GO, "widgets", ["--client=dynamic", "--watch-list=off"], 1),
    ("kube-rs", "pods", None, 2), ("kube-rs", "configmaps", None, 1), ("kube-rs", "widgets", None, 2),
    ("ours", "pods", None, 2), ("ours", "configmaps", None, 1), ("ours", "widgets", None, 2),
]
LIBRARIES = [CLIENT_GO, "kube-rs", "ours"]
CACHES = 4  # that these clients need: pods in JSON and in protobuf, config maps and widgets in JSON
SHARES = sum(share for *_, share in SORTS)


class Crowd(programs.Program):
    """A process with COUNT informers."""

    def __init__(self, library, resource, count, args, log):
        super().__init__(f"{count} of {library}, {resource}", args, log)
        self.library, self.resource, self.count, self.lists = library, resource, count, 0


def start(stack, space, total):
    """All crowds, TOTAL informers in all, in the clients' namespace."""
    url, ca, token = f"https://{SERVICE}:{PORT}", stack.pki / "ca.crt", stack.pki / "admin.token"
    config = stack.kubeconfig("clients", url)
    for i, (library, resource, flags, share) in enumerate(SORTS):
        path, kind, full = RESOURCES[resource]
        count = max(1, round(total * share / SHARES))
        if library == CLIENT_GO:
            args = [tools.client_go(), "--server", url, "--ca", ca, "--token", f"@{token}", "--resource", full, "--count", count, "--duration=3h", "--interactive",
                    "--content-hash=false", *flags]
        else:
            args = [tools.informers(), "crowd", "--kubeconfig", config, "--library", library, "--resource", path, "--kind", kind, "--count", count]
        yield Crowd(library, resource, count, space.command(*args), stack.state / f"crowd-{i}.log")
