"""Entries 143-152: how client-go handles the responses, at both sides. Faults that a server does not produce on demand
come from a relay between client and side (faulty.py)."""
from .. import fixtures, programs, tools, wire
from .faulty import EMPTY, UNMARKED, Relay, cut, error_stream, paged, refused
from .framework import Watch, entry, pinned
from .streams import ResumingClient, seeded

OFF, ON = "--watch-list=off", "--watch-list=on"
LARGE = refused(504, "Timeout", ["ResourceVersionTooLarge"])
EXPIRED = refused(410, "Expired")


def five(t):
    """Writes five pods; returns the version of the last."""
    return [t.create(t.pods, fixtures.pod(f"o{n}")) for n in range(5)][-1]


class Informer:
    """A client-go informer behind a relay."""

    def __init__(self, side, t, plan, *flags):
        program = tools.client_go()
        t.check(program, "client-go's informers are missing: real-apiserver.sh informer")
        self.t, self.relay = t, Relay(side.endpoint, plan)
        args = programs.client_go(t.stack, self.relay.endpoint, program, f"--namespace={t.namespace}", "--client=typed", "--http1", *flags)
        self.client = programs.Program("client-go", args, t.stack.state / f"client-{t.namespace}-{side.name}.log")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.kill()
        self.relay.__exit__()

    def asked(self, *wanted):
        """The client sends these requests, in this order, and no others before them."""
        got = self.relay.wait(len(wanted))
        self.t.check(got == list(wanted), f"asked {got}, wanted {list(wanted)}")
        return got

    def holds(self, objects):
        """Waits until it has synced and its store has that size; returns the store's hash."""
        state = {}

        def held():
            state.update(self.client.ask("state"))
            return state["synced"] == 1 and state["objects"] == [objects]
        wire.poll(f"{objects} objects in the store", held, 60)
        return list(state["hashes"])


def after_fault(number, name, text, mode, plan, asked):
    """Registers a test: an informer meets PLAN, sends exactly the requests ASKED, and finally has all objects, later ones included."""
    def test(side, t):
        with Informer(side, t, plan, *mode) as informer:
            got = informer.asked(*asked)
            first = informer.holds(5)
            t.once(lambda: t.create(t.pods, fixtures.pod("later")))
            return [got, first, informer.holds(6)]
    test.__doc__ = text
    entry(number, name, setup=five, live=True)(test)


after_fault(143, "an_informer_streams_its_state_with_one_request", "The state and the later events arrive on the same stream.", (ON,), {}, ("watchlist: 200",))
after_fault(143, "an_informer_whose_stream_is_refused_lists_instead", "A server without watch-lists answers 422: one list, one watch.", (ON,), {("watchlist", 1): refused(422, "Invalid")},
            ("watchlist: refused 422", "list:0 limit=500 200", "watch:N 200"))
after_fault(143, "an_informer_that_is_throttled_streams_again", "429 to the watch-list: the same request again, no list.", (ON,), {("watchlist", 1): refused(429, "TooManyRequests")}, ("watchlist: refused 429", "watchlist: 200"))
after_fault(143, "an_informer_that_lost_its_marker_streams_again", "A stream that ends before its marker is incomplete: the same request again.", (ON,), {("watchlist", 1): UNMARKED}, ("watchlist: unmarked", "watchlist: 200"))
after_fault(143, "an_informer_told_410_in_its_initial_stream_begins_anew", "An ERROR 410 instead of the state: a watch-list without a version.", (ON,), {("watchlist", 1): error_stream(410, "Expired")}, ("watchlist: told 410", "watchlist: 200"))
pinned(143, why="no server sends changes before the marker or markers with another value")

after_fault(144, "an_expired_list_is_asked_for_anew_without_a_version", "410 to the list at 0: immediately a list without a version.", (OFF,), {("list", 1): EXPIRED}, ("list:0 limit=500 refused 410", "list: limit=500 200", "watch:N 200"))
after_fault(144, "a_list_from_the_future_is_asked_for_anew_without_a_version", "504 with its cause: immediately a list without a version.", (OFF,), {("list", 1): LARGE}, ("list:0 limit=500 refused 504", "list: limit=500 200", "watch:N 200"))
after_fault(144, "a_relist_that_expired_is_asked_for_anew_without_a_version", "An ERROR 410 on the watch, then 410 to the list at the last version.", (OFF,), {("watch", 1): error_stream(410, "Expired"), ("list", 2): EXPIRED},
            ("list:0 limit=500 200", "watch:N told 410", "list:N refused 410", "list: 200", "watch:N 200"))
after_fault(145, "a_throttled_watch_is_never_followed_by_a_list", "429 to the watch, twice: two more watches, from the same version.", (OFF,), {("watch", n): refused(429, "TooManyRequests") for n in (1, 2)},
            ("list:0 limit=500 200", "watch:N refused 429", "watch:N refused 429", "watch:N 200"))
after_fault(146, "a_first_list_has_a_limit_that_the_cache_ignores", "limit=500 at version 0: everything in one response.", (OFF,), {}, ("list:0 limit=500 200", "watch:N 200"))
after_fault(146, "a_consistent_list_in_pages_is_served_in_pages", "limit=2 without a version: three responses.", (OFF, "--pagesize=2"), {}, ("list: limit=2 200", "page: limit=2 200", "page: limit=2 200", "watch:N 200"))
after_fault(148, "a_watch_that_fails_inside_the_server_is_followed_by_a_relist", "500 to the watch: after a pause a list not older than the last, and a watch.", (OFF,), {("watch", 1): refused(500, "InternalError")},
            ("list:0 limit=500 200", "watch:N refused 500", "list:N 200", "watch:N 200"))
