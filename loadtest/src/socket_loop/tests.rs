//! The swarm can read the loop's pieces, plain and with TLS.

use std::io::{Read, Write};

use mio::net::TcpStream;

use super::*;
use crate::target::Target;
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
        lose_one_in: None,
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
    peer.lose_one_in = Some(7);
    let mut expected = Vec::new();
    for (number, piece) in tape.pieces.iter().enumerate() {
        if (number + 1) % 7 > 0 {
            expected.extend_from_slice(&piece.chunk);
        }
    }
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
fn a_late_event_says_when_it_was_due() {
    let due = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
    let line = line(1, 300, due);
    let event = Event::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
    assert!(event.write.unwrap().late_ns >= 3_000_000_000);
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

#[test]
fn with_tls_the_bytes_are_the_same() {
    let (certificate, config) = self_signed("127.0.0.1").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = Target::trusting(&format!("https://{address}"), certificate.as_bytes()).unwrap();
    let tls = target.tls.unwrap();
    let client = rustls::ClientConnection::new(tls.config("http/1.1"), tls.name).unwrap();
    let client = std::thread::spawn(move || {
        let socket = std::net::TcpStream::connect(address).unwrap();
        let mut stream = rustls::StreamOwned::new(client, socket);
        stream.write_all(b"GET\r\n\r\n").unwrap();
        let mut answer = vec![0; 40_000];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut pipe = Pipe::new(TcpStream::from_std(socket), Some(&config)).unwrap();
    let piece: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    let mut request = Vec::new();
    // Ends with the client's timeout at the latest: its read fails when the pipe is dropped.
    while request.is_empty() {
        assert!(pipe.read(&mut request));
        std::thread::yield_now();
    }
    assert_eq!(request, b"GET\r\n\r\n");
    let mut sent = 0;
    while sent < piece.len() {
        pipe.has_room();
        sent += pipe.send(&piece[sent..]).unwrap();
    }
    while !client.is_finished() {
        pipe.has_room();
        pipe.flush().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(client.join().unwrap(), piece);
}
