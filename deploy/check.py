"""Checks manifests, Helm chart and examples without a cluster; check.sh installs what this needs.

* Every object is valid for each supported version of Kubernetes, strictly: those of the manifests, of the examples, and of the chart with
  each set of values in chart/tests and examples.
* The request for a certificate of the cluster's authority has the subject and the names that it needs.
* The gateway accepts every configuration and every flag among them. The bounds of settings in the chart are the gateway's.
* The chart makes the same objects as the manifests, and kustomize those of the manifests.
* The Service of injection leads to the pods of the chart and of the manifests, and not to the publisher.
* The chart refuses each set of values in chart/tests/refused with a message that names the value, and a wrong type of any value,
  or nothing in place of one.
* A Service that can be reached from outside the cluster has the port for clients only.
* With an autoscaler the chart keeps the number of replicas that the cluster has.
* A changed configuration rolls the chart's pods, except for the switches, and reaches those that run.
* The notes after an installation name what the pods mount.
* The chart's README lists every value with its default, the schema knows exactly these values, and the templates use them.
* Scraping keeps the gateway's own labels.
* The chart's alerts and dashboards are those of this repository, and the metrics that it names exist.
"""

import argparse
import base64
import concurrent.futures
import contextlib
import copy
import functools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import jsonschema
import referencing
import yaml
from kubernetes_validate import utils

DEPLOY = pathlib.Path(__file__).resolve().parent
CHART = DEPLOY / "chart" / "kube-fanout"
VALUE_SETS = DEPLOY / "chart" / "tests"
# From the oldest to the newest API server that the manifests support.
KUBERNETES_VERSIONS = [f"1.{minor}" for minor in range(32, 38)]
# Kinds that a part of them has, from this version on.
SINCE = {"MutatingAdmissionPolicy": "1.36", "MutatingAdmissionPolicyBinding": "1.36"}
# Kinds of other projects and files of clients, for which Kubernetes has no schema.
FOREIGN = {"PodMonitor", "PrometheusRule", "Certificate", "Issuer", "Config", "KubeProxyConfiguration"}
# What the Prometheus operator adds to each series, over labels of the same name unless honorLabels is set.
OPERATOR_LABELS = {"job", "namespace", "pod", "instance", "container", "endpoint"}
FEWEST_VALUE_SETS, FEWEST_REFUSED = 12, 8

failures = []


def fail(place, message):
    failures.append(f"{place}: {message}")


