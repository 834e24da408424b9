"""Random requests: a valid client request, which in about half of the cases is then broken in one to three ways.

generate(world, seed, index) depends on nothing else, so these two numbers reproduce a request."""
import base64
import json
from urllib.parse import quote

from . import heads
from . import selector_grammar as selectors
from .dice import Dice
from .request import Request

FUTURE = 99_999_999
SHORT = ("1", "2")  # timeoutSeconds of a watch
TRUE = ("true", "true", "1", "True", "yes", "", "t", "no")
VERSIONS = ("abc", "-1", "+5", "1.5", " 5", "5 ", "0x10", "18446744073709551615", "18446744073709551616", "9223372036854775808", "00", "0000", "1e3", "٣", "\0", "0_1", "null")
NUMBERS = ("abc", "1.5", "", " 1", "99999999999999999999", "9223372036854775807", "-9223372036854775808", "0x1", "1_000", "+1", "-0", "01", "1e3")
DURATIONS = ("30s", "1m", "1h", "0", "0s", "40.5s", "10", "abc", "", "-1s", "5d", "9999999999h", "1m30s", " 30s", "30S")
BOOLEANS = ("true", "1", "false", "0", "t", "T", "F", "abc", "", "TRUE", "tRue", "2")
SHARDS = ("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')", "shardRange(object.metadata.uid,'0x0','0x1')", "garbage", " ", "")
OTHERS = ("/api/v1/nopes", "/apis/nope.io/v1/nopes", "/apis/example.com/v9/widgets", "/apis/example.com/v1/gadgets", "/apis/apps/v1beta1/deployments", "/apis/apps/v1/nopes", "/nope", "/api/v1/watch", "/api/v1/watch/",
          "/api/v1/proxy", "/apis/example.com/v1/watch", "/api/v1/watch/namespaces", "/api/v1/watch/namespaces/a", "/api/v1/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/nope", "/version", "/api", "/apis", "/apis/apps",
          "/api/v1", "/apis/apps/v1", "/apis/example.com", "/apis/example.com/v1", "/", "//", "/api/", "/api/v2/pods", "/API/v1/pods", "/api/v1/namespaces/default/nodes", "/api/v1/namespaces/a/namespaces", "/api/v1/namespaces/a/namespaces/a", "/api/v1/watch/namespaces/a/namespaces/a",
          "/apis/example.com/v1/namespaces/a/regions", "/api/v1/watch/watch/pods", "/api/v1/watch/nopes", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nope", "/api/v1/namespaces/a/pods/x1/nope",
          "/api/v1/namespaces/a/pods/x1/status", "/apis/example.com/v1/namespaces/a/widgets/x1/status", "/apis/example.com/v1/namespaces/a/widgets/x1/nope", "/api/v1/namespaces/a/pods/x1/status/tail", "/api/v1/pods/x1", "/apis/example.com/v1/widgets/x1")


def escaped(text):
    return quote(text, safe="")


def pair(name, value):
    return f"{name}={escaped(str(value))}"


class Draft:
    """A request under construction. `options` are the pairs of the query, with values not yet escaped."""

    def __init__(self, dice, world):
        self.dice, self.world = dice, world
        self.resource = dice.pick([*world.resources, *world.resources[:2], world.resources[9]])
        self.verb = dice.drawn({"list": 50, "watch": 35, "get": 15})
        self.namespace = dice.pick(self.resource.namespaces) if self.resource.namespaced and (self.verb == "get" or dice.chance(0.6)) else None
        self.prefix = self.verb == "watch" and dice.chance(0.12)
        self.name = dice.pick([*self.resource.names, "nope"]) if self.verb == "get" or self.prefix and dice.chance(0.3) else None
        self.method, self.options, self.headers, self.body = "GET", [], [], None
        self.path, self.garble = None, ""

    def version(self):
        """A version in the history of every cache."""
        return self.world.top if self.dice.chance(0.3) else self.dice.pick(self.world.past)

    def add(self, name, value):
        self.options.append((name, str(value)))

    def drop(self, *names):
        self.options = [o for o in self.options if o[0] not in names]


def token(version, start, layout="meta.k8s.io/v1"):
    return encoded(json.dumps({"v": layout, "rv": version, "start": start}, separators=(",", ":")).encode())


