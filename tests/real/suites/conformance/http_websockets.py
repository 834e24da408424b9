"""Entries 128 and 129: watches over WebSocket."""
from .. import fixtures
from .framework import entry, query
from .http import ONE
from .streams import FormWatch, seeded, watch
from .websocket import ACCEPTED, BINARY, HANDSHAKE, TEXT

CONNECTIONS = [  # headers of a request: whether it becomes a WebSocket
    ({}, True), ({"Connection": "upgrade"}, True), ({"Connection": "keep-alive, Upgrade"}, True), ({"Connection": "UPGRADE"}, True), ({"Upgrade": "WebSocket"}, True), ({"Upgrade": "WEBSOCKET"}, True),
    ({"Connection": "keep-alive"}, False), ({"Connection": None}, False), ({"Upgrade": None}, False), ({"Upgrade": "h2c"}, False), ({"Upgrade": "websockets"}, False), ({"Connection": "Upgrades"}, None), ({"Sec-WebSocket-Protocol": "a"}, True), ({"Sec-WebSocket-Protocol": "a, b"}, None),
]


@entry(128, "headers_decide_between_websocket_and_http", setup=seeded)
def protocol_selection(side, t):
    """Connection and Upgrade in every spelling; lists ignore them; an incomplete request for WebSocket is refused."""
    out = []
    for change, upgraded in CONNECTIONS:
        headers = {k: v for k, v in {**HANDSHAKE, **change}.items() if v is not None}
        got = side.get(watch(t.pods, resourceVersion=t.state[t.pods], **ONE), headers)
        t.check(upgraded is None or (got.status == 101) == upgraded, f"{change}: {got} {got.headers}")
        if got.status == 101:
            t.check(got.headers.get("sec-websocket-accept") == ACCEPTED and got.headers["upgrade"].lower() == "websocket", f"{change}: {got.headers}")
        out.append([change, got.status, got.text(), got.headers.get("sec-websocket-protocol"), got.headers.get("sec-websocket-accept"), got.headers.get("content-type")])
    for missing in ("Origin", "Sec-WebSocket-Key", "Sec-WebSocket-Version"):
        got = side.get(watch(t.pods, resourceVersion=t.state[t.pods], **ONE), {k: v for k, v in HANDSHAKE.items() if k != missing})
        t.check(got.status in (400, 403), f"without {missing}: {got}")
        out.append([missing, got.status, got.text()])
    listed = side.get(query(t.pods, resourceVersion=0), HANDSHAKE)
    t.check(listed.names == ["seed"], f"{listed}")
    return [*out, listed]


@entry(129, "a_websocket_carries_one_event_a_message_and_ends_with_a_close", setup=seeded, live=True)
def websockets(side, t):
    """Text for JSON, binary for protobuf; data from the client is ignored; at the timeout the server closes with 1000."""
    opened = [FormWatch(side, form, watch(t.pods, resourceVersion=t.state[t.pods], timeoutSeconds=8)).opened() for form in ("websocket text", "websocket binary", "websocket metadata")]
    for stream in opened:
        t.check(stream.status == 101, f"{stream.form}: {stream.status} {stream.body}")
        stream.stream.send_text("ignored")
    versions = t.once(lambda: [t.create(t.pods, fixtures.pod("a")), t.label(f"{t.pods}/a", n="1")])
    out = []
    for stream in opened:
        got = [stream.next(), stream.next()]
        t.check([(e.type, e.name, e.version) for e in got] == [("ADDED", "a", versions[0]), ("MODIFIED", "a", versions[1])], f"{stream.form}: {got}")
        stream.wait_end()
        opcode = BINARY if stream.binary else TEXT
        t.check(stream.stream.opcodes == [opcode] * 2 and stream.end == "clean" and stream.stream.close_code == 1000, f"{stream.form}: {stream.stream.opcodes}, {stream.end}, {stream.stream.close_code}")
        out.append([stream.raw(), stream.end, stream.stream.close_code])
    return out


@entry(129, "a_client_that_closes_its_websocket_ends_the_watch", setup=seeded, live=True)
def client_closes(side, t):
    """With a close frame or by disconnecting: the side ends the stream too, others continue."""
    closes, goes, stays = [FormWatch(side, "websocket text", watch(t.pods, resourceVersion=t.state[t.pods])).opened() for _ in range(3)]
    closes.stream.send_close()
    goes.close()
    closes.wait_end()
    version = t.once(lambda: t.label(f"{t.pods}/seed", n="1"))
    event = stays.next()
    t.check((event.type, event.version) == ("MODIFIED", version) and closes.frames == [], f"{event}, {closes.frames}")
    return [stays.raw(), closes.end == "clean" or closes.end.startswith("cut")]
