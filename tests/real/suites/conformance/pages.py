"""Entries 14-18, 20-24, 28-31, 35-38, 40, 47: limits and continue tokens."""
from concurrent.futures import ThreadPoolExecutor

from .list_requests import token
from .framework import entry, query, token_parts
from .kinds import both, each, named
from .lists import EXACT, NOT_OLDER, contents, event_story, events, refused, story

FIVE = named("a", "b", "c", "d", "e")


def page(side, k, continued=None, **params):
    return side.get(query(k.collection, **params, **({"continue": continued} if continued else {})))


def follow(side, t, k, first=None, **params):
    """All pages, with the side's own tokens. Only the first request names a version."""
    out = [first or page(side, k, **params)]
    while out[-1].token:
        t.check(len(out) < 50, "the pages do not end")
        out.append(page(side, k, out[-1].token, limit=params["limit"], labelSelector=params.get("labelSelector")))
    return out


def joined(pages):
    return [n for p in pages for n in p.names]


@entry(14, "a_first_page_has_a_token_and_what_remains", setup=FIVE)
@both
def first_page(side, t, k):
    """Two of five: a token after the second, three remain."""
    got = page(side, k, limit=2)
    t.check(got.names == ["a", "b"] and got.remaining == 3, f"{got.names}, {got.remaining} remain")
    parts = token_parts(got.token)
    t.check(parts["v"] == "meta.k8s.io/v1" and parts["rv"] == got.version and parts["start"].lstrip("/") == "b\0", f"{parts}")
    return got


@entry(15, "a_limit_makes_a_version_exact_unless_told_otherwise", setup=each(story))
@both
def legacy_exact(side, t, k):
    """limit with a version is Exact; NotOlderThan stays what it says."""
    then, state = k.state[3]
    newest = k.state[-1][1]
    exact = [page(side, k, limit=1, resourceVersion=then, **m) for m in ({}, EXACT)]
    for got in exact:
        t.check(got.names == ["a"] and got.version == then and got.remaining == len(state) - 1, f"at {then}: {got}")
    newer = page(side, k, limit=1, resourceVersion=then, **NOT_OLDER)
    t.check(newer.names == [min(newest)] and newer.version >= then, f"{newer}")
    return [*exact, newer]


@entry(16, "a_limit_is_ignored_at_version_zero", setup=FIVE)
@both
def limit_at_zero(side, t, k):
    """The cache's whole state, and no token."""
    out = [page(side, k, limit=2, resourceVersion=0, **m) for m in ({}, NOT_OLDER)]
    for got in out:
        t.check(len(got.items) == 5 and not got.token and got.remaining is None, f"{got.names} {got.token}")
    return out


@entry(16, "a_limit_is_kept_at_version_zero_by_an_uncached_resource", setup=event_story)
def uncached_limit(side, t):
    """There is no cache whose whole state could be shown; past versions can be paged."""
    got = side.get(query(events(t), limit=2, resourceVersion=0))
    t.check(got.names == ["a", "b"] and got.token and got.remaining == 1, f"{got}")
    past = side.get(query(events(t), limit=1, resourceVersion=t.state[1]))
    t.check(past.names == ["a"] and past.version == t.state[1] and past.remaining == 1, f"{past}")
    rest = side.get(query(events(t), **{"continue": past.token}))
    t.check(rest.names == ["b"] and rest.version == t.state[1], f"{rest}")
    return [got, past, rest]


@entry(17, "a_token_made_by_others_is_self_contained", setup=each(story))
@both
def made_token(side, t, k):
    """Its version and key alone determine the rest, with or without the leading slash."""
    then, state = k.state[3]
    out = [page(side, k, token(then, start)) for start in ("a\0", "/a\0", "a", "/aa\0")] + [page(side, k, token(then, "b\0"), limit=1)]
    for got, names in zip(out, (["b", "c"], ["b", "c"], ["a", "b", "c"], ["b", "c"], ["c"])):
        t.check(got.names == names and got.version == then, f"{got.target}: {got.version} {got.names}, not {names}")
    elsewhere = side.get(query(k.everywhere, labelSelector="n", limit=1, **{"continue": token(then, f"{t.namespace}/a\0")}))
    t.check(elsewhere.keys == [f"{t.namespace}/b"], f"{elsewhere.keys}")
    return [*out, elsewhere]


@entry(18, "a_token_wins_over_version_zero", setup=each(story))
@both
def token_and_zero(side, t, k):
    """The token's version is shown; version 0 still disables the limit."""
    then, _ = k.state[3]
    out = [page(side, k, token(then, "a\0"), resourceVersion=0, limit=limit) for limit in (None, 1)]
    for got in out:
        t.check(got.names == ["b", "c"] and got.version == then and not got.token, f"{got}")
    return out