after_fault(149, "a_watch_that_ends_at_once_is_followed_by_a_relist", "A very short watch: after a pause a list not older than the last, and a watch.", (OFF,), {("watch", 1): EMPTY},
            ("list:0 limit=500 200", "watch:N empty", "list:N 200", "watch:N 200"))
after_fault(151, "a_page_that_expired_is_followed_by_one_whole_list", "A list that the relay limits to pages, and 410 to the second page: one list without a limit.", (OFF,), {("list", 1): EXPIRED, ("list", 2): paged(2), ("page", 1): EXPIRED},
            ("list:0 limit=500 refused 410", "list: limit=500 paged", "page: limit=500 refused 410", "list: 200", "watch:N 200"))
pinned(148, why="how long a client waits is the client's decision; the test checks that it continues in the same way at both sides")


@entry(147, "a_relist_asks_for_the_version_last_seen", setup=five, live=True)
def relist_version(side, t):
    """After events and an ERROR 410 the list is requested at the last event's version, and the next watch at that list's."""
    with Informer(side, t, {("watch", 1): cut(3), ("watch", 2): error_stream(410, "Expired")}, OFF) as informer:
        informer.relay.wait(2)
        informer.holds(5)
        versions = t.once(lambda: [t.label(f"{t.pods}/o{n}", n="1") for n in range(3)])
        asked = informer.asked("list:0 limit=500 200", "watch:N cut", "watch:N told 410", "list:N 200", "watch:N 200")
        seen = informer.relay.versions
        t.check(seen[2] == seen[3] == str(versions[-1]) and int(seen[4]) >= versions[-1], f"asked for {seen}, the last event was {versions[-1]}")
        return [asked, informer.holds(5)]


@entry(150, "watches_that_break_off_resume_without_repeating_a_version", setup=seeded, live=True)
def retried(side, t):
    """What a retrying client relies on, with every stream cut after one event: every event has a version, none is repeated, none
    is missing; a version that is too old gets a final 410 in the stream."""
    with Relay(side.endpoint, {("watch", n): cut(1) for n in range(1, 100)}) as relay:
        through = ResumingClient(Through(side, relay.endpoint), t.pods, t.state[t.pods]).opened()
        versions = t.once(lambda: [t.label(f"{t.pods}/seed", n=str(n)) for n in range(12)])
        through.until(versions[-1])
        seen = [e.version for e in through.seen]
        t.check(seen == versions and through.states == 0, f"every event once: {seen}, wanted {versions}")
        return seen


class Through:
    """A side, reached through a relay."""

    def __init__(self, side, endpoint):
        self.name, self.endpoint, self.marked, self.watches = side.name, endpoint, side.marked, side.watches


@entry(150, "a_retried_watch_from_before_a_compaction_is_final", needs="compaction", setup=five)
def retried_gone(side, t):
    """410 in the stream, with an HTTP status of 200: a retrying client knows that the stream is over."""
    stream = side.watches(Watch(side.endpoint, f"{t.pods}?watch=true&allowWatchBookmarks=true&resourceVersion={t.state - 1}", side.marked({}))).opened()
    events = stream.wait_end()
    t.check(stream.status == 200 and [e.type for e in events] == ["ERROR"] and events[0].object["code"] == 410, f"{stream.status} {events}")
    return events


pinned(150, why="no program of this project uses client-go's RetryWatcher; the test checks what it relies on. 401 and 403 need a server that reviews access")


@entry(152, "informers_of_every_kind_hold_the_same_as_the_server", setup=five, live=True)
def many_kinds(side, t):
    """Typed in protobuf, dynamic and metadata-only, each by watch-list and by list and watch, while objects are written."""
    forms = [("--client=typed", "--content-type=protobuf"), ("--client=dynamic",), ("--client=metadata", "--content-type=protobuf")]
    clients = []
    try:
        for n, (form, mode) in enumerate((f, m) for f in forms for m in (ON, OFF)):
            args = programs.client_go(t.stack, side.endpoint, tools.client_go(), f"--namespace={t.namespace}", "--http1", *form, mode)
            clients.append(programs.Program("client-go", args, t.stack.state / f"client-{t.namespace}-{side.name}-{n}.log"))
        t.once(lambda: [t.label(f"{t.pods}/o{n % 5}", n=str(n)) for n in range(40)] + [t.delete(f"{t.pods}/o0")])
        states = {}

        def agreed():
            states.update({n: client.ask("state") for n, client in enumerate(clients)})
            hashes = {h for s in states.values() for h in s["hashes"]}
            return all(s["synced"] == 1 and s["objects"] == [4] for s in states.values()) and len(hashes) == 1
        wire.poll("six stores alike", agreed, 60)
        return list(states[0]["hashes"])
    finally:
        for client in clients:
            client.kill()


pinned(152, why="over restarts, compactions and churn: the suites `converge` (client-go, kube-rs, Python, JavaScript, kubectl) and `restart`")
