"""Runs in the virtual environment: one client of the official Python library, which lists, watches and prints its state.

python python_client.py URL CA TOKEN_FILE WHAT"""
import json
import sys
import threading
import time

from kubernetes import client, dynamic, watch

url, ca, token_file, what = sys.argv[1:]
config = client.Configuration()
config.host, config.ssl_ca_cert = url, ca if url.startswith("https") else None
config.api_key = {"authorization": open(token_file).read().strip()}
config.api_key_prefix = {"authorization": "Bearer"}
api = client.ApiClient(config)
objects, counts, errors = {}, {"events": 0, "watches": 0}, []
wake = threading.Condition()


def meta(thing):
    return thing["metadata"] if isinstance(thing, dict) else api.sanitize_for_serialization(thing.metadata)


def apply(kind, thing):
    m = thing if kind is None else meta(thing)
    key = f"{m['namespace']}/{m['name']}"
    with wake:
        if kind == "DELETED":
            objects.pop(key, None)
        else:
            objects[key] = m["resourceVersion"]
        counts["events"] += kind is not None
        wake.notify()


def tell():
    while True:
        with wake:
            print(json.dumps({"objects": objects, "errors": errors, **counts}), flush=True)
            wake.wait()


def follow(list_function, read, since, **options):
    """Watches, and watches again from the last version when a stream ends."""
    while True:
        counts["watches"] += 1
        one = watch.Watch()
        try:
            for event in one.stream(list_function, resource_version=since, **options):
                apply(event["type"], read(event))
                since = one.resource_version
        except Exception as e:
            errors.append(repr(e)[:300])
            time.sleep(1)
        since = one.resource_version or since


def main():
    raw = lambda event: event["raw_object"]
    if what == "dynamic widgets":
        resource = dynamic.DynamicClient(api).resources.get(api_version="example.com/v1", kind="Widget")
        listed = resource.get()
        for item in listed.items:
            apply(None, item.metadata.to_dict())
        threading.Thread(target=tell, daemon=True).start()
        for event in resource.watch(resource_version=listed.metadata.resourceVersion, timeout=600):
            apply(event["type"], event["object"].to_dict())
        return
    if what == "custom widgets":
        function, options = client.CustomObjectsApi(api).list_cluster_custom_object, {"group": "example.com", "version": "v1", "plural": "widgets"}
        listed = function(**options)
        items, version = [i["metadata"] for i in listed["items"]], listed["metadata"]["resourceVersion"]
    else:
        function, options = client.CoreV1Api(api).list_pod_for_all_namespaces, {}
        listed = function(resource_version="0")
        items, version = [meta(i) for i in listed.items], listed.metadata.resource_version
        if what.startswith("short"):
            options["timeout_seconds"] = 1
    for item in items:
        apply(None, item)
    threading.Thread(target=tell, daemon=True).start()
    follow(function, raw, version, **options)


main()
