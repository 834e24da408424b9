"""Random roles, bindings and access requests: the server's SubjectAccessReview, the gateway's RBAC decision, and lists through the
gateway."""
import http.client
import json
import os
import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

from .. import fixtures, tools
from ..stack import ROOT
from .identities import Who
from .world import NAMESPACES, RBAC, binding, collection

SEED = int(os.environ.get("TRUST_SEED", "12"))
QUESTIONS = 6000
LISTS = 300
ASKING = 4  # connections
RECORDED = 400
# The server names the first binding that it meets in a Go map. The map's iteration starts at a random one of some 256 slots, so of two
# bindings in adjacent slots the second comes first once in 256 times.
AGAIN = 5000
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "*"]
RESOURCES = ["pods", "configmaps", "widgets", "nodes", "secrets", "pods/log", "pods/status", "widgets/status", "*/status", "*/log", "pods/*", "*", "userextras/scopes", "userextras/acme.com/project"]
GROUPS = ["", "example.com", "apps", "authentication.k8s.io", "*"]
URLS = ["/version", "/healthz", "/healthz/*", "/api*", "/apis/*", "*", "/logs/**", "/metrics"]
NAMES = ["x1", "x2", "node-0", "*", ""]
USERS = [f"u{i}" for i in range(12)] + ["system:serviceaccount:a:one", "system:serviceaccount:b:one", "system:serviceaccount:a:two", "odd \"<ü>\\"]
TEAMS = [f"g{i}" for i in range(8)] + ["system:serviceaccounts:a"]


class Dice:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, things, most):
        return self.random.sample(things, self.random.randint(1, min(most, len(things))))

    def one(self, things):
        return self.random.choice(things)

    def often(self, share):
        return self.random.random() < share


def a_rule(dice, paths):
    if paths and dice.often(0.25):
        return {"verbs": dice.some(["get", "post", "*", "head"], 2), "nonResourceURLs": dice.some(URLS, 3)}
    names = {"resourceNames": dice.some(NAMES, 2)} if dice.often(0.25) else {}
    return {"verbs": dice.some(VERBS, 3), "apiGroups": dice.some(GROUPS, 2), "resources": dice.some(RESOURCES, 3), **names}


def a_subject(dice):
    kind = dice.one(["User", "User", "Group", "Group", "ServiceAccount"])
    if kind == "ServiceAccount":
        return {"kind": kind, "name": dice.one(["one", "two"]), **({"namespace": dice.one(NAMESPACES)} if dice.often(0.7) else {})}
    return {"kind": kind, "name": dice.one(USERS if kind == "User" else TEAMS)}


def make(dice):
    """(path of the collection, object) of roles and bindings."""
    group = "rbac.authorization.k8s.io/v1"
    for i in range(30):
        yield f"{RBAC}/clusterroles", {"apiVersion": group, "kind": "ClusterRole", "metadata": {"name": f"r{i}"}, "rules": [a_rule(dice, True) for _ in range(dice.random.randint(0, 3))]}
    for namespace in NAMESPACES:
        for i in range(15):  # some have the names of cluster roles
            yield collection(namespace, "roles"), {"apiVersion": group, "kind": "Role", "metadata": {"name": f"r{i}", "namespace": namespace}, "rules": [a_rule(dice, False) for _ in range(dice.random.randint(0, 3))]}
    for i in range(60):
        namespace = dice.one([None, *NAMESPACES])
        kind = "ClusterRole" if namespace is None else dice.one(["Role", "ClusterRole"])
        number = dice.random.randint(0, 33 if kind == "ClusterRole" else 16)  # the last ones do not exist
        one = binding(namespace, f"random-{i}", (kind, f"r{number}"), [a_subject(dice) for _ in range(dice.random.randint(1, 4))])
        one["metadata"].update({"namespace": namespace} if namespace else {})
        yield collection(namespace, "rolebindings" if namespace else "clusterrolebindings"), one


def fill(api):
    """Stores them before the gateways start."""
    for path, thing in make(Dice(SEED)):
        api.create(path, thing)


def a_user(dice):
    return dice.one(USERS), dice.random.sample(TEAMS, dice.random.randint(0, 3)) + (["system:authenticated"] if dice.often(0.5) else [])


def a_question(dice):
    user, teams = a_user(dice)
    spec = {"user": user, "groups": teams}
    if dice.often(0.15):
        return {**spec, "nonResourceAttributes": {"verb": dice.one(["get", "post", "head", "put"]), "path": dice.one(["/version", "/healthz", "/healthz/ping", "/api", "/api/v1", "/apis", "/apis/x", "/metrics", "/logs/", "/logs/*", "", "/nope"])}}
    resource, _, part = dice.one(["pods", "pods", "configmaps", "widgets", "nodes", "secrets", "pods/log", "pods/status", "widgets/status", "nopes", "userextras/scopes", "userextras/acme.com/project"]).partition("/")
    on = {"verb": dice.one([*VERBS, "list", "watch", "list", "watch"]), "group": dice.one(["", "", "example.com", "apps", "authentication.k8s.io"]), "version": dice.one(["v1", "*", ""]), "resource": resource,
          "subresource": part, "namespace": dice.one(["", *NAMESPACES, *NAMESPACES, "c"]), "name": dice.one(["", "", "x1", "x2", "node-0", "*"])}
    return {**spec, "resourceAttributes": on}


