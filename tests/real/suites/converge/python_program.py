"""Runs in the virtual environment: informers made with the official Python library, whose contents are printed on request.

python python_program.py URL CA TOKEN_FILE

A line on standard input is a request: 'ids' or 'whole'; the response is one line of JSON. Exits at the end of its input. The
library has no informer: these list, watch, resume when a stream ends, and list again when that is refused with 410."""
import json
import sys
import threading
import time

from kubernetes import client, config, dynamic, watch

BACK_MAX = 5
PAUSE_SECONDS = 0.2  # between attempts while the server is unreachable


def connect():
    url, ca, token_file = sys.argv[1:]
    if url == "in-cluster":  # what a pod's environment names
        loaded = client.Configuration()
        config.load_incluster_config(loaded)
        return client.ApiClient(loaded)
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = url, ca if url.startswith("https") else None
    with open(token_file) as file:
        settings.api_key = {"authorization": file.read().strip()}
    settings.api_key_prefix = {"authorization": "Bearer"}
    return client.ApiClient(settings)


class Informer:
    """One collection's objects as listed and watched; raw, as the server wrote them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.held, self.newest, self.back = {}, {}, []
        self.synced, self.lists, self.watches, self.errors = False, 0, 0, []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        version = None
        while True:
            try:
                if version is None:
                    version = self.list()
                version = self.watch_from(version)
            except client.ApiException as e:
                if e.status == 410:
                    version = None
                self.failed(e)
            except Exception as e:  # the connection broke or was refused; the thread must survive any error
                self.failed(e)
            version = version and self.seen

    def failed(self, error):
        with self.lock:
            self.errors.append(repr(error)[:200])
        time.sleep(PAUSE_SECONDS)

    def list(self):
        items, version = self.listed()
        with self.lock:
            self.held = {key(i): i for i in items}
            for item in items:
                self.check(item)
            self.lists, self.synced, self.seen = self.lists + 1, True, version
        return version

    def take(self, kind, thing):
        with self.lock:
            self.seen = thing["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                return
            self.check(thing)
            if kind == "DELETED":
                self.held.pop(key(thing), None)
            else:
                self.held[key(thing)] = thing

    def check(self, thing):
        now, before = int(thing["metadata"]["resourceVersion"]), self.newest.get(key(thing), 0)
        if now < before and len(self.back) < BACK_MAX:
            self.back.append(f"{key(thing)} at {now} after {before}")
        self.newest[key(thing)] = max(now, before)

    def tell(self, whole):
        with self.lock:
            answer = {"synced": self.synced, "back": list(self.back), "lists": self.lists, "watches": self.watches, "errors": len(self.errors),
                      "last_error": self.errors[-1] if self.errors else None,
                      "objects": {k: [i["metadata"]["uid"], i["metadata"]["resourceVersion"]] for k, i in self.held.items()}}
            return {**answer, "whole": dict(self.held)} if whole else answer


class Watched(Informer):
    """With watch.Watch; LIST is a method of one of the library's APIs."""

    def __init__(self, api, list_function, **options):
        self.api, self.function, self.options = api, list_function, options
        super().__init__()

    def listed(self):
        answer = self.api.sanitize_for_serialization(self.function(**self.options))
        return answer["items"], answer["metadata"]["resourceVersion"]

    def watch_from(self, version):
        stream = watch.Watch()
        with self.lock:
            self.watches += 1
        for event in stream.stream(self.function, resource_version=version, **self.options):
            self.take(event["type"], event["raw_object"])
        return version


class Dynamic(Informer):
    """With the library's dynamic client, typed by the server's discovery."""

    def __init__(self, api, api_version, kind):
        self.find = lambda: dynamic.DynamicClient(api).resources.get(api_version=api_version, kind=kind)
        self.resource = None
        super().__init__()

    def listed(self):
        self.resource = self.resource or self.find()
        answer = self.resource.get().to_dict()
        return answer["items"], answer["metadata"]["resourceVersion"]

    def watch_from(self, version):
        with self.lock:
            self.watches += 1
        for event in self.resource.watch(resource_version=version, timeout=300):
            self.take(event["type"], event["raw_object"])
        return version


def key(thing):
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def main():
    core, widgets = (lambda: client.CoreV1Api(connect())), {"group": "example.com", "version": "v1", "plural": "widgets"}
    pods = lambda **options: Watched((api := core()).api_client, api.list_pod_for_all_namespaces, **options)
    informers = {
        "typed pods|||": pods(),
        "typed pods, bookmarks|||": pods(allow_watch_bookmarks=True),
        "typed pods, short watches|||": pods(timeout_seconds=2),
        "typed pods||app=demo|": pods(label_selector="app=demo"),
        "typed pods|||spec.nodeName=node-1": pods(field_selector="spec.nodeName=node-1"),
        "typed configmaps|||": Watched((api := core()).api_client, api.list_config_map_for_all_namespaces),
        "custom widgets|||": Watched((api := client.CustomObjectsApi(connect())).api_client, api.list_cluster_custom_object, **widgets),
        "dynamic widgets|||": Dynamic(connect(), "example.com/v1", "Widget"),
    }
    for question in sys.stdin:
        print(json.dumps({"event": "contents", "clients": {name: i.tell(question.strip() == "whole") for name, i in informers.items()}}), flush=True)


main()
