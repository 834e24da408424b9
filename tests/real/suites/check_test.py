"""What `kube-fanout check` says of a real API server, before a gateway is there and after."""
import json
import os
import subprocess

import pytest

from . import fixtures
from .stack import ADMIN_CONTEXT, Stack

# What a client sees of a gateway, and its admin port.
AFTERWARDS = ("gateway", "live", "admin")
# The stack has one API server, callers of their own, and a gateway without a folder or peers, which may list everything.
ABSENT = ("rights-impersonate", "state-space", "handover-rights", "handover-peers", "rights-shared", "unfiltered-lists")


def ask(stack, context, *flags):
    """(exit code, {name of a check: what it says})"""
    cert, key = stack.certificate()
    command = [stack.gateway, "check", "-o", "json", "--kubeconfig", str(stack.pki / f"kubeconfig-{stack.api_port}"), "--context", context,
               "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key), *flags]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=200)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"check ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)["checks"]}


def levels(said, *wanted, of=None):
    """The checks with one of these levels, with their messages."""
    chosen = of or (lambda _: True)
    return "\n".join(f"{name}: {one['level']}: {one['message']}" for name, one in said.items() if one["level"] in wanted and chosen(one))


def after(stack, kind):
    _, admin = stack.gateway_ports[kind]
    endpoint = stack.tls if kind == "tls" else stack.plain
    flags = ["--gateway", f"{'https' if kind == 'tls' else 'http'}://127.0.0.1:{endpoint.port}", "--gateway-admin", f"http://127.0.0.1:{admin}",
             "--gateway-token-file", str(stack.pki / "admin.token"), "--auth", "none"]
    return flags + (["--gateway-ca-file", str(stack.pki / "ca.crt")] if kind == "tls" else [])


@pytest.mark.skipif(os.environ.get("GATEWAY") == "direct", reason="there is no gateway")
def test_it_finds_what_is_there_and_what_is_missing(check, during):
    with during(Stack("check", fixtures.with_widgets)) as stack:
        api = fixtures.Api(stack.server)
        for i in range(5):
            api.create(fixtures.pods("default"), fixtures.pod(f"p{i}"))
        for auth in ("review", "self-check", "rbac", "none"):
            code, said = ask(stack, ADMIN_CONTEXT, "--pre", "--auth", auth)
            check(f"before, --auth {auth}: nothing fails", code == 0 and not levels(said, "failure"), levels(said, "failure"))
            later = levels(said, "ok", "warning", "failure", of=lambda one: one["category"] in AFTERWARDS)
            check(f"before, --auth {auth}: nothing is said of a gateway", not later, later)
            if auth == "review":
                left = levels(said, "skipped", of=lambda one: one["category"] not in AFTERWARDS and one["name"] not in ABSENT)
                check("before, --auth review: all is looked at that is there", not left, left)
        for kind in ("plain", "tls"):
            code, said = ask(stack, ADMIN_CONTEXT, *after(stack, kind))
            check(f"after, {kind}: nothing fails", code == 0 and not levels(said, "failure"), levels(said, "failure"))
            missed = levels(said, "warning", "failure", of=lambda one: one["category"] in ("live", "admin"))
            check(f"after, {kind}: lists, watches and the admin port are as they should be", not missed, missed)
            seen = [name for name, one in said.items() if one["category"] == "live" and one["level"] == "ok"]
            check(f"after, {kind}: lists and watches were compared", len(seen) >= 3, levels(said, "ok", "skipped"))
        code, said = ask(stack, "denied", "--pre", "--auth", "review")
        fails = [name for name, one in said.items() if one["level"] == "failure"]
        check("without rights: rights-resources fails, with a hint", code == 1 and "rights-resources" in fails and said["rights-resources"].get("hint"), fails)
        stack.stop_gateways()
        code, said = ask(stack, ADMIN_CONTEXT, *after(stack, "tls"))
        fails = [name for name, one in said.items() if one["level"] == "failure"]
        check("without a gateway: gateway-ready fails, and nothing of upstream", code == 1 and "gateway-ready" in fails and not levels(said, "failure", of=lambda one: one["category"] == "upstream"), fails)
        stack.restart_gateways()
        stack.kill_server()
        code, said = ask(stack, ADMIN_CONTEXT, "--pre", "--auth", "review")
        fails = [name for name, one in said.items() if one["level"] == "failure"]
        check("without an API server: upstream-ready fails", code == 1 and "upstream-ready" in fails, fails)
        stack.start_server()
