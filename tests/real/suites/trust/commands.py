"""kubectl as a user: --as, --as-group, --as-uid, auth can-i and auth whoami print the same at the server and through the gateways."""
import re
import subprocess

# user, command
COMMANDS = [(user, command) for user in ("actor", "nobody", "root") for command in (
    "get pods -n a --as=reader", "get pods -n a --as=nobody", "get pods -n b --as=nobody --as-group=team:blue", "get pods -n a --as=root", "get pods -n a --as=nobody --as-group=system:masters",
    "get widgets -A --as=reader -o name", "get pods -n a --as=reader --as-uid=7", "get pods -n a --as=reader --as-uid=8", "get pods -n a --as-group=team:blue", "get pods -n a --as-uid=7",
    "get pods -n a --as=system:serviceaccount:a:robot", "get pods -n b --as=system:serviceaccount:a:robot", "get pods x1 -n a --as=a-reader -o name", "get nodes --as=reader -o name", "get secrets -n a --as=reader",
    "auth whoami --as=reader --as-group=team:blue --as-uid=7 -o yaml", "auth whoami -o yaml", "auth can-i list pods -A", "auth can-i list pods -A --as=reader", "auth can-i list pods -n b --as=nobody --as-group=team:blue",
    "auth can-i create pods -n a --as=reader", "auth can-i get /version", "auth can-i get /metrics")]
COMMANDS += [(user, command) for user in ("reader", "a-reader", "a-one-name", "broken") for command in (
    "get pods -n a", "get pods -A", "get pods -n b", "get pod x1 -n a -o name", "get pods -n a --field-selector=metadata.name=x1 -o name", "get pods -n a --field-selector=metadata.name=x2", "get widgets -n a", "get secrets -A",
    "auth can-i list pods -n a", "auth can-i watch pods -A -q", "auth can-i --list -n a", "auth whoami")]
COMMANDS += [("unknown", command) for command in ("get pods -n a", "auth whoami", "auth can-i list pods", "get pods --as=reader")]
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
AGES = re.compile(r"(?<=\s)(?:\d+[smhd])+(?=\s|$)")
KLOG = re.compile(r"^E\d{4} .*?\d+ (\w+\.go)", re.M)


class Side:
    """kubectl with one endpoint."""

    def __init__(self, stack, kubectl, name, endpoint):
        self.kubectl, self.pki, self.cache, self.url = kubectl, stack.pki, stack.state / f"kubectl-{name}", endpoint.url()
        self.token = lambda user: stack.credentials.tokens.get(user, "nope")
        (stack.pki / "kubeconfig-empty").write_text("apiVersion: v1\nkind: Config\n")

    def say(self, user, command):
        args = [self.kubectl, "--kubeconfig", str(self.pki / "kubeconfig-empty"), "--cache-dir", f"{self.cache}-{user}", "--server", self.url, "--certificate-authority", str(self.pki / "ca.crt"), "--token", self.token(user)]
        done = subprocess.run([*args, *command.split(" ")], capture_output=True, text=True, timeout=60)
        out = f"exit {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}"
        out = KLOG.sub(r"E \1", AGES.sub("AGE", TIMES.sub("TIME", out.replace(self.url.split("//")[1], "SERVER"))))
        head, _, table = out.partition("Resources ")  # the rules of can-i --list have no order
        return f"{head}Resources {sorted(table.splitlines())}" if table else out
