//! The floor: a server that writes each event to each client with one system call, and does nothing else. With TLS it is rustls that
//! it does besides; with several events a write, they leave together.
//!
//! It answers a list with an empty one and a watch with everything after the asked version, so the same swarm can check it.

mod pipe;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;

use pipe::{Pipe, certified};

use crate::cli::SocketLoop;
use crate::recorder::now_ns;
use crate::wire::event::WRITTEN_AT;

const LISTENER: Token = Token(usize::MAX);
/// Longest request that is read.
const REQUEST_LEN_MAX: usize = 8 * 1024;
/// Writes that are kept for late clients; the run is over long before.
const PIECES_MAX: usize = 1 << 18;
/// Bytes that are kept, for the same reason.
const PIECES_LEN_MAX: usize = 1 << 30;
/// Keeps the loop from waiting past its end.
const WAIT_MAX: Duration = Duration::from_millis(100);

struct Peer {
    pipe: Pipe,
    request: Vec<u8>,
    /// Next piece to write, and how many of its bytes are written; `None` before the watch begins.
    place: Option<(usize, usize)>,
    lose_one_in: Option<usize>,
}

struct Loop {
    poll: Poll,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    peers: HashMap<usize, Peer>,
    next_token: usize,
    tape: Tape,
    lose_one_in: Option<usize>,
}

/// What is written to every client.
struct Tape {
    /// Each framed as one HTTP chunk of as many events as leave in one write.
    pieces: Vec<Vec<u8>>,
    pieces_len: usize,
    event_len: usize,
    events_per_write: usize,
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
    let address = listener.local_addr()?;
    let tls = if flags.tls {
        let (certificate, config) = certified(&address.ip().to_string())?;
        println!("https://{address}\n{}", certificate.trim_end());
        Some(config)
    } else {
        println!("http://{address}");
        None
    };
    let mut server = Loop {
        poll,
        listener,
        tls,
        peers: HashMap::new(),
        next_token: 0,
        tape: Tape {
            pieces: Vec::new(),
            pieces_len: 0,
            event_len: flags.event_size,
            events_per_write: flags.events_per_write.max(1),
        },
        lose_one_in: flags.lose_one_in,
    };
    let begun = Instant::now();
    let interval =
        Duration::from_secs_f64(server.tape.events_per_write as f64 / flags.rate.max(0.01));
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
        if Instant::now() >= due && server.tape.has_room() {
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
                            pipe: Pipe::new(socket, self.tls.as_ref())?,
                            request: Vec::new(),
                            place: None,
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
        if writable {
            peer.pipe.has_room();
        }
        let alive =
            peer.pipe.flush().is_ok() && peer.read(&self.tape) && peer.write(&self.tape.pieces);
        if !alive {
            self.peers.remove(&token);
        }
    }

    fn tick(&mut self) {
        self.tape.extend();
        let pieces = &self.tape.pieces;
        self.peers.retain(|_, peer| peer.write(pieces));
    }
}

impl Tape {
    fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX && self.pieces_len < PIECES_LEN_MAX
    }

    /// The newest event's version: they count from 1.
    fn version(&self) -> usize {
        self.pieces.len() * self.events_per_write
    }

    fn extend(&mut self) {
        let versions = self.version() + 1..=self.version() + self.events_per_write;
        let lines: Vec<u8> = versions
            .flat_map(|version| line(version, self.event_len))
            .collect();
        let piece = chunk(&lines);
        self.pieces_len += piece.len();
        self.pieces.push(piece);
    }
}

impl Peer {
    /// Reads requests; false when the peer is gone.
    fn read(&mut self, tape: &Tape) -> bool {
        self.pipe.read(&mut self.request)
            && self.request.len() <= REQUEST_LEN_MAX
            && (!self.request.ends_with(b"\r\n\r\n") || self.answer(tape))
    }

    fn answer(&mut self, tape: &Tape) -> bool {
        let version = tape.version();
        let request = String::from_utf8_lossy(&self.request).into_owned();
        self.request = Vec::new();
        let reply = if request.contains("watch=1") {
            let from = request.split("resourceVersion=").nth(1).and_then(|rest| {
                rest.split(|c: char| !c.is_ascii_digit())
                    .next()?
                    .parse()
                    .ok()
            });
            let from = from.unwrap_or(version);
            // Whole pieces only. Who lost its connection within one has failed anyway.
            if !from.is_multiple_of(tape.events_per_write) {
                return false;
            }
            self.place = Some((from / tape.events_per_write, 0));
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
        self.pipe
            .send(reply.as_bytes())
            .is_ok_and(|len| len == reply.len())
    }

    /// One write for every piece that the peer has not got; false when it is gone.
    fn write(&mut self, pieces: &[Vec<u8>]) -> bool {
        let Some((mut next, mut offset)) = self.place else {
            return true;
        };
        while self.pipe.is_writable() && next < pieces.len() {
            if offset == 0 && self.lose_one_in.is_some_and(|n| (next + 1) % n.max(1) == 0) {
                next += 1;
                continue;
            }
            match self.pipe.send(&pieces[next][offset..]) {
                Ok(len) => offset += len,
                Err(_) => return false,
            }
            if offset == pieces[next].len() {
                (next, offset) = (next + 1, 0);
            }
        }
        self.place = Some((next, offset));
        true
    }
}

/// An event of `len` bytes.
fn line(version: usize, len: usize) -> Vec<u8> {
    let at = now_ns();
    let before = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"cm-0","namespace":"default","resourceVersion":"{version}","annotations":{{"{WRITTEN_AT}":"{at}"}}}},"data":{{"padding":""#
    );
    let after = "\"}}}\n";
    let padding = "x".repeat(len.saturating_sub(before.len() + after.len()));
    format!("{before}{padding}{after}").into_bytes()
}

/// Some lines as one HTTP chunk.
fn chunk(lines: &[u8]) -> Vec<u8> {
    let size = format!("{:x}\r\n", lines.len());
    [size.as_bytes(), lines, b"\r\n"].concat()
}

#[cfg(test)]
mod tests;
