"""Compares a client's contents with the server's: pure. Identities are [uid, resource version] by 'namespace/name'."""
import hashlib
import json
import re

SHOWN = 600  # characters of an object in a report
MIDNIGHT_OR_NOT = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.0+)?(Z|\+00:00)$")


class Truth:
    """A list from the server itself."""

    def __init__(self, listed):
        self.whole = {f"{i['metadata'].get('namespace', '')}/{i['metadata']['name']}": i for i in listed["items"]}
        self.ids = {k: [i["metadata"]["uid"], i["metadata"]["resourceVersion"]] for k, i in self.whole.items()}

    def digest(self):
        """The hash of a store with these objects, as our informers and client-go's print it."""
        return hashlib.sha256("".join(sorted(f"{key}/{version}\n" for key, (_, version) in self.ids.items())).encode()).hexdigest()


def ids_differ(held, truth):
    """The first object that differs, or ''."""
    for key in sorted(held.keys() | truth.keys()):
        if held.get(key) != truth.get(key):
            count = sum(held.get(k) != truth.get(k) for k in held.keys() | truth.keys())
            return f"{count} differ; first {key}: client {held.get(key, 'none')}, server {truth.get(key, 'none')}"
    return ""


def wholes_differ(whole, truth, metadata_only):
    """The first object whose content differs, or ''."""
    for key in sorted(whole):
        held, wanted = plain(whole[key]), plain(truth[key])
        if metadata_only:
            wanted = {"metadata": wanted["metadata"]}
        if held != wanted:
            path, a, b = first_difference(held, wanted)
            return f"{key} at {path}:\nclient {json.dumps(a)[:SHOWN]}\nserver {json.dumps(b)[:SHOWN]}"
    return ""


def plain(thing):
    """The object without what a client's types add or change: lists omit the kinds of their items, dates have several spellings."""
    return _plain({k: v for k, v in thing.items() if k not in ("apiVersion", "kind")})


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, str) and (date := MIDNIGHT_OR_NOT.match(value)):
        return f"{date[1]}Z"
    return value


def first_difference(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for k in sorted(a.keys() | b.keys()):
            if a.get(k) != b.get(k) or (k in a) != (k in b):
                return first_difference(a.get(k), b.get(k), f"{path}.{k}")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return first_difference(x, y, f"{path}[{i}]")
    return path, a, b


def disturbed(answer, calm):
    """The reason why a client was not undisturbed, or ''."""
    return ", ".join(f"{name}: {answer[name]}, not {value}" for name, value in calm.items() if answer[name] != value)


def verdict(answer, truth, metadata_only):
    """The reason why a client's contents differ from the server's state, or ''."""
    if not answer["synced"]:
        return "it never had a list"
    if "hashes" in answer:
        return "" if set(answer["hashes"]) == {truth.digest()} else f"{answer['objects']} objects, and not those of the server: {len(truth.ids)}"
    if odd := ids_differ(answer["objects"], truth.ids):
        return odd
    if "told" in answer and (odd := ids_differ(answer["told"] or {}, truth.ids)):
        return f"the store is right, but its handlers were given another state: {odd}"
    return wholes_differ(answer["whole"], truth.whole, metadata_only) if "whole" in answer else ""
