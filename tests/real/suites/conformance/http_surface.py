"""Entries 134-141: negotiation, errors, URLs, options, and servers that stop or shed load."""
import os
import signal

from .framework import entry, pinned, query
from .streams import BOOKMARKS, FUTURE, INITIAL, PB, closed, expect, kinds, seeded, watch

ACCEPTS = [
    None, "", "*/*", "*", "application/*", "application/json", "application/json;q=0", "application/json;q=0.1,application/yaml;q=0.9", "application/yaml,application/json", "text/html,application/json;q=0.9,*/*;q=0.8",
    "application/json; charset=utf-8", "application/json;pretty=1", "application/json;stream=watch", "application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", "application/json;v=v1", "application/json;g=meta.k8s.io;as=Table;v=v1",
    "application/json;as=Table;v=v1;g=other", f"{PB},application/json", f"{PB};q=0.5,application/json;q=0.6", f"{PB};stream=watch", "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json;q=0.9", "application/json,application/json;pretty=1",
    "application/json;export=1", "application/json;sv=v1", "Application/Json", "application /json", "application/json,,", ",", "application/vnd.kubernetes.*",
]


def spelled(got, *more):
    """An answer that is no list with a version of its own."""
    return [*more, got.target, got.status, got.headers.get("content-type"), got.headers.get("warning"), got.body]


@entry(134, "the_accept_header_is_read_as_the_server_reads_it", setup=seeded)
def negotiate(side, t):
    """Wildcards, weights, parameters, malformed elements: for lists, objects and watches the same type or the same refusal."""
    out = []
    for c, _, _ in kinds(t):
        for accept in ACCEPTS:
            headers = {} if accept is None else {"Accept": accept}
            for target in (query(c, resourceVersion=t.state[c], resourceVersionMatch="Exact"), f"{c}/seed", watch(c, resourceVersion=t.state[c], timeoutSeconds=-1)):
                got = side.get(target, headers)
                t.check(got.status in (200, 406), f"{accept} {target}: {got}")
                out.append(spelled(got, accept))
    plain = side.get(query(t.pods, resourceVersion=0), {"Accept": "*/*"})
    t.check(plain.headers["content-type"] == "application/json" and plain.names == ["seed"], f"{plain}")
    return out