class Strict(yaml.SafeLoader):
    """Reads YAML as an API server does that validates fields strictly: a key twice is an error."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        for key in sorted({key for key in keys if keys.count(key) > 1}):
            fail("yaml", f"{key} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep)


def documents(text):
    return [item for item in yaml.load_all(text, Strict) if item]


def name_of(item):
    return f"{item['kind']}/{item.get('metadata', {}).get('name', '')}"


# The schemas of Kubernetes


@functools.cache
def definitions(folder):
    contents = utils.schema_contents(f"kubernetes-json-schema/{folder}/_definitions.json", folder)
    return referencing.Resource.from_contents(contents) @ referencing.Registry()


@functools.cache
def validator(kind, api_version, version):
    release = [known for known in utils.all_versions() if utils.major_minor(known) == version][-1]
    folder = f"v{release}-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    try:
        schema = utils.schema_contents(f"kubernetes-json-schema/{folder}/{kind.lower()}-{group}.json", version)
    except FileNotFoundError:
        return None
    registry = referencing.Resource.from_contents(schema) @ definitions(folder)
    return jsonschema.Draft202012Validator(schema, registry=registry)


def problems(item):
    """What is wrong with an object, for each version of Kubernetes."""
    name = item.get("metadata", {}).get("name", "")
    if item["kind"] == "Service" and not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        yield f"{name_of(item)}: is not a name for a Service"
    if item["kind"] in FOREIGN:
        return
    for version in KUBERNETES_VERSIONS[KUBERNETES_VERSIONS.index(SINCE.get(item["kind"], KUBERNETES_VERSIONS[0])):]:
        check = validator(item["kind"], item["apiVersion"], version)
        if check is None:
            yield f"{name_of(item)}: Kubernetes {version} has no {item['apiVersion']} {item['kind']}"
        else:
            for error in check.iter_errors(item):
                field = ".".join(str(part) for part in error.path)
                yield f"{name_of(item)}: Kubernetes {version}: {field}: {error.message[:300]}"


@functools.cache
def metric_labels():
    page = (DEPLOY.parent / "docs" / "METRICS.md").read_text()
    rows = re.findall(r"^\| `kube_fanout_\w+` \| \w+ \|([\w, ]*)\|", page, re.M)
    return {label for row in rows for label in re.findall(r"\w+", row)}


def check_scraping(place, item):
    lost = sorted(metric_labels() & OPERATOR_LABELS)
    for scrape in item["spec"]["podMetricsEndpoints"] if item["kind"] == "PodMonitor" else []:
        if lost and not scrape.get("honorLabels"):
            fail(place, f"{name_of(item)}: honorLabels is not set, so the operator overwrites the label {', '.join(lost)}")


validated = set()


def validate(place, items):
    for item in items:
        check_scraping(place, item)
        # Most objects are the same with many sets of values.
        text = json.dumps(item, sort_keys=True)
        if text not in validated:
            validated.add(text)
            for problem in problems(item):
                fail(place, problem)


# Programs


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def render(values):
    """The output of helm template, or its error. The file may begin with flags for helm: # --kube-version=1.33.0"""
    flags = re.findall(r"^# (--\S+)$", values.read_text(), re.M)
    release = [] if any(flag.startswith("--name-template") for flag in flags) else ["kube-fanout"]
    done = run("helm", "template", *release, CHART, "--namespace", "kube-fanout", "--values", values, *flags)
    return (done.stdout, None) if done.returncode == 0 else (None, done.stderr.strip())


configured = {}
# After the drain: CHECKPOINT_WRITE_TIME and AUDIT_WRITE_TIME of src/gateway/src/lib.rs.
WRITE_SECONDS = 20 + 5
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def check_pod(place, pod, settings):
    """What the gateway cannot see in its configuration alone."""
    container = pod["containers"][0]
    config = next(word.removeprefix("--config=") for word in container["args"] if word.startswith("--config="))
    for path in filter(None, [config, settings.get("kubeconfig")]):
        mount = next((mount for mount in container["volumeMounts"] if path.startswith(f"{mount['mountPath']}/")), None)
        if mount is None or "subPath" in mount:
            fail(place, f"{path} is not in a mounted folder, so the kubelet does not update it")
    drain = sum(int(count) * UNITS[unit] for count, unit in re.findall(r"(\d+)(ms|s|m|h)", settings["drainTimeout"]))
    if pod["terminationGracePeriodSeconds"] <= drain:
        fail(place, "the pod is killed before its drain ends")
    if {"stateDir", "auditLogPath"} & settings.keys() and pod["terminationGracePeriodSeconds"] < drain + WRITE_SECONDS:
        fail(place, "the pod is killed before the last checkpoints and audit events are written")
    state = next((volume for volume in container["volumeMounts"] if volume["name"] == "state"), None)
    if state and "fsGroup" in pod["securityContext"] and not any(volume["name"] == "state" for volume in pod["volumes"]):
        # The kubelet opens a claimed volume to the group of the pod, and the gateway refuses such a directory.
        if not settings["stateDir"].startswith(state["mountPath"] + "/"):
            fail(place, "the directory of the checkpoints is the volume itself")
        if pod["securityContext"].get("fsGroupChangePolicy") != "OnRootMismatch":
            fail(place, "each start opens the directory of the checkpoints to the group")


def configurations(place, items):
    """Notes what a gateway among these objects is started with."""
    files = {name_of(item): item.get("data", {}) for item in items if item["kind"] == "ConfigMap"}
    for item in items:
        pod = item.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            if container["name"] == "gateway":
                file = files[f"ConfigMap/{item['metadata']['name']}"]["gateway.yaml"]
                flags = [word for word in container["args"][1:] if not word.startswith("--config=")]
                check_pod(place, pod, yaml.safe_load(file))
                configured.setdefault((file, *flags), place)


