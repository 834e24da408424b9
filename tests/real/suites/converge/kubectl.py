"""kubectl at one endpoint."""
import subprocess


class Kubectl:
    def __init__(self, program, stack, endpoint):
        name = f"kubectl-{endpoint.port}"
        self.program, self.name, self.url = program, endpoint.name, endpoint.url()
        self.config, self.cache, self.namespace = stack.kubeconfig(name, self.url), stack.state / name, f"ns-{endpoint.port}"

    def args(self, command, own_namespace=False):
        """The words of a command; in a namespace that nobody else writes to, if OWN_NAMESPACE."""
        return [self.program, "--kubeconfig", str(self.config), "--cache-dir", str(self.cache), *(["-n", self.namespace] if own_namespace else []), *command.split(" ")]

    def run(self, command, stdin=None, own_namespace=False):
        return subprocess.run(self.args(command, own_namespace), input=stdin, capture_output=True, text=True, timeout=60)