def encoded(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def start_key(draft):
    """The key at which a page could continue, in the path's own range."""
    name = draft.dice.pick(draft.resource.names)
    key = name if draft.namespace or not draft.resource.namespaced else f"{draft.dice.pick(['a', 'a-b', 'default'])}/{name}"
    return f"{draft.dice.pick(['', '/'])}{key}\0"


def good_list(d):
    dice = d.dice
    how = dice.drawn({"plain": 15, "zero": 25, "newer": 12, "exact": 12, "page": 15, "legacy": 6, "next page": 12, "inconsistent": 3, "future": 3})
    if how == "zero":
        d.add("resourceVersion", 0)
    elif how == "newer":
        d.add("resourceVersion", d.version() if dice.chance(0.9) else d.world.old)
        if dice.chance(0.5):
            d.add("resourceVersionMatch", "NotOlderThan")
    elif how == "exact":
        d.add("resourceVersion", d.version())
        d.add("resourceVersionMatch", "Exact")
    elif how == "legacy":
        d.add("resourceVersion", d.version())
    elif how in ("next page", "inconsistent"):
        d.add("continue", token(d.version() if how == "next page" else -1, start_key(d)))
        if dice.chance(0.2):
            d.add("resourceVersion", dice.pick(["0", ""]))
    elif how == "future":
        d.add("resourceVersion", FUTURE)
        if dice.chance(0.5):
            d.add("resourceVersionMatch", dice.pick(["Exact", "NotOlderThan"]))
    if how in ("page", "legacy") or dice.chance(0.3):
        d.add("limit", dice.pick([1, 2, 3, 5, 10, 30, 500, 0, -1]))
    if dice.chance(0.08):
        d.add("timeoutSeconds", dice.pick([1, 0, 30, -5]))


def good_watch(d):
    dice = d.dice
    if not d.prefix:
        d.add("watch", dice.pick(TRUE))
    how = dice.drawn({"plain": 12, "zero": 18, "since": 30, "initial": 25, "nothing initial": 10, "future": 3})
    if d.prefix and how in ("initial", "nothing initial"):
        how = "since"
    if how == "zero":
        d.add("resourceVersion", 0)
    elif how == "since":
        d.add("resourceVersion", d.version())
    elif how == "future":
        d.add("resourceVersion", FUTURE)
    elif how in ("initial", "nothing initial"):
        d.add("sendInitialEvents", "false" if how == "nothing initial" else dice.pick(TRUE))
        d.add("resourceVersionMatch", "NotOlderThan")
        if dice.chance(0.6):
            d.add("resourceVersion", dice.pick(["", "0", str(d.version())]))
    if dice.chance(0.5):
        d.add("allowWatchBookmarks", dice.pick(["true", "true", "1", "false"]))
    d.add("timeoutSeconds", dice.pick([*SHORT, *SHORT, "-1"]))
    if dice.chance(0.12):
        d.add("limit", dice.pick([1, 500, 0]))


def good(d):
    """A request that a client might send."""
    dice = d.dice
    {"list": good_list, "watch": good_watch}.get(d.verb, lambda d: dice.chance(0.5) and d.add("resourceVersion", dice.pick(["0", "", str(d.version())])))(d)
    if d.verb != "get" and not (d.prefix and d.name):
        if dice.chance(0.25):
            d.add("labelSelector", selectors.labels(dice))
        if dice.chance(0.2):
            d.add("fieldSelector", selectors.fields(dice, d.resource))
    if dice.chance(0.08):
        d.add("pretty", dice.pick(BOOLEANS[:7]))
    if dice.chance(0.05):
        d.add("timeout", dice.pick(DURATIONS[:6]))
    if dice.chance(0.65):
        accept = heads.good_accept(dice, d.resource, d.verb == "watch", d.verb == "get")
        d.headers.append(("Accept", accept))
        if "Table" in accept and dice.chance(0.4):
            d.add("includeObject", dice.pick(["Object", "None", "Metadata", ""]))
    if dice.chance(0.35):
        d.headers.append(("Accept-Encoding", heads.encoding(dice)))
    if dice.chance(0.2):
        d.headers.append(("User-Agent", dice.pick(heads.AGENTS[:5])))
    if dice.chance(0.1):
        d.headers.append(("Audit-ID", heads.audit(dice)))
    if dice.chance(0.1 if d.verb == "watch" else 0.02):
        d.headers += heads.socket(dice, True)


# --- ways to break it ------------------------------------------------------------

def odd_option(d):
    """Gives a parameter a specific value, legal or not, in addition or as a replacement."""
    dice = d.dice
    name, value = dice.pick([
        ("resourceVersion", dice.pick([*VERSIONS, *VERSIONS, FUTURE, "", "0", d.world.top, f"000{d.world.top}", d.world.top + 1])),
        ("resourceVersionMatch", dice.pick(["Exact", "NotOlderThan", "", "exact", "X", "<&>"])), ("limit", dice.pick([*NUMBERS, 1, -1])),
        ("continue", odd_token(d)), ("sendInitialEvents", dice.pick(BOOLEANS)), ("watch", dice.pick(BOOLEANS)), ("allowWatchBookmarks", dice.pick(BOOLEANS)),
        ("timeoutSeconds", dice.pick([*NUMBERS[:6], "-1"])), ("timeout", dice.pick(DURATIONS)), ("pretty", dice.pick(BOOLEANS)), ("includeObject", dice.pick(["Some", "none", "Object", "metadata"])),
        ("labelSelector", selectors.broken_labels(dice)), ("labelSelector", selectors.broken_labels(dice)), ("fieldSelector", selectors.broken_fields(dice, d.resource)), ("fieldSelector", selectors.broken_fields(dice, d.resource)),
        ("shardSelector", dice.pick(SHARDS)), ("export", "true"), ("dryRun", "All"), ("fieldValidation", "Strict"), ("nope", "1")])
    if dice.chance(0.7):
        d.drop(name)
    d.options.insert(dice.number(0, len(d.options)), (name, str(value)))


def odd_token(d):
    dice, start = d.dice, start_key(d)
    whole = token(d.version(), start)
    return dice.pick([
        token(0, start), token(-2, start), token(d.version(), ""), token(d.version(), start, "meta.k8s.io/v9"), token(d.version(), start, ""), token(d.version(), "a/../b\0"), token(d.version(), "./x\0"), token(d.version(), "a//b\0"),
        token(d.version(), "../x\0"), token(d.version(), "/"), token(d.version(), "/\0"), token(d.version(), "zzz"), token(d.version(), "a/x1"), token(FUTURE, start), token(d.world.old, start), token(d.version(), "//x\0"), token(d.version(), "x/"),
        whole + "=", whole + "!", whole[:-3], whole + whole, "garbage!", "Z2FyYmFnZQ", encoded(b"{}"), encoded(b"null"), encoded(b"[]"), encoded(b'{"v":"meta.k8s.io/v1","rv":"1","start":"x"}'), encoded(b'{"v":"meta.k8s.io/v1","rv":1.5,"start":"x"}'),
        encoded(b'{"v":"meta.k8s.io/v1","rv":1,"start":"x"}{}'), encoded(b'{"V":"meta.k8s.io/v1","RV":%d,"Start":"x"}' % d.world.top), encoded(b'{"v":"meta.k8s.io/v1","rv":%d,"start":"x","more":1}' % d.world.top), " ", "+", "a b", "ä"])


def less(d):
    if d.options:
        d.options.pop(d.dice.number(0, len(d.options) - 1))


def twice(d):
    """Repeats a name, with another value or none."""
    if d.options:
        name, value = d.dice.pick(d.options)
        d.options.insert(d.dice.number(0, len(d.options)), (name, d.dice.pick([value, "", "0", "1", "true", "app=demo"])))


def shuffled(d):
    d.options = d.dice.shuffled(d.options)


def combination(d):
    """Options that are legal alone but not together."""
    d.options += d.dice.pick([
        [("sendInitialEvents", "true")], [("sendInitialEvents", "false"), ("resourceVersionMatch", "Exact")], [("resourceVersionMatch", "NotOlderThan")], [("resourceVersionMatch", "Exact"), ("resourceVersion", "0")],
        [("continue", token(d.version(), start_key(d))), ("resourceVersion", str(d.version()))], [("continue", token(d.version(), start_key(d))), ("resourceVersionMatch", "Exact")],
        [("resourceVersionMatch", "Exact"), ("resourceVersion", ""), ("continue", "x")], [("watch", "true"), ("resourceVersionMatch", "X")], [("watch", "true"), ("continue", "x"), ("resourceVersion", "0")]])


def accept(d):
    d.headers = [h for h in d.headers if h[0] != "Accept"] + [("Accept", value) for value in heads.wild_accept(d.dice)]


def client(d):
    dice = d.dice
    d.headers = [h for h in d.headers if h[0] != "User-Agent"]
    d.headers.append(dice.pick([("User-Agent", dice.pick(heads.AGENTS)), ("Audit-ID", heads.audit(dice)), ("Accept-Encoding", heads.encoding(dice)), ("Accept-Charset", "latin-1"), ("Content-Type", "text/csv"),
                                ("If-None-Match", "*"), ("Range", "bytes=0-10"), *dice.pick([[("Expect", "nope")], [("Accept-Language", "de")], [("X-Remote-User", "system:admin")], [("Content-Encoding", "gzip")], [("Te", "trailers")]]), ("X-HTTP-Method-Override", "DELETE"), ("If-Modified-Since", "Fri, 01 Jan 2038 00:00:00 GMT")]))


def upgrade(d):
    d.headers += heads.socket(d.dice, d.dice.chance(0.4))


def odd_path(d):
    dice, r = d.dice, d.resource
    path = whole_path(d)
    parts = path.split("/")
    at = dice.number(1, len(parts) - 1)
    d.path = dice.pick([
        path + "/", path + "//", "/" + path, path.replace("/v1/", "//v1/"), path.replace("/v1/", "/v1//"), path.replace(f"/{r.plural}", f"//{r.plural}"), "/".join([*parts[:at], f"%{ord(parts[at][0] or 'x'):02X}{parts[at][1:]}", *parts[at + 1:]]),
        "%2F".join(["/".join(parts[:at]), "/".join(parts[at:])]), path.replace(r.plural, r.plural.upper()), path.replace(r.plural, r.plural[:-1]), path + "/.", path + "/..", path.replace("/v1/", "/v1/./"), path + ";x=y", path + "%00", path + "%zz",
        path + "%", path + "/" + "n" * 300, path + "/%C3%A4", path.replace("/namespaces/", "/namespaces/%20"), f"{r.root}/namespaces//{r.plural}", f"{r.root}/namespaces/{'N' * 64}/{r.plural}", f"{r.root}/namespaces/UPPER/{r.plural}",
        f"{r.root}/namespaces/a/{r.plural}", f"{r.root}/watch/{r.plural}/", f"{r.root}/watch/namespaces/a/{r.plural}", f"{r.root}/watch/{r.plural}/{r.names[0]}", f"{r.root}/watch/namespaces//{r.plural}", f"{r.root}/proxy/{r.plural}", path + "?",
        dice.pick(OTHERS), dice.pick(OTHERS), dice.pick(OTHERS), dice.pick(OTHERS)])


def method(d):
    d.method = d.dice.pick(["HEAD", "HEAD", "HEAD", "OPTIONS", "OPTIONS", "POST", "PUT", "PATCH", "TRACE", "get", "BREW"])
    if d.method in ("POST", "PUT", "PATCH"):  # with bodies that cannot be stored
        d.headers.append(("Content-Type", d.dice.pick(["application/json", "text/csv", "application/yaml", "", "application/merge-patch+json"])))
        d.body = d.dice.pick([b"", b"{", b"null", b"a,b", b"[]", b'"x"'])


def separators(d):
    d.garble = d.dice.pick(["&&", "&=x", "&watch", "&%zz=1", "&a;b=1", "&limit", "&lab%65lSelector=app", "&LabelSelector=app", "&x=%", "&labelSelector=app%zz", "&limit=1;2", "&resourceVersion", "&labelSelector=app+in+(demo)", "&a=b=c", "#x", "&limit=1?2", "&\xe4=1"])


WAYS = {odd_option: 36, accept: 14, combination: 8, odd_path: 10, less: 6, twice: 6, shuffled: 4, client: 4, upgrade: 5, method: 5, separators: 4}


def broken(d):
    for _ in range(d.dice.pick([1, 1, 1, 2, 2, 3])):
        d.dice.drawn(WAYS)(d)


def whole_path(d):
    path = d.resource.path(d.namespace, "watch/" if d.prefix else "")
    return f"{path}/{d.name}" if d.name else path


def bounded(request):
    """Every watch ends soon: a watch without a timeout of its own gets one."""
    if not request.asks_watch():
        return request
    seconds = request.option("timeoutSeconds")
    endless = seconds is None or seconds.lstrip("+-").isdigit() and (int(seconds) == 0 or int(seconds) > 2) or seconds == ""
    return request.with_pairs([pair("timeoutSeconds", 1), *request.pairs()]) if endless else request


def generate(world, seed, index):
    dice = Dice(seed, index)
    d = Draft(dice, world)
    good(d)
    if dice.chance(0.55):
        broken(d)
    query = "&".join(pair(*o) for o in d.options) + d.garble
    path = whole_path(d) if d.path is None else d.path
    return bounded(Request(d.method, f"{path}?{query}" if query else path, tuple(d.headers), d.body))
