"""Captures a real API server's bytes, JSON and protobuf side by side, into this directory.

    python3 capture.py https://127.0.0.1:16443 STATE           of a fresh tests/real/apiserver; STATE: its REAL_APISERVER_STATE
    python3 capture.py https://127.0.0.1:16443 STATE expired   after a restart with --etcd-compaction-interval=2s

NAME.lines and NAME.frames are one watch in JSON and in protobuf: the initial events and their closing bookmark, one object
changed, one deleted, a bookmark near the end. NAME.partial.frames is the same with metadata alone; pods.list and
pods.page are lists in protobuf; status-CODE.json and .pb are refusals; expired.* is a watch that ends with an error.
"""
import base64
import json
import pathlib
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

URL, STATE = sys.argv[1], pathlib.Path(sys.argv[2])
HERE = pathlib.Path(__file__).parent
PROTOBUF = "application/vnd.kubernetes.protobuf"
STREAM = PROTOBUF + ";stream=watch"
PARTIAL = PROTOBUF + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = PARTIAL.replace("Metadata;", "MetadataList;")
TLS = ssl.create_default_context(cafile=str(STATE / "pki/ca.crt"))
TOKEN = (STATE / "pki/admin.token").read_text().strip()
WATCH_SECONDS = 6


def call(method, target, body=None, accept="application/json", content="application/json"):
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept, "Content-Type": content, "User-Agent": "capture"}
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(URL + target, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, context=TLS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def write(method, target, body, content="application/json"):
    code, answer = call(method, target, body, content=content)
    if code not in (200, 201, 404, 409):
        raise SystemExit(f"{method} {target}: {code} {answer!r}")
    return json.loads(answer)


META = {"labels": {"app": "web", "a.example.com/tier": "front", "empty": ""}, "annotations": {"note": "größer \"quoted\" <&>\n", "a": ""}, "finalizers": ["example.com/keep", "example.com/too"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-4000-8000-000000000001", "controller": True, "blockOwnerDeletion": False},
                            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "00000000-0000-4000-8000-000000000002"}]}
POD = {"nodeName": "node-1", "restartPolicy": "OnFailure", "schedulerName": "other-scheduler", "serviceAccountName": "robot", "hostNetwork": True,
       "containers": [{"name": "c", "image": "example.com/image:1", "args": ["--a", "b"], "ports": [{"containerPort": 80}]}]}
POD_STATUS = {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}], "nominatedNodeName": "node-2",
              "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
    "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


def thing(api, kind, name, meta=None, **more):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **(meta or {})}, **more}


