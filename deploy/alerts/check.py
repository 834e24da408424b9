#!/usr/bin/env python3
"""Compares alerts, their tests, docs/ALERTS.md and the dashboard with each other and with docs/METRICS.md. check.sh runs it."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import promql_parser as promql
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/alerts/kube-fanout.rules.yaml"
TESTS = ROOT / "deploy/alerts/tests"
PAGE = ROOT / "docs/ALERTS.md"
DASHBOARD = ROOT / "deploy/dashboard/kube-fanout.json"

SEVERITIES = {"critical", "warning"}
DASHBOARD_LEN_MAX = 1 << 20
# What Prometheus and its operator add to each series.
TARGET_LABELS = {"job", "namespace", "pod", "instance"}
# Metrics of others: Prometheus itself, the kubelet, the process collector.
OTHERS = {
    "up": set(),
    "kubelet_volume_stats_available_bytes": {"persistentvolumeclaim"},
    "process_cpu_seconds_total": set(),
    "process_open_fds": set(),
    "process_max_fds": set(),
    "process_start_time_seconds": set(),
}
SUFFIXES = ("_bucket", "_sum", "_count")


class Metrics:
    """The metrics of docs/METRICS.md: labels, and for labels with a closed set the values."""

    def __init__(self, page):
        self.labels, self.values, self.histograms, self.alerting = {}, {}, set(), set()
        reasons = page.partition("\n## Reasons")[2]
        for name, kind, labels, meaning in re.findall(r"^\| `(kube_fanout_\w+)` \| (\w+) \|([\w, ]*)\| (.*) \|$", page, re.M):
            self.labels[name] = set(re.findall(r"\w+", labels))
            self.values[name] = set(re.findall(r"`(\w+)`", meaning))
            if kind == "histogram":
                self.histograms.add(name)
            if "**alert**" in meaning.lower():
                self.alerting.add(name)
        for names, values in re.findall(r"^\| (`[^|]+`) \| (.*) \|$", reasons, re.M):
            for name in re.findall(r"`(\w+)`", names):
                self.values.setdefault("kube_fanout_" + name, set()).update(re.findall(r"`(\w+)`", values))
        # Their values are said in text, or are verbs and codes of HTTP.
        self.open_labels = {"verb", "code", "endpoint", "version", "commit", "group", "resource", "encoding"}

    def find(self, name):
        """The name in the page, or None."""
        if name in self.labels:
            return name
        base = re.sub("|".join(f"{suffix}$" for suffix in SUFFIXES), "", name)
        return base if base in self.histograms else None


class Selectors:
    """What one expression selects and groups by."""

    def __init__(self, text):
        self.selectors, self.groupings = [], set()
        self.visit(promql.parse(text))

    def visit(self, node):
        if node is None or isinstance(node, (promql.NumberLiteral, promql.StringLiteral)):
            return
        if isinstance(node, promql.VectorSelector):
            matchers = [(one.name, str(one.op), one.value) for one in node.matchers.matchers]
            self.selectors.append((node.name, matchers))
        elif isinstance(node, promql.MatrixSelector):
            self.visit(node.vector_selector)
        elif isinstance(node, promql.AggregateExpr):
            if node.modifier is not None:
                self.groupings.update(node.modifier.labels)
            self.visit(node.expr)
        elif isinstance(node, promql.BinaryExpr):
            if node.modifier is not None and node.modifier.matching is not None:
                self.groupings.update(node.modifier.matching.labels)
            self.visit(node.lhs)
            self.visit(node.rhs)
        elif isinstance(node, promql.Call):
            for argument in node.args:
                self.visit(argument)
        elif isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
            self.visit(node.expr)
        else:
            raise TypeError(f"{type(node).__name__} in {node}")


def expression_faults(where, text, metrics):
    """Metrics, labels and values that do not exist, in one expression."""
    try:
        found = Selectors(text)
    except ValueError as error:
        return [f"{where}: {error}"]
    faults, known = [], set(TARGET_LABELS)
    for name, matchers in found.selectors:
        documented = metrics.find(name)
        labels = OTHERS.get(name, metrics.labels.get(documented))
        if labels is None:
            faults.append(f"{where}: docs/METRICS.md has no {name}")
            continue
        known |= labels | ({"le"} if documented != name and name not in OTHERS else set())
        for label, operator, value in matchers:
            if label in TARGET_LABELS:
                continue
            if label not in labels:
                faults.append(f"{where}: {name} has no label {label}")
            elif label not in metrics.open_labels and name not in OTHERS:
                values = value.split("|") if "Re" in operator else [value]
                faults += [f"{where}: {name} has no {label}={one}" for one in values if one not in metrics.values[documented]]
    return faults + [f"{where}: no metric here has the label {label}" for label in sorted(found.groupings - known)]


def plain(expr):
    """An expression of the dashboard, with values for its variables."""
    return expr.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$namespace", ".*").replace("$instance", ".*")


def dashboard_expressions(board):
    """Each query of the dashboard with the title of its panel."""
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"dashboard, {panel['title']}", plain(target["expr"])


def page_expressions(page):
    """Each quoted text that names a metric is an expression."""
    for text in re.findall(r"`([^`\n]+)`", page):
        if "kube_fanout_" in text:
            yield "docs/ALERTS.md", text


def alert_faults(rules):
    faults = []
    if len({rule["alert"] for rule in rules}) < 10:
        faults.append("there are fewer than ten alerts")
    for rule in rules:
        name, notes = rule["alert"], rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in SEVERITIES:
            faults.append(f"{name}: severity is not one of {', '.join(sorted(SEVERITIES))}")
        faults += [f"{name}: no {key}" for key in ("summary", "description") if not notes.get(key)]
        if notes.get("runbook_url") != f"docs/ALERTS.md#{name.lower()}":
            faults.append(f"{name}: runbook_url is not docs/ALERTS.md#{name.lower()}")
    return faults


def page_faults(rules, page):
    """Alerts without a section or with another severity, and sections without an alert."""
    named = {rule["alert"] for rule in rules}
    severities = {name: ", ".join(rule["labels"]["severity"] for rule in rules if rule["alert"] == name) for name in named}
    sections = dict(re.findall(r"^## (\w+)\n\nSeverity: (.*)\.$", page, re.M))
    faults = [f"docs/ALERTS.md: {name} is not there with the severity {severities[name]}" for name in sorted(named) if sections.get(name) != severities[name]]
    return faults + [f"docs/ALERTS.md: there is no alert {name}" for name in sorted(sections.keys() - named)]


def test_faults(rules, tests):
    """Alerts that no test shows firing with each severity, or silent."""
    firing, silent = set(), set()
    for test in tests:
        for case in test.get("alert_rule_test", []):
            expected = case.get("exp_alerts") or []
            firing |= {(case["alertname"], one["exp_labels"]["severity"]) for one in expected}
            if not expected:
                silent.add(case["alertname"])
    faults = []
    for rule in rules:
        name, severity = rule["alert"], rule["labels"]["severity"]
        if (name, severity) not in firing:
            faults.append(f"{name}: no test shows it firing as {severity}")
        if name not in silent:
            faults.append(f"{name}: no test shows it silent")
    return faults


def mark_faults(rules, metrics):
    """Metrics that docs/METRICS.md says to alert on, and no alert does."""
    used = {metrics.find(name) for rule in rules for name, _ in Selectors(rule["expr"]).selectors}
    return [f"docs/METRICS.md: no alert uses {name}" for name in sorted(metrics.alerting - used)]


def dashboard_faults():
    committed = DASHBOARD.read_bytes()
    with tempfile.NamedTemporaryFile(suffix=".json") as made:
        subprocess.run([sys.executable, DASHBOARD.with_name("dashboard.py"), made.name], check=True)
        current = pathlib.Path(made.name).read_bytes()
    faults = [] if current == committed else ["deploy/dashboard/kube-fanout.json is not current: run deploy/dashboard/dashboard.py"]
    if len(committed) >= DASHBOARD_LEN_MAX:
        faults.append("deploy/dashboard/kube-fanout.json does not fit into a ConfigMap")
    return faults


def assert_checks_can_fail(metrics):
    """Planted mistakes are found."""
    for text, fault in [
        ("kube_fanout_nonsense > 0", "has no kube_fanout_nonsense"),
        ("kube_fanout_connections_bucket > 0", "has no kube_fanout_connections_bucket"),
        ('kube_fanout_lagged_total{reason="x"} > 0', "has no label reason"),
        ('kube_fanout_cache_state{state=~"ready|redy"} > 0', "has no state=redy"),
        ("sum by (place) (kube_fanout_connections)", "has the label place"),
        ("sum(kube_fanout_connections", ""),
    ]:
        found = expression_faults("planted", text, metrics)
        assert any(fault in one for one in found), f"{text}: {found}"
    rule = {"alert": "A", "expr": "up == 0", "labels": {"severity": "warning"}, "annotations": {}}
    case = {"alertname": "A", "exp_alerts": [{"exp_labels": {"severity": "critical"}}]}
    assert len(test_faults([rule], [{"alert_rule_test": [case]}])) == 2
    assert len(page_faults([rule], "## B\n\nSeverity: warning.\n")) == 2
    assert len(alert_faults([rule])) == 4
    assert mark_faults([rule], metrics)


def main():
    metrics = Metrics((ROOT / "docs/METRICS.md").read_text(encoding="utf-8"))
    assert len(metrics.labels) > 80 and len(metrics.alerting) > 10, "the page was not understood"
    assert_checks_can_fail(metrics)
    rules = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    tests = [test for path in sorted(TESTS.glob("*.yaml")) for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]]
    page = PAGE.read_text(encoding="utf-8")
    queries = list(dashboard_expressions(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    expressions = [(rule["alert"], rule["expr"]) for rule in rules] + queries
    expressions += page_expressions(page)

    faults = alert_faults(rules) + page_faults(rules, page) + test_faults(rules, tests)
    faults += mark_faults(rules, metrics) + dashboard_faults()
    for where, text in expressions:
        faults += expression_faults(where, text, metrics)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"alerts: {len(rules)} alerts with {len(tests)} tests; {len(queries)} queries of the dashboard, {len(expressions)} expressions")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
