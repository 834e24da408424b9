"""Requests are generated, sent and judged as they should be."""
import socket
import tempfile
import threading
import unittest
import zlib
from pathlib import Path

from .. import wire
from ..known import Known
from .exchange import Received, fetch, socket_frames, unpack
from .generate import generate
from .judge import cached, compare, kind
from .random_test import cut_short, patient
from .request import Request
from .shrink import shrink
from .world import World

HEAD = {"content-type": "application/json", "audit-id": "x"}
EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"%s","resourceVersion":"%d"}}}\n'


def received(body, status=200, end="clean", **headers):
    got = Received(status, {**HEAD, **{k.replace("_", "-"): v for k, v in headers.items()}})
    got.body, got.end = body, end
    return got


def listed(version, item=5):
    return received(b'{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"name":"p","resourceVersion":"%d"}}]}\n' % (version, item))


class Judging(unittest.TestCase):
    def check(self, target, left, right, equal, headers=()):
        found = compare(Request("GET", target, headers), left, right, 50)
        self.assertEqual(not found, equal, found)

    def test_every_header_counts_but_the_free_ones(self):
        self.check("/x", received(b"a"), received(b"a", date="now", content_length="1", audit_id="y"), True)
        self.check("/x", received(b"a"), received(b"a", x_new="1"), False)
        self.check("/x", received(b"a"), received(b"a", content_type="text/plain"), False)

    def test_an_audit_id_that_was_sent_comes_back(self):
        self.check("/x", received(b"a", audit_id="mine"), received(b"a", audit_id="other"), False, (("Audit-ID", "mine"),))
        self.check("/x", received(b"a", audit_id="1"), received(b"a", audit_id="2"), True, (("Audit-ID", ""),))

    def test_only_a_cached_list_has_a_free_version(self):
        for target in ("/p?resourceVersion=0", "/p?resourceVersion=7", "/p?resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1"):
            self.check(target, listed(40), listed(30), True)
            self.check(target, listed(40), listed(51), False)  # newer than the server
            self.check(target, listed(40), listed(30, 6), False)
        self.check("/p?resourceVersion=31", listed(40), listed(30), False)  # older than requested
        for target in ("/p", "/p?resourceVersion=7&resourceVersionMatch=Exact", "/p?resourceVersion=7&limit=1", "/p?resourceVersion=0&continue=x", "/p?resourceVersion=", "/p?a;resourceVersion=0"):
            self.check(target, listed(40), listed(30), False)

    def test_events_and_the_end_of_a_stream_count(self):
        one, two = EVENT % (b"a", 1), EVENT % (b"b", 2)
        self.check("/p?watch=1", received(one + two), received(one + two), True)
        self.check("/p?watch=1", received(one + two), received(one), False)
        self.check("/p?watch=1", received(one), received(one, end="cut: x"), False)
        self.check("/p?watch=1", received(one), received(one + b"{"), False)

    def test_a_watch_without_time_may_get_any_beginning(self):
        one, two = EVENT % (b"a", 1), EVENT % (b"b", 2)
        self.check("/p?watch=1&timeoutSeconds=-1", received(one + two), received(one), True)
        self.check("/p?watch=1&timeoutSeconds=-1", received(one + two), received(two), False)

    def test_a_short_watch_that_sent_less_gets_more_time(self):
        one, two = EVENT % (b"a", 1), EVENT % (b"b", 2)
        short = Request("GET", "/p?watch=1&timeoutSeconds=1")
        self.assertTrue(cut_short(short, received(one + two), received(one)))
        self.assertFalse(cut_short(short, received(one), received(two)))
        self.assertFalse(cut_short(short, received(one), received(one)))
        self.assertFalse(cut_short(patient(short), received(one + two), received(one)))  # extended once, not endlessly
        self.assertEqual("12", patient(short).option("timeoutSeconds"))

    def test_compressed_bodies_are_compared_unpacked(self):
        packed = [zlib.compressobj(level, wbits=31) for level in (1, 9)]
        sides = [received(p.compress(b"abc" * 99) + p.flush(), content_encoding="gzip") for p in packed]
        self.assertNotEqual(sides[0].body, sides[1].body)
        for side in sides:
            unpack(side)
        self.check("/x", *sides, True)
        still_open = received(sides[0].packed[:-9], end="open", content_encoding="gzip")
        unpack(still_open)
        self.assertEqual(still_open.end, "open")
        cut = received(sides[0].packed[:-9], content_encoding="gzip")
        unpack(cut)
        self.check("/x", sides[0], cut, False)

    def test_frames_of_a_web_socket(self):
        frames, rest = socket_frames(b"\x81\x02ab" + b"\x81\x7e\x00\x80" + b"c" * 128 + b"\x01\x01d\x80\x01e" + b"\x88\x02\x03\xe8")
        self.assertEqual(([b"ab", b"c" * 128, b"de"], b"\x88\x02\x03\xe8"), (frames, rest))