NS = "/api/v1/namespaces/demo"
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
KINDS = {
    "pods": (NS + "/pods", [thing("v1", "Pod", "full", META, spec=POD, status=POD_STATUS), thing("v1", "Pod", "plain", spec={"containers": [{"name": "c", "image": "i"}]})]),
    "configmaps": (NS + "/configmaps", [thing("v1", "ConfigMap", "full", META, data={"a": "b", "long": "x" * 300}, binaryData={"b": "AAEC/w=="}), thing("v1", "ConfigMap", "plain")]),
    "secrets": (NS + "/secrets", [thing("v1", "Secret", "full", META, type="example.com/kind", data={"password": "c2VjcmV0"}), thing("v1", "Secret", "plain")]),
    "services": (NS + "/services", [thing("v1", "Service", "full", META, spec={"type": "NodePort", "clusterIP": "10.96.0.10", "ports": [{"port": 80}]}), thing("v1", "Service", "plain", spec={"ports": [{"port": 1}]})]),
    "jobs": ("/apis/batch/v1/namespaces/demo/jobs", [thing("batch/v1", "Job", "full", META, spec=JOB, status={"succeeded": 3, "active": 1}), thing("batch/v1", "Job", "plain", spec=JOB)]),
    "nodes": ("/api/v1/nodes", [thing("v1", "Node", "full", META, spec={"unschedulable": True, "podCIDR": "10.1.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]}), thing("v1", "Node", "plain")]),
    "namespaces": ("/api/v1/namespaces", [thing("v1", "Namespace", "full", META, status={"phase": "Terminating"}), thing("v1", "Namespace", "plain")]),
    "widgets": ("/apis/example.com/v1/namespaces/demo/widgets", [thing("example.com/v1", "Widget", "full", META, spec={"size": 1, "text": "é<", "a<b&\"é\u2028": 1}), thing("example.com/v1", "Widget", "plain")]),
}


def make(collection, one):
    """Creates an object, then its status and a second manager's fields, and marks it as deleted if finalizers hold it."""
    name = one["metadata"]["name"]
    write("POST", collection + "?fieldManager=maker", one)
    if one["kind"] == "Widget":
        write("PATCH", f"{collection}/{name}/status?fieldManager=status", {"status": {"ready": True}}, "application/merge-patch+json")
    applied = {"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": {"name": name, "annotations": {"applied": "1"}}}
    write("PATCH", f"{collection}/{name}?fieldManager=applier&force=true", applied, "application/apply-patch+yaml")


def watch(target, accept, path, **options):
    query = "&".join(f"{k}={v}" for k, v in {"watch": 1, "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS, **options}.items())
    code, body = call("GET", f"{target}?{query}", accept=accept)
    if code != 200:
        raise SystemExit(f"{target}: {code} {body!r}")
    (HERE / path).write_bytes(body)


def capture(name, collection):
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    streams = [("application/json", f"{name}.lines"), (STREAM, f"{name}.frames"), (PARTIAL, f"{name}.partial.frames")]
    if name == "widgets":
        streams.pop(1)
    if name not in ("pods", "nodes", "widgets"):
        streams.pop()
    threads = [threading.Thread(target=watch, args=(collection, accept, path), kwargs=initial) for accept, path in streams]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    write("PATCH", collection + "/plain?fieldManager=patcher", {"metadata": {"labels": {"changed": "yes"}}}, "application/merge-patch+json")
    write("DELETE", collection + "/plain", {})
    write("DELETE", collection + "/full", {"propagationPolicy": "Foreground", "gracePeriodSeconds": 7})
    for thread in threads:
        thread.join()


def lists():
    pods, widgets = KINDS["pods"][0], KINDS["widgets"][0]
    for path, target, accept in (("pods.list", pods, PROTOBUF), ("pods.page", pods + "?limit=1", PROTOBUF), ("configmaps.empty.list", "/api/v1/namespaces/none/configmaps", PROTOBUF),
                                 ("pods.partial.list", pods, PARTIAL_LIST), ("widgets.partial.list", widgets, PARTIAL_LIST)):
        (HERE / path).write_bytes(call("GET", target, accept=accept)[1])


def refused(name, target, accept=PROTOBUF):
    for suffix, wanted in (("pb", accept), ("json", accept.replace(PROTOBUF, "application/json"))):
        code, answer = call("GET", target, accept=wanted)
        print(name, code, suffix, answer[:100])
        (HERE / f"status-{name}.{suffix}").write_bytes(answer)


def refusals():
    pods, widgets = KINDS["pods"][0], KINDS["widgets"][0]
    refused("400", pods + "?fieldSelector=nope")
    refused("404", pods + "/none")
    refused("404-group", widgets + "/none", PARTIAL + "," + PROTOBUF)
    refused("404-bare", "/api/v1/namespaces/demo/pods/none/log/none")
    refused("422", pods + "?resourceVersionMatch=Exact&sendInitialEvents=true")
    refused("504", pods + "?resourceVersion=99999999&resourceVersionMatch=NotOlderThan")
    (HERE / "status-406.pb").write_bytes(call("GET", widgets, accept=PROTOBUF)[1])


def expired():
    """What was compacted away is gone; the watch cache's window begins anew with the server."""
    pods = KINDS["pods"][0]
    token = base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":5,"start":"demo/a\\u0000"}').decode().rstrip("=")
    write("POST", "/api/v1/namespaces", thing("v1", "Namespace", "moves-the-version"))
    while call("GET", f"{pods}?limit=1&continue={token}")[0] != 410:
        time.sleep(1)
    refused("410", f"{pods}?limit=1&continue={token}")
    refused("410-exact", pods + "?resourceVersion=5&resourceVersionMatch=Exact")
    for accept, path in (("application/json", "expired.lines"), (STREAM, "expired.frames")):
        watch(pods, accept, path, resourceVersion=5)


def main():
    write("POST", "/api/v1/namespaces", thing("v1", "Namespace", "demo"))
    write("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    while call("GET", KINDS["widgets"][0])[0] != 200:
        time.sleep(0.2)
    for name, (collection, things) in KINDS.items():
        for one in things:
            make(collection, one)
    lists()
    threads = [threading.Thread(target=capture, args=(name, collection)) for name, (collection, _) in KINDS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refusals()


if "expired" in sys.argv[3:]:
    expired()
else:
    main()
