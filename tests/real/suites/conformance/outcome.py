"""Compares a test's results for the server with those for the endpoint under test.

Responses and streams are compared by comparison.py; only the parts that it lists are masked. A list
that a cache may answer has its own version checked against bounds."""
from ..comparison import Case, compare_answers, compare_streams, masked, shown
from .asking import Events, Response, Watch

END_SECONDS = 20  # in which the other side must end a watch too; a busy machine opens one much later than the other


def differences(left, right, newest_known, at="outcome"):
    """The differences; NEWEST_KNOWN is the newest version that a cached list may have."""
    if isinstance(left, Response) and isinstance(right, Response):
        return _headed(left, compare_answers(_case(left, right.at_least, left.target != right.target), left, right, newest_known))
    if isinstance(left, (Watch, Events)) and isinstance(right, (Watch, Events)):
        a, b = (w.watch if isinstance(w, Events) else w for w in (left, right))
        if alone := _ended_alone(a, b):
            return _headed(a, alone)
        return _headed(a, compare_streams(Case(at, a.target, a.stream.headers_sent, watch=True, random_retry=a.random_retry), a.stream, b.stream))
    if isinstance(left, dict) and isinstance(right, dict) and list(left) == list(right):
        return [d for k in left for d in differences(left[k], right[k], newest_known, f"{at}.{k}")]
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
        return [d for i, (a, b) in enumerate(zip(left, right)) for d in differences(a, b, newest_known, f"{at}[{i}]")]
    a, b = _plain(left), _plain(right)
    return [] if a == b else [f"{at}: server {shown(str(a), 600)}, under test {shown(str(b), 600)}"]


def _ended_alone(a, b):
    """A watch that a test has finished with may end by itself, but then at both sides. Afterwards it is closed."""
    for ended, other in ((a, b), (b, a)):
        if other.left_open and ended.end and not other.ended_within(END_SECONDS):
            return [f"one side has ended the watch ({ended.stream.endpoint.name}: {ended.end}), the other has not ({other.stream.endpoint.name})"]
    for watch in (a, b):
        if watch.left_open:
            watch.close()
    return []


def _case(response, at_least, own_token):
    """AT_LEAST: each side received the request at its own time. OWN_TOKEN: each side received its own token, so the versions are those of
    each side's first page."""
    return Case("", response.target, cached=(response.cached or own_token) and _is_list(response), at_least=at_least)


def _is_list(response):
    """Only a list has a version of its own that a cache chooses."""
    head = response.body[:4000]
    return b"k8s\x00" == head[:4] or any(word in head or word in response.body[-400:] for word in (b'List"', b'"Table"', b"List\nmetadata:\n"))


def _headed(thing, found):
    return [thing.target, *found] if found else []


def _plain(value):
    if isinstance(value, bytes):
        return masked(value)
    if isinstance(value, str):
        return masked(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    if isinstance(value, (Response, Watch, Events)):
        return f"{type(value).__name__} {value}"
    return value
