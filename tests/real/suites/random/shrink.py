"""The smallest request that still shows the same difference."""
from dataclasses import replace
from urllib.parse import quote, unquote_plus

TRIES_MAX = 60


def smaller(request):
    """Requests with one part less, the biggest steps first."""
    for i in range(len(request.headers)):
        yield replace(request, headers=request.headers[:i] + request.headers[i + 1:])
    pairs = request.pairs()
    for i, one in enumerate(pairs):
        if not (request.asks_watch() and one.startswith("timeoutSeconds=")):  # it ends the watch
            yield request.with_pairs(pairs[:i] + pairs[i + 1:])
    if request.body:
        yield replace(request, body=b"")
    for i, (name, value) in enumerate(request.headers):
        for text in parts_less(value, ",;"):
            yield replace(request, headers=(*request.headers[:i], (name, text), *request.headers[i + 1:]))
    for i, one in enumerate(pairs):
        name, _, value = one.partition("=")
        if name in ("labelSelector", "fieldSelector"):
            for text in parts_less(unquote_plus(value), ","):
                yield request.with_pairs([*pairs[:i], f"{name}={quote(text, safe='')}", *pairs[i + 1:]])


def parts_less(text, separators):
    for separator in separators:
        parts = text.split(separator)
        for i in range(len(parts)):
            if len(parts) > 1:
                yield separator.join(parts[:i] + parts[i + 1:])


def shrink(request, differs):
    """DIFFERS(request) is true while the difference persists; it is called a bounded number of times."""
    tries, again = 0, True
    while again:
        again = False
        for candidate in smaller(request):
            if tries == TRIES_MAX:
                return request
            tries += 1
            if differs(candidate):
                request, again = candidate, True
                break
    return request
