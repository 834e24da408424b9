"""The part of protobuf that is needed to mask the resource version of a message: splitting it into fields."""

MAGIC = b"k8s\x00"


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """[(number, value)]: value is an int, or the bytes of a length-delimited or fixed field."""
    out, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value, at = data[at:at + size], at + size
        out.append((tag >> 3, value))
    return out


def first(parts, number, default=b""):
    return next((v for n, v in parts if n == number), default)


def unwrap(data):
    """(type meta, raw object) of a magic-prefixed Unknown message."""
    if not data.startswith(MAGIC):
        raise ValueError("no protobuf magic")
    parts = fields(data[4:])
    return first(parts, 1), first(parts, 2)


def event(frame):
    """(type, wrapped object) of a WatchEvent message."""
    parts = fields(frame)
    return first(parts, 1).decode(), first(fields(first(parts, 2)), 1)


def object_version(raw):
    """metadata.resourceVersion of an object (field 1: ObjectMeta, its field 6)."""
    return first(fields(first(fields(raw), 1)), 6).decode()


def without(parts, *numbers):
    return [(n, v) for n, v in parts if n not in numbers]


def strings(parts, number):
    """A map<string, string> field: each entry is a message of key (1) and value (2)."""
    entries = [fields(v) for n, v in parts if n == number]
    return {first(e, 1).decode(): first(e, 2).decode() for e in entries}