class Judge:
    """The server's SubjectAccessReview, on one connection per thread."""

    def __init__(self, stack):
        self.stack, self.local = stack, threading.local()

    def ask(self, spec):
        """(allowed, reason)."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection("127.0.0.1", self.stack.api_port, context=self.stack.bare.tls, timeout=30)
        body = json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
        self.local.connection.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body, {"Content-Type": "application/json", "Authorization": f"Bearer {self.stack.token}"})
        answer = self.local.connection.getresponse()
        review = json.loads(answer.read())
        if answer.status != 201:
            raise RuntimeError(f"SubjectAccessReview {spec}: {review}")
        return review["status"].get("allowed", False), ordered(review["status"].get("reason", ""))


def ordered(reason):
    """The reason with the missing roles sorted, because the server names them in random order."""
    if reason.startswith("RBAC: [") and reason.endswith("]"):
        return f"RBAC: [{', '.join(sorted(reason[len('RBAC: ['):-1].split(', ')))}]"
    return reason


def answers(judge, questions):
    with ThreadPoolExecutor(ASKING) as pool:
        return list(pool.map(judge.ask, questions))


def stored(api):
    """The server's contents: [role], [binding], in list order."""
    get = lambda plural: [{**item, "kind": kind} for kind, item in ((plural[1], i) for i in api.get(f"{RBAC}/{plural[0]}")["items"])]
    roles = get(("clusterroles", "ClusterRole")) + get(("roles", "Role"))
    return roles, get(("clusterrolebindings", "ClusterRoleBinding")) + get(("rolebindings", "RoleBinding"))


def compare(check, stack):
    """Sends the access requests to both; the gateway's decision must be one that the server gives."""
    dice, judge = Dice(SEED + 1), Judge(stack)
    questions = [a_question(dice) for _ in range(QUESTIONS)]
    review = answers(judge, questions)
    allowed = sum(a for a, _ in review)
    check(f"random roles, seed {SEED}: of {QUESTIONS} questions the server allows some", QUESTIONS * 0.05 < allowed < QUESTIONS * 0.8, allowed)
    mistakes = [q for q, (a, reason) in zip(questions, review) if a != ("allowed by" in reason)]
    check("the server allows by a role, and by nothing else", not mistakes, mistakes[:3])
    executable = tools.needed(tools.integration_tests(), "cargo, for the gateway's own RBAC")
    roles, bindings = stored(fixtures.Api(stack.server))
    path = stack.state / "rbac-questions.json"
    path.write_text(json.dumps({"roles": roles, "bindings": bindings, "questions": questions}))
    done = subprocess.run([executable, "--exact", "rbac_answers::the_file_that_is_named_is_answered", "--nocapture"], env=dict(os.environ, RBAC_QUESTIONS=str(path)), capture_output=True, text=True, timeout=300)
    ours = [json.loads(line[len("answer "):]) for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert done.returncode == 0 and len(ours) == len(questions), f"{len(ours)} answers\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    wrong = []
    for question, (allows, reason), (we_allow, our_reason) in zip(questions, review, ours):
        if we_allow == allows and ordered(our_reason) == reason:
            continue
        possible = we_allow == allows and any(judge.ask(question) == (we_allow, ordered(our_reason)) for _ in range(AGAIN))
        if not possible:
            wrong.append(f"{question}\n  server:  {allows} {reason}\n  gateway: {we_allow} {our_reason}")
    check(f"the gateway's RBAC decides {QUESTIONS} random questions as the server, with its reasons", not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:10]))
    if os.environ.get("TRUST_RECORD") and not wrong:
        record(judge, roles, bindings, list(zip(questions, ours)))


def record(judge, roles, bindings, answered):
    """TRUST_RECORD=tests/it/rbac_answers/recorded.json writes some requests with the server's decisions, for the test without a server."""
    plain = lambda thing: {k: v for k, v in thing.items() if k in ("kind", "rules", "roleRef", "subjects")} | {"metadata": {k: v for k, v in thing["metadata"].items() if k in ("name", "namespace")}}
    lines = lambda things: ",\n".join(json.dumps(t, ensure_ascii=False) for t in things)
    some, own = [], lambda things: [plain(t) for t in things if "kubernetes.io/bootstrapping" not in t["metadata"].get("labels", {})]
    for question, ours in answered:
        said = [judge.ask(question) for _ in range(5)] if len(some) < RECORDED else []
        reasons = {reason for _, reason in said} | {ordered(ours[1])}
        if said and not any("system:" in reason for reason in reasons):  # decided by Kubernetes' own default roles, which are left out
            some.append({**question, "allowed": said[0][0], "reasons": sorted(reasons)})
    text = f'{{"roles": [\n{lines(own(roles))}\n], "bindings": [\n{lines(own(bindings))}\n], "questions": [\n{lines(some)}\n]}}\n'
    (ROOT / os.environ["TRUST_RECORD"]).write_text(text, encoding="utf-8")


def lists(a_list, a_watch):
    """Lists and watches of random users, which a front proxy names."""
    dice = Dice(SEED + 2)
    for i in range(LISTS):
        user, teams = a_user(dice)
        user = user if user.isascii() else "u0"
        who = Who(f"random {i}, {user} of {','.join(teams)}", [("X-Remote-User", user), *[("X-Remote-Group", t) for t in teams]], "proxy")
        kind, namespace = dice.one(["pods", "configmaps", "widgets", "nodes", "secrets"]), dice.one([None, *NAMESPACES])
        name = {"fieldSelector": f"metadata.name={dice.one(['x1', 'x2', 'node-0'])}"} if dice.often(0.3) else {}
        yield (a_watch if dice.often(0.2) else a_list)(who, kind, namespace, f" {name.get('fieldSelector', '')}", **name)