ERROR_ACCEPTS = ["application/json", "application/yaml", PB, "text/csv", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;pretty=1"]


@entry(135, "errors_are_a_status_in_the_representation_that_was_asked_for", setup=seeded, plain=True)  # the server closes connections of HTTP/2 of whom it does not know
def error_encoding(side, t):
    """400, 404, 405, 406, 422, 504 in JSON, YAML, protobuf; where only conversions are accepted, indented JSON."""
    out = []
    for c, _, _ in kinds(t):
        targets = [query(c, limit="abc"), query(c, labelSelector="==="), f"{c}/nope", query(c, resourceVersionMatch="Exact"), watch(c, sendInitialEvents="true"), c.replace("pods", "nopes").replace("widgets", "nopes"), query(c, resourceVersion="abc")]
        for target in targets:
            for accept in ERROR_ACCEPTS:
                got = side.get(target, {"Accept": accept})
                t.check(400 <= got.status < 500, f"{accept} {target}: {got}")
                out.append(got)
        out += [side.request("PUT", c, body=b"{}"), side.request("POST", f"{c}/seed", body=b"{}")]
    return out


@entry(135, "callers_who_may_not_are_told_so", setup=seeded, plain=True)
def forbidden(side, t):
    """403 for who is not allowed, 401 for who is not known, on lists and watches."""
    out = []
    for user, status in (("denied", 403), ("nobody", 401), ("anonymous", 401)):
        for target in (query(t.pods, resourceVersion=0), watch(t.pods, resourceVersion=0, timeoutSeconds=1), f"{t.pods}/seed"):
            got = side.get(target, user=user)
            t.check(got.status == status, f"{user}: {got}")
            out.append(got)
    return out


PATHS = [  # NS is the test's namespace, RV a version after its writes
    "/api/v1/namespaces/NS/pods", "/api/v1/namespaces/NS/pods/", "//api/v1/namespaces/NS/pods", "/api/v1/namespaces//pods?labelSelector=of=NS", "/api/v1/namespaces/NS/pods/seed", "/api/v1/namespaces/NS/pods/seed/", "/api/v1/namespaces/NS/pods/seed?watch=1",
    "/api/v1/namespaces/NS/pods/seed/status", "/api/v1/namespaces/NS/pods/seed/nope", "/api/v1/namespaces/NS/pods?watch=0", "/api/v1/namespaces/NS/pods?watch=FALSE", "/api/v1/namespaces/NS/nopes", "/api/v1/nopes?watch=1", "/api/v2/pods", "/api/v1",
    "/api/v1/watch", "/api/v1/proxy", "/api/v1/watch/namespaces/NS/pods?timeoutSeconds=-1&resourceVersion=RV", "/api/v1/watch/namespaces/NS?timeoutSeconds=-1&resourceVersion=RV", "/api/v1/watch/pods/seed?timeoutSeconds=-1&resourceVersion=RV", "/api/v1/watch/namespaces/NS/pods/seed?timeoutSeconds=-1&resourceVersion=RV",
    "/api/v1/watch/namespaces/NS/pods/seed/status?timeoutSeconds=-1&resourceVersion=RV", "/api/v1/watch/nopes?timeoutSeconds=-1&resourceVersion=RV", "/api/v1/namespaces/NS", "/api/v1/namespaces/NS/status", "/apis/example.com/v1/namespaces/NS/widgets", "/apis/example.com/v1/namespaces/NS/widgets/",
    "/apis/example.com/v1/namespaces/NS/widgets/seed/status", "/apis/example.com/v1/namespaces/NS/widgets/seed/scale", "/apis/example.com/v1/nopes", "/apis/example.com/v2/widgets", "/apis/nope.io/v1/nopes", "/apis/nope.io/v1/nopes?watch=1",
    "/apis/example.com/v1/watch/namespaces/NS/widgets?timeoutSeconds=-1&resourceVersion=RV", "/apis/example.com/v1/watch/namespaces/NS/widgets/seed?timeoutSeconds=-1&resourceVersion=RV", "/apis/example.com/v1/watch", "/apis/apps/v1/namespaces/NS/pods", "/nope", "/api/v1/namespaces/NS/pods%2Fseed",
    "/api/v1/namespaces/NS/p%6fds", "/api/v1/namespaces/NS/pods?%zz", "/api/v1/namespaces/NS/pods?labelSelector=%zz", "/api/v1/namespaces/NS/pods?a;b", "/api/v1/nodes/", "/api/v1/namespaces/NS/nodes", "/api/v1/namespaces/NS/nodes?watch=1&timeoutSeconds=-1&resourceVersion=RV",
]


@entry(136, "urls_mean_what_they_mean_to_the_server", setup=seeded)
def urls(side, t):
    """Resources, names, subresources, the deprecated prefix, slashes, escapes: the same answer for each path."""
    out = []
    for path in PATHS:
        target = path.replace("NS", t.namespace).replace("RV", str(t.state[t.widgets if "example.com" in path else t.pods]))
        got = side.get(target)
        t.check(got.status in (200, 400, 404, 405, 500), f"{target}: {got}")
        out.append(got if b'"resourceVersion"' in got.body else spelled(got))
    for method in ("HEAD", "OPTIONS", "DELETE"):
        for c, _, _ in kinds(t):
            got = side.request(method, c.replace(t.namespace, f"{t.namespace}-none") if method == "DELETE" else c)
            out.append([method, c, got.status, got.headers.get("content-type"), got.headers.get("allow"), "" if method == "DELETE" else got.text()])
    return out


@entry(136, "the_name_in_a_field_selector_is_the_name_of_the_request", setup=seeded)
def selector_names(side, t):
    """A pinned name selects that object, also one that is no legal name or contradicts; selectors that differ in spelling agree."""
    out = []
    for c, _, _ in kinds(t):
        for selector in ("metadata.name=seed", "metadata.name==seed", "metadata.name=seed,metadata.namespace=" + t.namespace, "metadata.name=.", "metadata.name=..", "metadata.name=a/b", "metadata.name=a%b", "metadata.name=", "metadata.name!=seed",
                         "metadata.name=seed,metadata.name=other", "metadata.name=seed,metadata.name=seed", " metadata.name = seed", "metadata.name=seed,"):
            for version in (None, 0):
                got = side.get(query(c, fieldSelector=selector, resourceVersion=version))
                t.check(got.status in (200, 400), f"{selector}: {got}")
                out.append(got)
            out.append(side.get(watch(c, fieldSelector=selector, resourceVersion=t.state[c], timeoutSeconds=-1)))
    return out


pinned(136, unit="protocol::request::tests::a_pinned_name_is_the_name_that_is_authorized", why="which selectors an authorizer receives is internal; the server under test has no rules about selectors")

VERSIONS = (None, "0", "N", "abc")
MATCHES = (None, "Exact", "NotOlderThan", "Other")


@entry(137, "the_options_of_a_watch_are_judged_together", setup=seeded)
def watch_options(side, t):
    """Every combination of version, match, initial events and continue: the same refusal, or a stream."""
    out = []
    for c, _, _ in kinds(t):
        for version in VERSIONS:
            for match in MATCHES:
                for initial in (None, "true", "false", ""):
                    for token in (None, "x"):
                        params = {"resourceVersion": t.state[c] if version == "N" else version, "resourceVersionMatch": match, "sendInitialEvents": initial, "continue": token}
                        got = side.get(watch(c, **params, timeoutSeconds=-1))
                        given = initial is None and match is None and version in (None, "0")  # then the server asks for initial events itself
                        legal = initial is None and match is None and not (given and token) or initial is not None and match == "NotOlderThan" and token is None
                        t.check(got.status == (422 if not legal else 500 if version == "abc" else 200), f"{params}: {got}")
                        out.append([params, got.status, got.body if got.status == 422 else b""])
    return out


@entry(137, "the_options_of_a_list_are_judged_together", setup=seeded)
def list_options(side, t):
    """Every combination of version, match, limit and initial events: the same refusal, or the same list."""
    out = []
    for c, _, _ in kinds(t):
        for version in VERSIONS:
            for match in MATCHES:
                for limit in (None, "0", "1", "-1"):
                    for initial in (None, "true", "false"):
                        params = {"resourceVersion": t.state[c] if version == "N" else version, "resourceVersionMatch": match, "limit": limit, "sendInitialEvents": initial}
                        got = side.get(query(c, **params))
                        legal = initial is None and (match is None or match == "NotOlderThan" and version is not None or match == "Exact" and version not in (None, "0"))
                        t.check(got.status == (422 if not legal else 400 if version == "abc" else 200), f"{params}: {got}")
                        out.append(got)
    return out


# --- servers that stop, servers under load ---------------------------------------------

def to_be_stopped(t):
    t.cleanup(lambda: revive(t))
    return seeded(t)


def revive(t):
    if _alive(t.stack.server_pid()):
        t.stack.kill_server()
    t.stack.start_server()
    t.stack.restart_gateways()


@entry(138, "a_shutdown_ends_watches_cleanly", needs="restart", setup=to_be_stopped, live=True)
def shutdown(side, t):
    """SIGTERM to the gateway, then to the server: each one's watches, idle or not, end at once, without an ERROR and between
    events; the gateway's with a whole body, which the server does not always manage."""
    opened = {c: [side.open(watch(c, resourceVersion=t.state[c])), side.open(watch(c, **INITIAL, **BOOKMARKS))] for c, _, _ in kinds(t)}
    made = t.once(lambda: {c: t.create(c, make("last")) for c, make, _ in kinds(t)})
    streams = [s for both in opened.values() for s in both]
    for c, both in opened.items():
        for stream in both:
            stream.until(lambda e, v=made[c]: e.version == v)
    t.once(t.stack.stop_gateways)
    at_server = not side.is_gateway or t.stack.direct
    t.check(not at_server or all(s.end is None for s in streams), "a gateway's end is not the server's")
    if not at_server:
        t.check(all(s.wait_end().watch.end == "clean" for s in streams), f"ends: {[s.end for s in streams]}")
    t.once(lambda: os.kill(t.stack.server_pid(), signal.SIGTERM))
    for stream in streams:
        events = stream.wait_end(90)
        t.check(not stream.body and stream.end in ("clean", "cut: WireError: cut between chunks"), f"{stream.end}: {stream.body}")
        t.check(all(e.type in ("ADDED", "BOOKMARK") for e in events), f"{events}")
    return "ended"


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "XZ"
    except OSError:
        return False


pinned(138, unit="shutdown::tests::everybody_sees_that_it_has_begun", why="the server's 503 and 429 at the moment of its shutdown cannot be produced at a chosen time")


def with_flags(t, flags):
    """The server starts anew with these flags, until the test is over; the gateways live through it."""
    plain = t.stack.env["REAL_APISERVER_ARGS"]

    def start(args):
        t.stack.env["REAL_APISERVER_ARGS"] = args
        t.stack.kill_server()
        t.stack.start_server()
    t.cleanup(lambda: start(plain))
    start(f"{plain} {flags}")
    for endpoint in (t.stack.server, t.stack.plain):
        t.stack.warm(endpoint)
    # A gateway whose watch began again after the first objects cannot begin another one between them.
    collections = seeded(t)
    t.wait_gateway()
    return {c: t.label(f"{c}/seed", fresh="yes") for c in collections}


@entry(139, "connections_sent_away_do_not_break_streams", needs="restart", setup=lambda t: with_flags(t, "--goaway-chance=0.02"), live=True)
def goaway(side, t):
    """The server sends two in a hundred requests' HTTP/2 connections away, among them the gateway's: all are answered, and
    streams that were open before go on. (Our clients speak HTTP/1.1, which the server leaves alone.)"""
    opened = {c: side.open(watch(c, resourceVersion=t.state[c])) for c in t.state}
    for n in range(200):
        got = side.get(f"{t.pods}/seed" if n % 2 else query(t.pods, limit=1))
        t.check(got.status == 200, f"request {n}: {got}")
    made = t.once(lambda: {c: [t.label(f"{c}/seed", n=str(n)) for n in range(20)] for c in t.state})
    for c, stream in opened.items():
        expect(t, stream, [("MODIFIED", "seed", v) for v in made[c]])
        t.check(stream.end is None, stream.end)
    return closed(*opened.values())


@entry(140, "watches_take_no_place_in_the_limit_of_requests", needs="restart", setup=lambda t: with_flags(t, "--max-requests-inflight=4 --max-mutating-requests-inflight=4"), live=True)
def long_running(side, t):
    """A server that serves four requests at a time: watches do not count, thirty are open and requests are answered."""
    opened = [side.open(watch(t.pods, resourceVersion=t.state[t.pods])) for _ in range(30)]
    t.check(all(s.status == 200 for s in opened), f"{[s.status for s in opened]}")
    for _ in range(10):
        got = side.get(query(t.pods, resourceVersion=0))
        t.check(got.status == 200 and got.names == ["seed"], f"{got}")
    version = t.once(lambda: t.label(f"{t.pods}/seed", n="1"))
    for stream in opened:
        expect(t, stream, [("MODIFIED", "seed", version)])
    return closed(opened[0])


pinned(140, why="it tests the seats and queues of priority and fairness; the server under test has the older limit of requests in flight instead")


@entry(141, "a_request_that_is_out_of_time_is_answered_so", setup=seeded)
def deadline(side, t):
    """timeout=1s on a list that waits longer for its version: 504 with the deadline's own body; on a watch it means nothing."""
    out = []
    for c, _, _ in kinds(t):
        late = side.get(query(c, resourceVersion=FUTURE, resourceVersionMatch="NotOlderThan", timeout="1s"))
        t.check(late.status == 504, f"{late}")
        out.append([late.status, late.text(), late.headers.get("content-type")])
        for timeout, status in (("nonsense", 400), ("5", 400), ("0s", 200), ("10m", 200), ("-1s", None), ("1h2m3.5s", 200), ("", 200)):
            got = side.get(query(c, resourceVersion=0, timeout=timeout))
            t.check(status is None or got.status == status, f"timeout={timeout}: {got}")
            out.append(got)
        stream = side.watch(watch(c, resourceVersion=t.state[c], timeout="nonsense"), seconds=1)
        t.check(list(stream) == [] and stream.watch.status == 200, f"a watch takes no timeout: {stream}")
        out.append(stream)
    return out


pinned(141, why="whether a connection is aborted because the deadline passes during a response depends on the moment")