def labelled(labels):
    """A setup: objects named by letters; a letter in upper case has the label pick=yes."""
    return each(lambda t, k: [t.create(k.collection, k.make(x.lower(), {"pick": "yes" if x.isupper() else "no"})) for x in labels])


@entry(20, "a_filter_with_one_match_is_one_page", setup=labelled("abCde"))
@both
def one_match(side, t, k):
    """Nothing remains, so there is no token."""
    out = [page(side, k, labelSelector="pick=yes", **m) for m in ({}, {"limit": 5}, {"limit": 2})]
    for got in out:
        t.check(got.names == ["c"] and not got.token and got.remaining is None, f"{got}")
    return out


@entry(21, "a_filter_with_more_pages_has_a_token_and_no_count", setup=labelled("AbCd"))
@both
def no_count(side, t, k):
    """The number of remaining matches is unknown."""
    labels = page(side, k, labelSelector="pick=yes", limit=1)
    fields = page(side, k, fieldSelector="metadata.name!=b", limit=1)
    for got in (labels, fields):
        t.check(got.names == ["a"] and got.token and got.remaining is None, f"{got}")
    return [labels, fields]


@entry(22, "a_page_is_filled_past_what_does_not_match", setup=labelled("aBcdEfgHiJ"))
@both
def filled(side, t, k):
    """Two matches per page, however many keys lie between; the token's key follows the last match."""
    pages = follow(side, t, k, labelSelector="pick=yes", limit=2)
    t.check([p.names for p in pages] == [["b", "e"], ["h", "j"]], f"{[p.names for p in pages]}")
    start = token_parts(pages[0].token)["start"].lstrip("/")
    t.check(start == "e\0", f"the token starts at {start!r}")
    return pages


@entry(23, "a_last_page_full_or_not_has_no_token", setup=FIVE)
@both
def last_page(side, t, k):
    """It makes no difference whether the last page is full."""
    full, partial = follow(side, t, k, limit=1), follow(side, t, k, limit=2)
    t.check([len(p.items) for p in full] == [1] * 5 and [len(p.items) for p in partial] == [2, 2, 1], "pages of other lengths")
    t.check([p.remaining for p in partial] == [3, 1, None], f"{[p.remaining for p in partial]}")
    filtered = follow(side, t, k, limit=2, labelSelector="none!=such")
    t.check(joined(filtered) == list("abcde"), f"{joined(filtered)}")
    return [full, partial, filtered]


@entry(24, "a_page_as_long_as_the_list_has_no_token", setup=FIVE)
@both
def whole(side, t, k):
    """Nothing remains."""
    out = [page(side, k, limit=n) for n in (5, 6, 0, -1)]
    for got in out:
        t.check(len(got.items) == 5 and not got.token and got.remaining is None, f"{got}")
    return out


@entry(28, "pages_of_every_version_of_the_past", setup=each(story))
@both
def pages_of_the_past(side, t, k):
    """Exact with a limit, and by the older rule without Exact: the state at that version, page by page."""
    out = []
    for version, state in k.state:
        for match in (EXACT, {}):
            pages = follow(side, t, k, limit=1, resourceVersion=version, **match)
            t.check(joined(pages) == sorted(state) and {p.version for p in pages} == {version}, f"at {version}: {joined(pages)}, not {sorted(state)}")
            out.append(pages)
    return out


@entry(29, "tokens_of_every_version_of_the_past", setup=each(story))
@both
def tokens_of_the_past(side, t, k):
    """A token continues at its own version."""
    out = []
    for version, state in k.state:
        got = page(side, k, token(version, "a\0"))
        t.check(contents(got) == {n: v for n, v in state.items() if n > "a"} and got.version == version, f"at {version}: {got}")
        out.append(got)
    return out


@entry(30, "a_token_of_version_minus_one_continues_at_the_newest", setup=each(story))
@both
def negative(side, t, k):
    """The rest in its current state; the next token has a version again."""
    now = k.state[-1][0]
    rest = page(side, k, token(-1, "b\0"))
    t.check(rest.names == ["c", "d"] and rest.version >= now, f"{rest}")
    first = page(side, k, token(-1, "a\0"), limit=1)
    t.check(first.names == ["c"] and token_parts(first.token)["rv"] == first.version >= now, f"{first}")
    second = page(side, k, first.token, limit=1)
    t.check(second.names == ["d"] and second.version == first.version and not second.token, f"{second}")
    return {"rest": rest, "first": first, "second": [second.names, second.token]}


@entry(31, "a_malformed_token_is_a_bad_request")
def malformed(side, t):
    """No key, version 0, another layout, an unclean path, not base64, not JSON."""
    cases = t.cases(31)
    t.check(len(cases) >= 12, f"{len(cases)} cases")
    out = {c.name: side.ask(c) for c in cases}
    for name, got in out.items():
        refused(t, got, 400, "BadRequest", "continue key is not valid")
    return out