def accepted_by(gateway, folder, index, file, flags):
    path = pathlib.Path(folder) / f"{index}.yaml"
    path.write_text(file)
    # Not `config check`, which reads the files that settings name: those are in the pod.
    return run(gateway, "config", "print", "--config", path, *flags)


def check_configurations(gateway):
    if not gateway:
        print("manifests: the gateway is not built, so it has not read the configurations (cargo build)")
        return
    with tempfile.TemporaryDirectory() as folder:
        for index, ((file, *flags), place) in enumerate(configured.items()):
            done = accepted_by(gateway, folder, index, file, flags)
            if done.returncode != 0:
                fail(place, f"the gateway refuses the configuration: {done.stderr.strip()}")
        # Prove that the check can fail.
        if accepted_by(gateway, folder, "wrong", "apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\nlisten: x\n", []).returncode == 0:
            fail("check.py", "the gateway accepts a wrong configuration")
    print(f"manifests: {len(configured)} configurations accepted by the gateway")
    check_bounds(gateway)


def chart_bounds():
    """The least and the greatest value of each setting that has bounds in the chart; of times in milliseconds, of lengths in bytes."""
    text = (CHART / "templates" / "_bounds.tpl").read_text()
    powers = {"Ki": 1 << 10, "Mi": 1 << 20, "Ti": 1 << 40} | {unit: round(1000 * seconds) for unit, seconds in UNITS.items()}
    for name, *bounds in re.findall(r'"(\w+)" \(list "(\w+)" "(\w+)"\)', text):
        unit = "ms" if bounds[0].endswith("s") else ""
        yield name, unit, *(int(re.match(r"\d+", bound)[0]) * powers[re.sub(r"\d+", "", bound)] for bound in bounds)
    schema = json.loads((CHART / "values.schema.json").read_text())
    for name, known in schema["properties"]["config"]["properties"].items():
        # drainDelay is a part of drainTimeout.
        if known.get("$ref") in {"#/$defs/duration", "#/$defs/length"} and name != "drainDelay" and f'"{name}" (list' not in text:
            fail("chart/kube-fanout/templates/_bounds.tpl", f"config.{name} has no bounds")
        if known.get("type") == "integer" and "maximum" in known:
            yield name, "", known["minimum"], known["maximum"]


# What the settings with bounds need.
COMPANIONS = """
apiVersion: kube-fanout.dev/v1alpha1
kind: GatewayConfiguration
listen: 0.0.0.0:8443
tlsCert: /tls.crt
tlsKey: /tls.key
inCluster: true
stateDir: /state
handoverFrom: https://other.example.com
handoverTokenFile: /token
handoverCaFile: /ca.crt
"""


def check_bounds(gateway):
    """The gateway accepts the bounds of the chart, and nothing beyond them."""
    bounds = list(chart_bounds())
    companions = yaml.safe_load(COMPANIONS)

    def refusal(index, settings):
        file = yaml.safe_dump(companions | settings)
        return accepted_by(gateway, folder, index, file, []).stderr.strip()

    def text(unit, size):
        return f"{size}{unit}" if unit else size

    def beyond(bound):
        name, unit, least, greatest = bound
        for size in {max(least - 1, 0), greatest + 1} - {least}:
            # 0 turns some settings off.
            if size and not refusal(f"{name}-{size}", {name: text(unit, size)}):
                fail("chart/kube-fanout", f"the gateway accepts {text(unit, size)} for config.{name}, and the chart does not")

    with tempfile.TemporaryDirectory() as folder:
        for end in (2, 3):
            error = refusal(end, {bound[0]: text(bound[1], bound[end]) for bound in bounds})
            if error:
                fail("chart/kube-fanout", f"the gateway refuses a bound of the chart: {error}")
        in_parallel(beyond, bounds)
    print(f"manifests: bounds of {len(bounds)} settings are the gateway's")


# The chart against the manifests

