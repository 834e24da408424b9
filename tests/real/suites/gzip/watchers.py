"""Runs in the virtual environment: a watch of all config maps, as the documentation of a library shows it; the name of each event's object
is printed on a line of its own.

python watchers.py LIBRARY URL TOKEN_FILE"""
import asyncio
import json
import sys

TARGET = "/api/v1/configmaps?watch=1"


def requests_(url, token):
    import requests
    with requests.get(url + TARGET, headers=bearer(token), stream=True) as response:
        for line in response.iter_lines():
            show(json.loads(line))


def httpx_(url, token):
    import httpx
    with httpx.stream("GET", url + TARGET, headers=bearer(token), timeout=None) as response:
        for line in response.iter_lines():
            show(json.loads(line))


def lightkube_(url, token):
    import lightkube
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.resources.core_v1 import ConfigMap
    config = KubeConfig.from_dict({
        "current-context": "one", "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": url}}], "users": [{"name": "one", "user": {"token": token}}]})
    for _, thing in lightkube.Client(config=config).watch(ConfigMap, namespace="*"):
        print(thing.metadata.name, flush=True)


def kubernetes_(url, token):
    from kubernetes import client, watch
    for event in watch.Watch().stream(client.CoreV1Api(client.ApiClient(configured(client, url, token))).list_config_map_for_all_namespaces):
        show(event)


def kubernetes_asyncio_(url, token):
    from kubernetes_asyncio import client, watch

    async def run():
        async with client.ApiClient(configured(client, url, token)) as api:
            async for event in watch.Watch().stream(client.CoreV1Api(api).list_config_map_for_all_namespaces):
                show(event)
    asyncio.run(run())


def configured(client, url, token):
    """Settings of the official library, and of the one that is made from it."""
    settings = client.Configuration()
    settings.host, settings.api_key, settings.api_key_prefix = url, {"authorization": token, "BearerToken": token}, {"authorization": "Bearer", "BearerToken": "Bearer"}
    return settings


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def show(event):
    thing = event.get("raw_object") or event["object"]
    print(thing["metadata"]["name"], flush=True)


library, server, token_file = sys.argv[1:]
with open(token_file) as file:
    globals()[f"{library}_"](server, file.read().strip())
