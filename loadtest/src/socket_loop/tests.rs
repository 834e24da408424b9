//! The loop's pieces are what the swarm reads, plain and with TLS.

use std::io::{Read, Write};

use mio::net::TcpStream;

use super::*;
use crate::target::Target;
use crate::wire::event::{Event, Kind};
use crate::wire::response::Response;

#[test]
fn a_piece_is_a_chunk_of_events_of_the_asked_length() {
    for (len, events_per_write) in [(300, 1), (1_024, 16), (5_000, 3)] {
        let mut tape = Tape {
            pieces: Vec::new(),
            pieces_len: 0,
            event_len: len,
            events_per_write,
        };
        tape.extend();
        tape.extend();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let text = [&head[..], &tape.pieces.concat()].concat();
        let mut body = Vec::new();
        Response::default()
            .feed(&text, |_, data| body.extend_from_slice(data))
            .unwrap();
        assert_eq!(body.len(), len * events_per_write * 2);
        for (at, line) in body.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\n").unwrap();
            let event = Event::parse_fully(line).unwrap();
            assert_eq!((event.kind, event.version), (Kind::Modified, at as u64 + 1));
            assert_eq!(Event::parse(line).unwrap(), event);
        }
        assert_eq!(tape.version(), events_per_write * 2);
    }
}

#[test]
fn with_tls_the_bytes_are_the_same() {
    let (certificate, config) = certified("127.0.0.1").unwrap();
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
    // Ends with the client's patience at the latest: its read fails when the pipe is dropped.
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