# Helm's own labels and annotations.
HELM = {f"app.kubernetes.io/{name}" for name in ("instance", "version", "part-of", "managed-by")} | {"helm.sh/chart", "checksum/configuration"}


def plain(value):
    """The object without what only Helm adds, so that objects from both sides can be compared."""
    if isinstance(value, dict):
        pruned = {key: plain(entry) for key, entry in value.items() if key not in HELM}
        pruned = {key: entry for key, entry in pruned.items() if (key, entry) != ("annotations", {})}
        return {key: yaml.safe_load(entry) if key == "gateway.yaml" else entry for key, entry in pruned.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value


def compare(place, expected, found):
    expected, found = ({name_of(item): plain(item) for item in items} for items in (expected, found))
    for name in sorted(expected.keys() | found.keys()):
        if name not in expected or name not in found:
            fail(place, f"{name} is only {'in the chart' if name in found else 'here'}")
        elif expected[name] != found[name]:
            fail(place, f"{name} differs from the chart's:\n  here  {json.dumps(expected[name], sort_keys=True)}\n  chart {json.dumps(found[name], sort_keys=True)}")


def read_all(folder):
    return [item for path in sorted(folder.glob("*.yaml")) for item in documents(path.read_text())]


def check_manifests(rendered):
    manifests = read_all(DEPLOY / "manifests")
    # Helm creates the namespace itself.
    compare("deploy/manifests", [item for item in manifests if item["kind"] != "Namespace"], rendered["defaults"])
    for option in ("certificate", "impersonation", "podmonitor"):
        # What the option adds to the chart's objects.
        base = {json.dumps(plain(item), sort_keys=True) for item in rendered["defaults"]}
        added = [item for item in rendered[option] if json.dumps(plain(item), sort_keys=True) not in base]
        added = [item for item in added if item["kind"] not in {"Deployment", "ConfigMap"}]
        compare(f"deploy/optional/{option}", documents((DEPLOY / "optional" / f"{option}.yaml").read_text()), added)
    return manifests


# Kustomize


def kustomize(folder):
    done = run("kubectl", "kustomize", folder)
    if done.returncode != 0:
        fail(folder, done.stderr.strip())
        return []
    return documents(done.stdout)


def check_kustomize(manifests):
    def in_order(items):
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))

    if in_order(kustomize(DEPLOY)) != in_order(manifests):
        fail("deploy/kustomization.yaml", "does not build the objects of deploy/manifests")
    # The overlay that the page shows. It stands outside this folder, because kustomize refuses an overlay inside its base.
    page = (DEPLOY / "README.md").read_text()
    overlay = re.search(r"```yaml\n(apiVersion: kustomize[^`]*)```", page)[1]
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.relpath(DEPLOY, os.path.realpath(folder))
        pathlib.Path(folder, "kustomization.yaml").write_text(overlay.replace("../kube-fanout/deploy", base))
        items = kustomize(folder)
    validate("deploy/README.md", items)
    configurations("deploy/README.md", items)
    if len(items) != len(manifests) or in_order(items) == in_order(manifests):
        fail("deploy/README.md", "the overlay changes nothing")
    print(f"manifests: kustomize builds the base, and an overlay of {len(items)} objects")


# Values


