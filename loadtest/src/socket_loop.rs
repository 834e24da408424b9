//! The floor: a server that only writes events to sockets. Everything that is pending for a client leaves with one system call, as from a
//! server that batches. With TLS rustls encrypts it; over HTTP/2 the server writes frames.
//!
//! It answers a list with an empty one, and a watch with all events after the requested version, so that the same swarm can verify it. It
//! keeps its rate: late events are written together as soon as possible, and carry the time when they were due.

mod http2;
mod pipe;

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, Write as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;

use pipe::{Pipe, self_signed};

use crate::cli::seconds;
use crate::command::Subcommand;
use crate::recorder::now_ns;
use crate::wire::event::{WRITTEN_AT, WriteTime};
use http2::Http2Connection;

const LISTENER: Token = Token(usize::MAX);
/// Longest request that is accepted.
const REQUEST_LEN_MAX: usize = 8 * 1024;
/// Number of pieces that are kept for late clients; a run ends long before.
const PIECES_MAX: usize = 1 << 18;
/// Bytes of all pieces that are kept.
const PIECES_LEN_MAX: usize = 1 << 30;
/// Pieces of one system call.
const PIECES_PER_WRITE: usize = 64;
/// Share of the due events or writes below which the rate counts as missed.
pub const RATE_MET: f64 = 0.95;
/// Longest wait for events, so that the loop ends in time.
const WAIT_MAX: Duration = Duration::from_millis(100);

struct Peer {
    pipe: Pipe,
    request: Vec<u8>,
    /// Next piece to write, and how many of its bytes are written; `None` before the watch starts.
    place: Option<(usize, usize)>,
    /// The HTTP/2 connection, if the client sent its preface.
    http2: Option<Box<Http2Connection>>,
}

/// An event, framed as one chunk of HTTP/1.1.
struct Piece {
    chunk: Vec<u8>,
    /// Range of the line in the chunk.
    lines: Range<usize>,
}

struct Loop {
    poll: Poll,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    peers: HashMap<usize, Peer>,
    next_token: usize,
    tape: EventLog,
}

/// All events, which every client receives.
struct EventLog {
    pieces: Vec<Piece>,
    pieces_len: usize,
    event_len: usize,
    /// The version of the last list: HTTP/2 streams, whose requests are not parsed, start there.
    listed: usize,
}

/// The floor to compare with: a server that does one write per client and event, and nothing else.
#[derive(Debug, Clone, Parser)]
#[command(name = "socket-loop")]
pub struct SocketLoop {
    /// Where to listen; the URL is printed to standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Events a second.
    #[arg(long, default_value_t = 100.0)]
    pub rate: f64,
    /// Length of an event's line, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub event_size: usize,
    /// HTTPS, with a new certificate, which is printed behind the URL.
    #[arg(long)]
    pub tls: bool,
    /// End after this time.
    #[arg(long, default_value = "120s", value_parser = seconds)]
    pub duration: Duration,
}

impl Subcommand for SocketLoop {
    fn execute(&self) -> Result<bool> {
        run(self).map(|()| true)
    }
}

