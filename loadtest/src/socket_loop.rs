//! The floor: a server that writes each event to each client with one system call, and does nothing else.
//!
//! It answers a list with an empty one and a watch with everything after the asked version, so the same swarm can check it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::cli::SocketLoop;
use crate::recorder::now_ns;
use crate::wire::event::WRITTEN_AT;

const LISTENER: Token = Token(usize::MAX);
/// Longest request that is read.
const REQUEST_LEN_MAX: usize = 8 * 1024;
/// Events that are kept for late clients; the run is over long before.
const EVENTS_MAX: usize = 1 << 18;
/// Bytes that are kept, for the same reason.
const EVENTS_LEN_MAX: usize = 1 << 30;
/// Keeps the loop from waiting past its end.
const WAIT_MAX: Duration = Duration::from_millis(100);

struct Peer {
    socket: TcpStream,
    request: Vec<u8>,
    /// Next event to write, and how many of its bytes are written; `None` before the watch begins.
    place: Option<(usize, usize)>,
    writable: bool,
    lose_one_in: Option<usize>,
}

struct Loop {
    poll: Poll,
    listener: TcpListener,
    peers: HashMap<usize, Peer>,
    next_token: usize,
    /// Framed as HTTP chunks; event `i` has version `i + 1`.
    events: Vec<Vec<u8>>,
    events_len: usize,
    event_len: usize,
    lose_one_in: Option<usize>,
}

/// Serves until its time is over.
///
/// # Errors
/// If the address cannot be listened on.
pub fn run(flags: &SocketLoop) -> Result<()> {
    let mut listener = TcpListener::bind(flags.listen)?;
    let poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("http://{}", listener.local_addr()?);
    let mut server = Loop {
        poll,
        listener,
        peers: HashMap::new(),
        next_token: 0,
        events: Vec::new(),
        events_len: 0,
        event_len: flags.event_size,
        lose_one_in: flags.lose_one_in,
    };
    let begun = Instant::now();
    let interval = Duration::from_secs_f64(1.0 / flags.rate.max(0.01));
    let mut due = begun + interval;
    let mut ready = Events::with_capacity(1024);
    while begun.elapsed() < flags.duration {
        let wait = due.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        match server.poll.poll(&mut ready, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &ready {
            if event.token() == LISTENER {
                server.accept()?
            } else {
                server.peer_ready(event.token().0, event.is_writable())
            }
        }
        if Instant::now() >= due
            && server.events.len() < EVENTS_MAX
            && server.events_len < EVENTS_LEN_MAX
        {
            // A tick that takes longer than the interval delays the next: the loop measures cost, and owes nobody a rate.
            due = (due + interval).max(Instant::now());
            server.tick();
        }
    }
    Ok(())
}

impl Loop {
    fn accept(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((mut socket, _)) => {
                    socket.set_nodelay(true)?;
                    let token = self.next_token;
                    self.next_token += 1;
                    self.poll.registry().register(
                        &mut socket,
                        Token(token),
                        Interest::READABLE | Interest::WRITABLE,
                    )?;
                    // The first client is the load test's reference: it gets everything.
                    let lose_one_in = self.lose_one_in.filter(|_| token % 2 == 1);
                    self.peers.insert(
                        token,
                        Peer {
                            socket,
                            request: Vec::new(),
                            place: None,
                            writable: true,
                            lose_one_in,
                        },
                    );
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn peer_ready(&mut self, token: usize, writable: bool) {
        let Some(peer) = self.peers.get_mut(&token) else {
            return;
        };
        peer.writable |= writable;
        let version = self.events.len();
        let alive = peer.read(version) && peer.write(&self.events);
        if !alive {
            self.peers.remove(&token);
        }
    }

    fn tick(&mut self) {
        let event = frame(self.events.len() + 1, self.event_len);
        self.events_len += event.len();
        self.events.push(event);
        let events = &self.events;
        self.peers.retain(|_, peer| peer.write(events));
    }
}

impl Peer {
    /// Reads requests; false when the peer is gone.
    fn read(&mut self, version: usize) -> bool {
        let mut buffer = [0; 2048];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(len) => self.request.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
            if self.request.len() > REQUEST_LEN_MAX {
                return false;
            }
            if self.request.ends_with(b"\r\n\r\n") && !self.answer(version) {
                return false;
            }
        }
    }

    fn answer(&mut self, version: usize) -> bool {
        let request = String::from_utf8_lossy(&self.request).into_owned();
        self.request = Vec::new();
        let reply = if request.contains("watch=1") {
            let from = request.split("resourceVersion=").nth(1).and_then(|rest| {
                rest.split(|c: char| !c.is_ascii_digit())
                    .next()?
                    .parse()
                    .ok()
            });
            self.place = Some((from.unwrap_or(version), 0));
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        } else {
            let list = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
            );
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{list}",
                list.len()
            )
        };
        // The first bytes on a fresh or idle connection always fit its send buffer.
        self.socket
            .write(reply.as_bytes())
            .is_ok_and(|len| len == reply.len())
    }

    /// One write for every event that the peer has not got; false when it is gone.
    fn write(&mut self, events: &[Vec<u8>]) -> bool {
        let Some((mut next, mut offset)) = self.place else {
            return true;
        };
        while self.writable && next < events.len() {
            if offset == 0 && self.lose_one_in.is_some_and(|n| (next + 1) % n.max(1) == 0) {
                next += 1;
                continue;
            }
            match self.socket.write(&events[next][offset..]) {
                Ok(len) => offset += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(_) => return false,
            }
            if offset == events[next].len() {
                (next, offset) = (next + 1, 0);
            }
        }
        self.place = Some((next, offset));
        true
    }
}

/// An event of `len` bytes, as one HTTP chunk.
fn frame(version: usize, len: usize) -> Vec<u8> {
    let at = now_ns();
    let before = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"cm-0","namespace":"default","resourceVersion":"{version}","annotations":{{"{WRITTEN_AT}":"{at}"}}}},"data":{{"padding":""#
    );
    let after = "\"}}}\n";
    let padding = "x".repeat(len.saturating_sub(before.len() + after.len()));
    let line_len = before.len() + padding.len() + after.len();
    format!("{line_len:x}\r\n{before}{padding}{after}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    //! The loop's frames are what the swarm reads.

    use super::*;
    use crate::wire::event::{Event, Kind};
    use crate::wire::response::Response;

    #[test]
    fn a_frame_is_a_chunk_with_one_event_of_the_asked_length() {
        for len in [300, 1_024, 5_000] {
            let text = [
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
                frame(9, len),
            ]
            .concat();
            let mut body = Vec::new();
            Response::default()
                .feed(&text, |_, data| body.extend_from_slice(data))
                .unwrap();
            assert_eq!(body.len(), len);
            assert_eq!(body.pop(), Some(b'\n'));
            let event = Event::parse_fully(&body).unwrap();
            assert_eq!((event.kind, event.version), (Kind::Modified, 9));
            assert_eq!(Event::parse(&body).unwrap(), event);
        }
    }
}