def leaves(values, schema, prefix=""):
    """Each value by its full name. A map without a list of its own keys in the schema is one value."""
    for key, value in values.items():
        known = schema.get("properties", {}).get(key, {})
        if isinstance(value, dict) and known.get("properties") and prefix + key not in {"config", "resources"}:
            yield from leaves(value, known, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def names_in(schema, prefix=""):
    for key, known in schema.get("properties", {}).items():
        if known.get("properties") and prefix + key not in {"config", "resources"}:
            yield from names_in(known, f"{prefix}{key}.")
        else:
            yield prefix + key


# A template writes this object out as it is.
WHOLE = "tls.certManager.issuerRef."


def check_used(written):
    """Templates name each value, and no others. A template that opens an object by `with` names what is in it by the last word only."""
    texts = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    paths, words = set(re.findall(r"Values[.]([A-Za-z.]+)", texts)), set(re.findall(r"[.]([A-Za-z]+)", texts))
    known = {".".join(name.split(".")[:length]) for name in written for length in range(1, name.count(".") + 2)}
    for path in sorted(paths):
        # Below config and resources the schema, or Kubernetes, knows the names.
        if path not in known and path.partition(".")[0] not in {"config", "resources", "podSecurityContext"}:
            fail("chart/kube-fanout/templates", f"there is no value {path}")
    for name in sorted(written):
        if name.rpartition(".")[2] not in words and not name.startswith(WHOLE):
            fail("values.yaml", f"no template uses {name}")


def check_values():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    written = dict(leaves(values, schema))
    known = set(names_in(schema)) - {"global"}
    check_used(written)
    for name in sorted(written.keys() ^ known):
        fail("values.schema.json", f"{name} is only in {'values.yaml' if name in written else 'the schema'}")
    # The gateway has read a file with all of them.
    every = yaml.safe_load((VALUE_SETS / "every-setting.yaml").read_text())["config"]
    # Settings that were removed are refused by a template, which names what replaces them.
    settings = {name for name, known in schema["properties"]["config"]["properties"].items() if known.get("description") != "removed"}
    for name in sorted(every.keys() ^ settings):
        fail("values.schema.json", f"config.{name} is only in {'chart/tests/every-setting.yaml' if name in every else 'the schema'}")
    table = {}
    for line in (CHART / "README.md").read_text().splitlines():
        row = re.match(r"\| `([A-Za-z.]+)` \| (?:`(.*?)`)? ?\| \S", line)
        if row:
            table[row[1]] = row[2]
    for name in sorted(written.keys() | table.keys()):
        if name not in written or name not in table:
            fail("chart/kube-fanout/README.md", f"{name} is only in {'values.yaml' if name in written else 'the table'}")
            continue
        given = table[name]
        if given is not None and given.startswith("…"):
            continue
        default = "" if given is None else yaml.safe_load(given)
        if default != written[name]:
            fail("chart/kube-fanout/README.md", f"the default of {name} is {json.dumps(written[name])}, not {given}")


def check_impersonation(items):
    """A role that names groups alone lets the gateway impersonate users too: no request impersonates a group without a user."""
    role = next(item for item in items if item["kind"] == "ClusterRole" and item["metadata"]["name"].endswith("-impersonation"))
    names = {resource: rule.get("resourceNames") for rule in role["rules"] for resource in rule["resources"]}
    if names.get("users", []) is not None or names.get("groups") != ["system:nodes"]:
        fail("examples/values/kubelets.yaml", "the gateway cannot impersonate kubelets")


def check_rolls():
    """A change of any file of the ConfigMap rolls the pods, unless it is one of the switches, for which pods must stay."""
    tree = DEPLOY / "examples" / "values" / "tree-second-tier.yaml"
    others = ("upstream.gateway.url=https://other.example.com", "config.logLevel=debug")
    for setting in (*others, "config.serving=passthrough", "config.relayPercent=10"):
        sums = set()
        for options in ([], ["--set", setting]):
            done = run("helm", "template", "kube-fanout", CHART, "--values", tree, *options)
            sums.add(next(iter(re.findall(r"checksum/configuration: (\w+)", done.stdout)), done.stderr))
        if len(sums) != 1 + (setting in others):
            fail(CHART, f"pods {'stay' if setting in others else 'are replaced'} after a change of {setting.partition('=')[0]}")


def check_notes():
    """The Secret that the notes tell the operator to make has every file that the pods mount."""
    for option in ("handover.enabled=false", "handover.enabled=true"):
        done = run("helm", "install", "kube-fanout", CHART, "--namespace=kube-fanout", "--dry-run=client", "--set", option)
        command = next(iter(re.findall(r"create secret .*", done.stdout)), "")
        # `create secret tls` has no option for an authority.
        for path in set(re.findall(r"/etc/kube-fanout/tls/(\S+)", done.stdout)):
            if path not in command:
                fail("chart/kube-fanout/templates/NOTES.txt", f"with {option}, the Secret has no {path}: {command or done.stderr}")


def check_refused():
    refused = sorted((VALUE_SETS / "refused").glob("*.yaml"))
    if len(refused) < FEWEST_REFUSED:
        fail(VALUE_SETS, f"only {len(refused)} sets of refused values")
    for path, (_, error) in zip(refused, in_parallel(render, refused)):
        expected = path.read_text().splitlines()[0].removeprefix("# ")
        if error is None:
            fail(path, "these values are not refused")
        elif expected not in error:
            fail(path, f"the message does not say {expected!r}: {error}")
    print(f"manifests: {len(refused)} sets of values refused")


# Of no type that a value has: scalars, objects, and lists of these are something else.
WRONG = [[0]]


def wrong_everywhere(schema):
    """The same wrong value in place of each value."""
    known = schema.get("properties")
    return {key: wrong_everywhere(part) for key, part in known.items() if key != "global"} if known else WRONG


def check_types():
    schema = json.loads((CHART / "values.schema.json").read_text())
    names = sorted(set(names_in(schema)) - {"global"})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "wrong.yaml")
        path.write_text(yaml.safe_dump(wrong_everywhere(schema)))
        _, error = render(path)
    refused = set(re.findall(r"at '/([\w/]+)'", error or ""))
    for name in names:
        place = name.replace(".", "/")
        if not any(at == place or at.startswith(f"{place}/") for at in refused):
            fail("values.schema.json", f"a list of lists in place of {name} is not refused by its name")
    print(f"manifests: wrong types of {len(names)} values refused")