/// Serves until its time is over.
fn run(flags: &SocketLoop) -> Result<()> {
    let mut listener = TcpListener::bind(flags.listen)?;
    let poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let address = listener.local_addr()?;
    let tls = if flags.tls {
        let (certificate, config) = self_signed(&address.ip().to_string())?;
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
        tape: EventLog::new(flags.event_size),
    };
    let started = Instant::now();
    let interval = Duration::from_secs_f64(1.0 / flags.rate.max(0.01));
    let mut due = started + interval;
    let mut ready = Events::with_capacity(1024);
    while started.elapsed() < flags.duration {
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
        let mut is_late = false;
        while Instant::now() >= due && server.tape.has_room() {
            server.tape.extend(due);
            due += interval;
            is_late = true;
        }
        if is_late {
            server.tick();
        }
    }
    let achieved = server.tape.version() as f64 / started.elapsed().as_secs_f64();
    // The parent may be gone.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "events a second: {achieved:.2}");
    ensure!(
        achieved >= flags.rate * RATE_MET,
        "invalid: {achieved:.2} events a second, asked for {:.2}",
        flags.rate
    );
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
                    self.peers.insert(
                        token,
                        Peer {
                            pipe: Pipe::new(socket, self.tls.as_ref())?,
                            request: Vec::new(),
                            place: None,
                            http2: None,
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
            peer.pipe.flush().is_ok() && peer.read(&mut self.tape) && peer.write(&self.tape);
        if !alive {
            self.peers.remove(&token);
        }
    }

    fn tick(&mut self) {
        let tape = &self.tape;
        self.peers.retain(|_, peer| peer.write(tape));
    }
}

impl EventLog {
    const fn new(event_len: usize) -> Self {
        Self {
            pieces: Vec::new(),
            pieces_len: 0,
            event_len,
            listed: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX && self.pieces_len < PIECES_LEN_MAX
    }

    /// The newest event's version; versions count from 1.
    fn version(&self) -> usize {
        self.pieces.len()
    }

    /// Adds a piece that was due at this time.
    fn extend(&mut self, due: Instant) {
        let piece = Piece::of(&line(self.version() + 1, self.event_len, due));
        self.pieces_len += piece.chunk.len();
        self.pieces.push(piece);
    }
}

impl Peer {
    /// Reads requests; false when the peer is gone.
    fn read(&mut self, tape: &mut EventLog) -> bool {
        if !self.pipe.read(&mut self.request) {
            return false;
        }
        if self.http2.is_none() && self.request.starts_with(http2::PREFACE) {
            self.request.drain(..http2::PREFACE.len());
            self.http2 = Some(Box::default());
        }
        match &mut self.http2 {
            Some(http2) => http2.read(&mut self.request, tape),
            None => {
                self.request.len() <= REQUEST_LEN_MAX
                    && (!self.request.ends_with(b"\r\n\r\n")
                        || http2::PREFACE.starts_with(&self.request)
                        || self.answer(tape))
            }
        }
    }

    fn answer(&mut self, tape: &mut EventLog) -> bool {
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
            self.place = Some((from.unwrap_or(version), 0));
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        } else {
            tape.listed = version;
            let list = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
            );
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{list}",
                list.len()
            )
        };
        // The first bytes on a new or idle connection always fit into its send buffer.
        self.pipe
            .send(reply.as_bytes())
            .is_ok_and(|len| len == reply.len())
    }

    /// Writes all pending pieces, many at a time; false when the peer is gone.
    fn write(&mut self, tape: &EventLog) -> bool {
        if let Some(http2) = &mut self.http2 {
            return http2.write(&mut self.pipe, tape);
        }
        let Some((mut next, mut offset)) = self.place else {
            return true;
        };
        while self.pipe.is_writable() && next < tape.pieces.len() {
            let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
            let count = PIECES_PER_WRITE.min(tape.pieces.len() - next);
            for (slice, piece) in slices.iter_mut().zip(&tape.pieces[next..]) {
                *slice = IoSlice::new(&piece.chunk);
            }
            slices[0].advance(offset);
            let Ok(mut len) = self.pipe.send_all(&slices[..count]) else {
                return false;
            };
            if len == 0 {
                break;
            }
            while next < tape.pieces.len() {
                let rest = tape.pieces[next].chunk.len() - offset;
                if len < rest {
                    offset += len;
                    break;
                }
                len -= rest;
                (next, offset) = (next + 1, 0);
            }
        }
        self.place = Some((next, offset));
        true
    }
}

impl Piece {
    fn of(lines: &[u8]) -> Self {
        let size = format!("{:x}\r\n", lines.len());
        Self {
            lines: size.len()..size.len() + lines.len(),
            chunk: [size.as_bytes(), lines, b"\r\n"].concat(),
        }
    }
}

/// An event of `len` bytes that was due at this time.
fn line(version: usize, len: usize, due: Instant) -> Vec<u8> {
    let at = WriteTime {
        sent_ns: now_ns(),
        late_ns: u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX),
    };
    let before = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"cm-0","namespace":"default","resourceVersion":"{version}","annotations":{{"{WRITTEN_AT}":"{at}"}}}},"data":{{"padding":""#
    );
    let after = "\"}}}\n";
    let padding = "x".repeat(len.saturating_sub(before.len() + after.len()));
    format!("{before}{padding}{after}").into_bytes()
}

#[cfg(test)]
mod tests;
