"""A request as it is generated, made smaller, and shown as curl."""
import shlex
from dataclasses import dataclass, replace
from urllib.parse import unquote_plus


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple = ()  # pairs; a name may occur twice
    body: bytes = None

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

    def curl(self, base):
        words = ["curl", "-sS", "-i", "--path-as-is", "-g"]
        words += ["-I"] if self.method == "HEAD" else ["-X", self.method] if self.method != "GET" else []
        for name, value in self.headers:
            words += ["-H", f"{name}: {value}" if value else f"{name};"]
        words += ["--data-binary", self.body.decode("utf-8", "backslashreplace")] if self.body is not None else []
        return shlex.join([*words, base + self.target])

    def __str__(self):
        return " ".join([self.method, self.target, *(f"[{k}: {v}]" for k, v in self.headers)])