# Without it, the autoscaler does not look at the processor.
OPTIONAL = {"autoscaling.targetCPUUtilizationPercentage"}


def check_required():
    """Nothing in place of a value that has a default is refused, where a template would write it into an object."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    nothing, names = {}, []
    for name, default in leaves(values, schema):
        if isinstance(default, (str, int)) and not isinstance(default, bool) and default and name not in OPTIONAL and not name.startswith(WHOLE):
            *path, last = name.split(".")
            functools.reduce(lambda part, key: part.setdefault(key, {}), path, nothing)[last] = None
            names.append(name)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "nothing.yaml")
        path.write_text(yaml.safe_dump(nothing))
        _, error = render(path)
    for name in names:
        place, _, last = name.rpartition(".")
        at = f"at '{'/' + place.replace('.', '/') if place else ''}'"
        if not any(at in line and f"'{last}'" in line for line in (error or "").splitlines()):
            fail("values.schema.json", f"nothing in place of {name} is not refused")


def check_services(place, items):
    """Nothing but the port for clients can be reached from outside, and no port for operators or metrics is on the clients' Service."""
    for item in items:
        if item["kind"] == "Service" and not item["metadata"]["name"].endswith("-operators"):
            for port in item["spec"]["ports"]:
                if port["targetPort"] != "https":
                    fail(place, f"{name_of(item)}: has the port {port['targetPort']}")
        elif item["kind"] == "Service" and item["spec"].get("type", "ClusterIP") != "ClusterIP":
            fail(place, f"{name_of(item)}: can be reached from outside the cluster")


# Autoscaling


def get(url):
    with urllib.request.urlopen(url, timeout=5) as response:
        return json.load(response)


