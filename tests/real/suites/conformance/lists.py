"""Entries 1-60: lists."""
from .. import fixtures
from ..differential.lists import FUTURE
from .framework import entry, query


def a_pod(t):
    t.create(t.pods, fixtures.pod("p1"))


@entry(1, "list_rejects_an_invalid_resource_version", setup=a_pod)
def invalid_version(side, t):
    """A version that is no unsigned 64-bit number is a bad request."""
    got = {text: side.get(query(t.pods, resourceVersion=text)) for text in ("abc", "-1", "1.5", "99999999999999999999", " 1", "0x10", "+1")}
    for text, answer in got.items():
        t.check(answer.status == 400 and answer.reason == "BadRequest" and "invalid resource version" in answer.message, f"{text!r}: {answer}")
    return got


@entry(3, "list_from_the_future_is_a_timeout_with_its_cause", setup=a_pod)
def future(side, t):
    """A version that never comes: 504 with the cause ResourceVersionTooLarge."""
    got = side.get(query(t.pods, resourceVersion=FUTURE))
    t.check(got.status == 504 and got.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", f"{got}")
    return got
