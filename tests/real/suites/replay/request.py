"""A request as it is captured, generated and sent again."""
import base64
import json
import shlex
from dataclasses import dataclass, replace
from urllib.parse import unquote_plus

CREDENTIALS = ("authorization", "proxy-authorization", "cookie")
SOCKET_TOKEN = "base64url.bearer.authorization.k8s.io."  # a token among the protocols of a WebSocket


class Unreadable(Exception):
    """A line that is not a captured request."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple = ()  # pairs; a name may occur twice
    body: bytes = None
    left_out: int = 0  # bytes of a body that was too large to keep

    @property
    def path(self):
        return self.target.partition("?")[0]

    def values(self, name):
        """A header's values in order."""
        return [v for k, v in self.headers if k.lower() == name]

    def pairs(self):
        """The query's pairs, still escaped."""
        query = self.target.partition("?")[2]
        return query.split("&") if query else []

    def option(self, name):
        """The first value of a parameter, decoded; None without it. Like the server, this ignores pairs with a ;."""
        for pair in self.pairs():
            key, _, value = pair.partition("=")
            if ";" not in pair and unquote_plus(key) == name:
                return unquote_plus(value)
        return None

    def with_pairs(self, pairs):
        return replace(self, target=f"{self.path}?{'&'.join(pairs)}" if pairs else self.path)

    def asks_watch(self):
        """Whether the response may be a stream of events."""
        if self.method != "GET":
            return False
        value = self.option("watch")
        return "watch" in self.path.split("/") or value is not None and value != "0" and value.lower() != "false"

    def line(self):
        kept = {"method": self.method, "target": self.target, "headers": [list(h) for h in self.headers]}
        if self.body is not None:
            kept["body"] = base64.b64encode(self.body).decode()
        if self.left_out:
            kept["left_out"] = self.left_out
        return json.dumps(kept)

    def curl(self, base):
        words = ["curl", "-sS", "-i", "--path-as-is", "-g"]
        words += ["-I"] if self.method == "HEAD" else ["-X", self.method] if self.method != "GET" else []
        for name, value in self.headers:
            words += ["-H", f"{name}: {value}" if value else f"{name};"]
        words += ["--data-binary", self.body.decode("utf-8", "backslashreplace")] if self.body is not None else []
        return shlex.join([*words, base + self.target])

    def __str__(self):
        return " ".join([self.method, self.target, *(f"[{k}: {v}]" for k, v in self.headers)])


def without_credentials(headers):
    out = []
    for name, value in headers:
        if name.lower() == "sec-websocket-protocol":
            value = ", ".join(p for p in map(str.strip, value.split(",")) if not p.startswith(SOCKET_TOKEN))
        if name.lower() not in CREDENTIALS and (value or name.lower() != "sec-websocket-protocol"):
            out.append((name, value))
    return tuple(out)


def read_line(line):
    try:
        kept = json.loads(line)
        body = kept.get("body")
        headers = tuple((str(k), str(v)) for k, v in kept["headers"])
        return Request(str(kept["method"]), str(kept["target"]), headers, None if body is None else base64.b64decode(body, validate=True), int(kept.get("left_out", 0)))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Unreadable(f"{type(e).__name__}: {e}") from e