@contextlib.contextmanager
def api_server(gateway):
    """The embedded API server, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # Helm wants to know every kind of the chart.
    kinds = "poddisruptionbudgets.v1.policy=PodDisruptionBudget,horizontalpodautoscalers.v2.autoscaling=HorizontalPodAutoscaler"
    command = [gateway, "apiserver", f"--listen={address}", f"--extra-kinds={kinds}", "--objects=pods=1", "--churn=0", "--log-level=error"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError, ValueError):
                    get(f"http://{address}/version")
                    break
                time.sleep(0.1)
            yield f"http://{address}"
        finally:
            server.terminate()


def check_autoscaled(gateway, items):
    """An upgrade with an autoscaler keeps the replicas that the cluster has, and nothing sets another number."""
    workload = next(item for item in items if item["kind"] == "Deployment")
    if "replicas" in workload["spec"]:
        fail("chart/tests/autoscaled.yaml", "rendered without the cluster, the number of replicas fights the autoscaler")
    if not gateway:
        return
    with tempfile.TemporaryDirectory() as folder, api_server(gateway) as address:
        kubeconfig = pathlib.Path(folder, "kubeconfig")
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": address}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": ""}}],
            "current-context": "x",
        }))
        scaled = copy.deepcopy(workload)
        scaled["spec"]["replicas"] = 5
        # As an installation by Helm would have written it.
        scaled["metadata"]["annotations"] = {"meta.helm.sh/release-name": "kube-fanout", "meta.helm.sh/release-namespace": "kube-fanout"}
        request = urllib.request.Request(
            f"{address}/apis/apps/v1/namespaces/kube-fanout/deployments",
            data=json.dumps(scaled).encode(),
            headers={"Content-Type": "application/json"},
        )
        get(request)
        cluster = ["--dry-run=server", "--disable-openapi-validation", f"--kubeconfig={kubeconfig}", "--kube-version=1.36.0"]
        values = f"--values={VALUE_SETS / 'autoscaled.yaml'}"
        done = run("helm", "template", "kube-fanout", CHART, "--namespace=kube-fanout", values, *cluster)
        found = [item["spec"].get("replicas") for item in documents(done.stdout) if item["kind"] == "Deployment"]
        if found != [5]:
            fail("chart/tests/autoscaled.yaml", f"the upgrade sets {found} replicas instead of the autoscaler's 5: {done.stderr}")
            return
    print("manifests: an upgrade keeps the replicas of the autoscaler")


def in_parallel(function, arguments):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return list(pool.map(function, arguments))


# Alerts and dashboards


def check_files():
    for kind, pattern in (("alerts", "*.yaml"), ("dashboard", "*.json")):
        source, copies = DEPLOY / kind, CHART / "files" / kind
        names = {path.name for folder in (source, copies) for path in folder.glob(pattern)}
        for name in sorted(names):
            if (source / name).resolve() != copies / name:
                fail(source / name, f"is not a link to deploy/chart/kube-fanout/files/{kind}/{name}")


def check_monitoring(items):
    """Each file has become an object with its content."""
    rules = [item["spec"] for item in items if item["kind"] == "PrometheusRule"]
    for path in (CHART / "files" / "alerts").glob("*.yaml"):
        if yaml.safe_load(path.read_text()) not in rules:
            fail(path, "is not in the chart's PrometheusRule")
    texts = [text for item in items if item["kind"] == "ConfigMap" for text in item["data"].values()]
    for path in (CHART / "files" / "dashboard").glob("*.json"):
        if path.read_text().strip() not in [text.strip() for text in texts]:
            fail(path, "is not in the chart's ConfigMap")


def check_metrics():
    documented = set(re.findall(r"^\| `(kube_fanout_\w+)`", (DEPLOY.parent / "docs" / "METRICS.md").read_text(), re.M))
    for folder in (CHART, DEPLOY / "examples"):
        for path in folder.rglob("*"):
            # deploy/alerts and deploy/dashboard check their own files.
            if path.is_file() and CHART / "files" not in path.parents:
                for name in sorted(set(re.findall(r"kube_fanout_\w+", path.read_text())) - documented):
                    fail(path, f"there is no metric {name}")


def check_certificate():
    """The request keeps the rules of the signer kubernetes.io/kubelet-serving, and has the names of both ends."""
    script = DEPLOY / "inject" / "certificate.sh"
    printed = subprocess.run([script, "--print", "elsewhere"], check=True, capture_output=True, text=True, timeout=60).stdout
    request = documents(printed)[0]
    validate(script, [request])
    encoded = base64.b64decode(request["spec"]["request"])
    text = subprocess.run(["openssl", "req", "-noout", "-text", "-nameopt", "RFC2253"], check=True, capture_output=True, input=encoded, timeout=60).stdout.decode()
    for expected in ("CN=system:node:kube-fanout,O=system:nodes\n", "DNS:kubernetes.default.svc,", "DNS:kube-fanout-api.elsewhere.svc,"):
        if expected not in text:
            fail(script, f"the request has no {expected.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        kubectl = pathlib.Path(folder) / "kubectl"
        kubectl.write_text('#!/bin/sh\ncase "$*" in *" get secret "*) echo secret/kube-fanout-tls ;; *) exit 9 ;; esac\n')
        kubectl.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        for flags, code, what in (([], 1, "overwrites"), (["--replace"], 9, "does not replace")):
            if subprocess.run([script, *flags], env=environment, capture_output=True, timeout=60).returncode != code:
                fail(script, f"{what} a Secret that exists")
    print("manifests: the request for a certificate is one that its signer accepts")


def check_injection(manifests, rendered):
    """The chart does not make the objects of injection, so what they name must be in its pods."""
    objects = {name_of(item): item for item in read_all(DEPLOY / "inject")}
    service = objects["Service/kube-fanout-api"]["spec"]

    def leads_to(item):
        template = item["spec"]["template"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
        return service["selector"].items() <= template["metadata"]["labels"].items(), service["ports"][0]["targetPort"] in ports

    gateways = [item for items in (manifests, rendered["defaults"]) for item in items if item["kind"] == "Deployment"]
    if len(gateways) != 2 or any(leads_to(item) != (True, True) for item in gateways):
        fail("deploy/inject", "the Service kube-fanout-api does not lead to the gateways")
    if leads_to(objects["Deployment/kube-fanout-inject"])[0]:
        fail("deploy/inject", "the Service kube-fanout-api leads to the publisher")


def check_broken(manifests):
    """Proves that the validation can fail."""
    broken = copy.deepcopy(next(item for item in manifests if item["kind"] == "Deployment"))
    pod = broken["spec"]["template"]["spec"]
    pod["terminationGraceSeconds"] = pod.pop("terminationGracePeriodSeconds")
    if not list(problems(broken)):
        fail("check.py", "a misspelt field was not noticed")
    if not list(problems({"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "x"}})):
        fail("check.py", "a misspelt kind was not noticed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gateway", help="the gateway's program, which reads the configurations")
    arguments = parser.parse_args()

    lint = run("helm", "lint", "--strict", CHART)
    if lint.returncode != 0:
        fail("helm lint", lint.stdout + lint.stderr)

    sets = sorted(VALUE_SETS.glob("*.yaml")) + sorted((DEPLOY / "examples" / "values").glob("*.yaml"))
    if len(sets) < FEWEST_VALUE_SETS:
        fail(VALUE_SETS, f"only {len(sets)} sets of values")
    rendered = {}
    for path, (text, error) in zip(sets, in_parallel(render, sets)):
        if error is not None:
            fail(path, error)
        rendered[path.stem] = documents(text or "")
        validate(path, rendered[path.stem])
        configurations(path, rendered[path.stem])
        check_services(path, rendered[path.stem])
    print(f"manifests: the chart rendered with {len(sets)} sets of values")

    manifests = check_manifests(rendered)
    for folder in ("manifests", "optional", "relay", "inject", "examples/clients"):
        items = read_all(DEPLOY / folder)
        validate(f"deploy/{folder}", items)
        configurations(f"deploy/{folder}", items)
        check_services(f"deploy/{folder}", items)
    check_kustomize(manifests)
    check_certificate()
    check_injection(manifests, rendered)
    check_monitoring(rendered["monitoring"])
    check_files()
    check_metrics()
    check_values()
    check_impersonation(rendered["kubelets"])
    check_rolls()
    check_notes()
    check_refused()
    check_types()
    check_required()
    check_autoscaled(arguments.gateway, rendered["autoscaled"])
    check_broken(manifests)
    check_configurations(arguments.gateway)
    print(f"manifests: {len(validated)} different objects valid for Kubernetes {KUBERNETES_VERSIONS[0]} to {KUBERNETES_VERSIONS[-1]}")
    for failure in failures:
        print(f"FAIL {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