class Requests(unittest.TestCase):
    def test_options_are_read_as_the_server_reads_them(self):
        request = Request("GET", "/p?w;atch=1&%77atch=a+b&watch=0")
        self.assertEqual("a b", request.option("watch"))
        for target, asks in (("/p?watch", True), ("/p?watch=False", False), ("/p?watch=no", True), ("/p", False), ("/api/v1/watch/p", True)):
            self.assertEqual(asks, Request("GET", target).asks_watch(), target)

    def test_the_same_numbers_give_the_same_request(self):
        world = World(top=900, past=list(range(100, 900)))
        made = [generate(world, 3, i) for i in range(300)]
        self.assertEqual(made, [generate(world, 3, i) for i in range(300)])
        self.assertGreater(len(set(made)), 290)
        self.assertNotEqual(made, [generate(world, 4, i) for i in range(300)])

    def test_no_random_request_writes_or_stays(self):
        world = World(top=900, past=list(range(100, 900)))
        for i in range(3000):
            request = generate(world, 5, i)
            self.assertNotEqual("DELETE", request.method)
            seconds = request.option("timeoutSeconds")
            if request.asks_watch() and seconds.lstrip("+-").isdigit():
                self.assertLessEqual(int(seconds), 2, request)
                self.assertNotEqual(0, int(seconds), request)

    def test_shrinking_keeps_what_matters(self):
        request = Request("GET", "/p?a=1&labelSelector=x%2Cy%2Cz&b=2", (("Accept", "a,b;q=1"), ("X", "1")))
        small = shrink(request, lambda r: "y" in (r.option("labelSelector") or "") and any("b" in v for v in r.values("accept")))
        self.assertEqual(Request("GET", "/p?labelSelector=y", (("Accept", "b"),)), small)

    def test_a_pattern_names_differences(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "known")
            path.write_text("# none\nGET *[Expect: *]*: status* | why\nGET /x | other\n")
            known = Known(path)
        self.assertEqual("why", known.reason("GET /p [Expect: a]: status: server 417, under test 200"))
        self.assertIsNone(known.reason("GET /x?a"))
        self.assertEqual(["GET /x"], known.unused())
        self.assertEqual("bodies differ", kind(["bodies differ from byte 5 on (1 and 2 bytes)"]))
        self.assertEqual((True, 12), cached(Request("GET", "/p?resourceVersion=0012")))


class Fetching(unittest.TestCase):
    def test_an_endless_stream_is_read_for_a_while(self):
        server = socket.create_server(("127.0.0.1", 0))

        def serve():
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                peer.recv(1)
        threading.Thread(target=serve, daemon=True).start()
        with server:
            got = fetch(wire.Endpoint("server", *server.getsockname()), Request("GET", "/p?watch=1"), 0.3)
        self.assertEqual(("open", b"first"), (got.end, got.body))