@entry(35, "pages_are_of_one_version_and_the_rest_may_be_asked_at_once", setup=FIVE)
@both
def continuation(side, t, k):
    """Three pages; and one page, then all that is left."""
    pages = follow(side, t, k, limit=2)
    t.check(joined(pages) == list("abcde") and len({p.version for p in pages}) == 1, f"{[(p.version, p.names) for p in pages]}")
    rest = page(side, k, pages[0].token)
    t.check(rest.names == ["c", "d", "e"] and rest.version == pages[0].version and not rest.token, f"{rest}")
    return {"first": pages[0], "names": [p.names for p in pages], "rest": rest.names}


def crowd(t):
    """Many pods, of which only the last matches."""
    from .. import fixtures
    make = lambda i: t.create(t.pods, fixtures.pod(f"p{i:03}", {"rare": "yes" if i == RARE - 1 else "no"}))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, range(RARE)))


RARE = 250


@entry(36, "a_rare_object_is_found_in_one_page", setup=crowd)
def rare(side, t):
    """A limit of 1 does not end the search early."""
    out = [side.get(query(t.pods, labelSelector="rare=yes", limit=1, **m)) for m in ({}, {"resourceVersion": 0}, {"resourceVersion": max(t.versions[f"p{RARE - 1:03}"])})]
    for got in out:
        t.check(got.names == [f"p{RARE - 1:03}"] and not got.token, f"{got.names} {got.token}")
    return out


@entry(37, "a_filtered_page_has_a_token_only_if_keys_remain", setup=labelled("AbCDe"))
@both
def filtered(side, t, k):
    """Keys that do not match count as remaining, so the last page may be empty."""
    pages = follow(side, t, k, labelSelector="pick!=no", limit=2)
    t.check([p.names for p in pages] == [["a", "c"], ["d"]], f"{[p.names for p in pages]}")
    pages += (odd := follow(side, t, k, labelSelector="pick!=no", limit=3))
    t.check([p.names for p in odd] == [["a", "c", "d"], []], f"{[p.names for p in odd]}")
    return pages


@entry(38, "an_expired_token_offers_an_inconsistent_one", needs="compaction", setup=FIVE)
@both
def inconsistent(side, t, k):
    """410 with a token that continues at the newest version, and then stays at one version."""
    refusal = refused(t, page(side, k, token(k.state[-1], "a\0"), limit=2), 410, "Expired", "The provided continue parameter is too old")
    offered = refusal.json()["metadata"]["continue"]
    parts = token_parts(offered)
    t.check(parts["rv"] == -1 and parts["start"].lstrip("/") == "a\0", f"{parts}")
    first = page(side, k, offered, limit=2)
    t.check(first.names == ["b", "c"] and token_parts(first.token)["rv"] == first.version >= t.compacted, f"{first}")
    second = page(side, k, first.token, limit=2)
    t.check(second.names == ["d", "e"] and second.version == first.version, f"{second}")
    return {"refusal": refusal, "first": first, "second": second.names}


@entry(40, "objects_made_between_pages_do_not_appear", live=True, setup=FIVE)
@both
def stable(side, t, k):
    """Neither do updates and deletions: the pages show the state of the first page."""
    first = page(side, k, limit=2)

    def writes():
        t.create(k.collection, k.make("c1", {}))
        t.label(k.at("d"), late="yes")
        t.delete(k.at("e"))
    t.once(writes)
    pages = follow(side, t, k, first, limit=2)
    t.check(joined(pages) == list("abcde") and {p.version for p in pages} == {first.version}, f"{[(p.version, p.names) for p in pages]}")
    t.check(all(v <= first.version for p in pages for v in contents(p).values()), "an item newer than its page")
    now = page(side, k)
    t.check(now.names == ["a", "b", "c", "c1", "d"], f"{now.names}")
    return {"pages": [p.items for p in pages], "now": now}


@entry(47, "only_version_zero_switches_the_limit_off", setup=FIVE)
@both
def limits(side, t, k):
    """Every other version keeps the limit."""
    now = k.state[-1]
    kept = [page(side, k, limit=2, **m) for m in ({}, {"resourceVersion": now}, {"resourceVersion": now, **EXACT}, {"resourceVersion": now, **NOT_OLDER})]
    kept.append(page(side, k, token(now, "a\0"), limit=2))
    for got in kept:
        t.check(len(got.items) == 2 and got.token, f"{got}")
    off = [page(side, k, limit=2, resourceVersion=0), page(side, k, token(now, "a\0"), limit=2, resourceVersion=0)]
    t.check([len(g.items) for g in off] == [5, 4] and not any(g.token for g in off), f"{[g.names for g in off]}")
    return kept + off
