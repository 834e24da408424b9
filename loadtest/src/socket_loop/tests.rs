//! The swarm can read the loop's pieces.

use std::io::Read;

use mio::net::TcpStream;

use super::*;
use crate::wire::event::{Event, EventKind};
use crate::wire::response::Response;

fn chunks(tape: &EventLog) -> Vec<u8> {
    let chunks = tape.pieces.iter().map(|piece| &*piece.chunk);
    chunks.collect::<Vec<_>>().concat()
}

/// A log of this many events of this length, and a peer at its start with the other end of its socket.
fn behind(events: usize, len: usize) -> (EventLog, Peer, std::net::TcpStream) {
    let mut tape = EventLog::new(len);
    let due = Instant::now();
    (0..events).for_each(|_| tape.extend(due));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let peer = Peer {
        pipe: Pipe::new(TcpStream::from_std(socket), None).unwrap(),
        request: Vec::new(),
        place: Some((0, 0)),
        http2: None,
    };
    (tape, peer, client)
}

/// Number of this thread's write system calls, as the kernel counts them.
fn writes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("syscw: "));
    count.unwrap().parse().unwrap()
}

#[test]
fn pending_events_leave_with_one_system_call() {
    let (tape, mut peer, mut client) = behind(50, 1_024);
    let before = writes();
    assert!(peer.write(&tape));
    assert_eq!(writes() - before, 1, "one system call");
    let mut got = vec![0; chunks(&tape).len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == chunks(&tape));
    assert_eq!(peer.place, Some((50, 0)));
}

#[test]
fn a_peer_without_room_goes_on_where_it_was() {
    // Each is more than a socket accepts at once.
    let (tape, mut peer, mut client) = behind(8, 4 << 20);
    let expected = chunks(&tape);
    let len = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; len];
        client.read_exact(&mut got).unwrap();
        got
    });
    while peer.place != Some((8, 0)) {
        peer.pipe.has_room();
        assert!(peer.write(&tape));
        std::thread::yield_now();
    }
    assert!(reader.join().unwrap() == expected);
}

#[test]
fn a_piece_is_a_chunk_with_an_event_of_the_requested_length() {
    for len in [300, 1_024, 5_000] {
        let mut tape = EventLog::new(len);
        tape.extend(Instant::now());
        tape.extend(Instant::now());
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let text = [&head[..], &chunks(&tape)].concat();
        let mut body = Vec::new();
        Response::default()
            .feed(&text, |_, data| body.extend_from_slice(data))
            .unwrap();
        assert_eq!(body.len(), len * 2);
        for (at, line) in body.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\n").unwrap();
            let event = Event::parse_fully(line).unwrap();
            assert_eq!(
                (event.kind, event.version),
                (EventKind::Modified, at as u64 + 1)
            );
            assert_eq!(Event::parse(line).unwrap(), event);
        }
        assert_eq!(tape.version(), 2);
    }
}
