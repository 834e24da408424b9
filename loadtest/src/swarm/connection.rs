//! One HTTP/1.1 connection of the swarm: a non-blocking socket, perhaps TLS, one response at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use mio::net::TcpStream;
use rustls::{ClientConfig, ClientConnection};

use super::{Member, ResponseEnd, TOO_MANY};
use crate::recorder::Recorder;
use crate::target::{Target, source_socket};
use crate::wire::response::{Head, Progress, Response};
use crate::wire::websocket::{SWITCHING, WebSocketFrames};

/// Reads of one connection before the next one is served.
const READS_MAX: usize = 8;

/// Buffers that all connections of a thread share.
#[derive(Debug)]
pub struct Buffers {
    raw: Vec<u8>,
    plain: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        // As large as a receive buffer often is, so a short read means that nothing is left.
        Self {
            raw: vec![0; 256 * 1024],
            plain: vec![0; 64 * 1024],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Nothing left to read for now.
    Drained,
    /// There may be more; other connections are served first.
    MoreLeft,
    /// A response ended, and the connection can take the next request.
    Free,
    /// A response ended, or broke, and the connection is gone.
    Gone,
}

/// A connection and the response in progress.
#[derive(Debug)]
pub struct Connection {
    /// The socket, for the poller.
    pub socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    response: Response,
    /// Frames of a WebSocket, once it is established.
    frames: WebSocketFrames,
    out: Vec<u8>,
}

impl Connection {
    pub fn begin(
        target: &Target,
        tls: Option<&Arc<ClientConfig>>,
        source: Ipv4Addr,
        receive_buffer: Option<usize>,
    ) -> Result<Self> {
        let socket = source_socket(target.address, source, receive_buffer)?;
        match socket.connect(&target.address.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                return Err(error.into());
            }
            _ => {}
        }
        let tls = match (tls, &target.tls) {
            (Some(config), Some(tls)) => Some(Box::new(ClientConnection::new(
                config.clone(),
                tls.name.clone(),
            )?)),
            _ => None,
        };
        let socket = TcpStream::from_std(socket.into());
        Ok(Self {
            socket,
            tls,
            response: Response::default(),
            frames: WebSocketFrames::default(),
            out: Vec::new(),
        })
    }

    /// Whether the TLS handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the TCP connection is established.
    pub fn is_connected(&self) -> Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error.into());
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Queues a request and sends what can be sent.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(request)?,
            None => self.out.extend_from_slice(request),
        }
        self.flush()
    }

    /// Sends queued bytes.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
            return Ok(());
        }
        while !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        Ok(())
    }

    /// Reads available bytes and passes them to the member, and also the end of the response. A slow member is given one read of at most
    /// `len_max` bytes.
    pub fn read<M: Member>(
        &mut self,
        member: &mut M,
        buffers: &mut Buffers,
        recorder: &mut Recorder,
        len_max: Option<usize>,
    ) -> ReadOutcome {
        let (reads, len_max) = match len_max {
            None => (READS_MAX, buffers.raw.len()),
            Some(len) => (1, len.min(buffers.raw.len())),
        };
        for _ in 0..reads {
            match self.socket.read(&mut buffers.raw[..len_max]) {
                Ok(0) => return self.closed(member, recorder),
                Ok(len) => {
                    let full = len == len_max;
                    let Buffers { raw, plain } = buffers;
                    match self.receive(&raw[..len], plain, member, recorder) {
                        Ok(None) if full => {}
                        Ok(None) => return ReadOutcome::Drained,
                        Ok(Some(turn)) => return turn,
                        Err(error) => return broken(member, recorder, &error),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return ReadOutcome::Drained,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return broken(member, recorder, &error.into()),
            }
        }
        ReadOutcome::MoreLeft
    }

    /// Whether a response with status 200 has started, or a WebSocket.
    pub fn has_started(&self) -> bool {
        let started = |head: Head| matches!(head.status, 200 | SWITCHING);
        self.response.head().is_some_and(started)
    }

    /// The Retry-After of the last response.
    pub fn retry_after(&self) -> Option<Duration> {
        self.response.head().and_then(|head| head.retry_after)
    }

    /// Reads between two responses. `None` if the server has not closed the connection; otherwise whether it has in order: it was not reset,
    /// no more data came, and TLS was closed first.
    pub fn ends_in_order(&mut self, buffers: &mut Buffers) -> Option<bool> {
        loop {
            match self.socket.read(&mut buffers.raw) {
                Ok(0) => return Some(self.is_tls_over()),
                Ok(len) if self.tls.is_some() => {
                    if self.decrypt(&buffers.raw[..len]).is_err() {
                        return Some(false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Ok(_) | Err(_) => return Some(false),
            }
        }
    }

    /// Whether TLS, if used, was closed and has no more data.
    fn is_tls_over(&mut self) -> bool {
        let is_over =
            |tls: &mut Box<ClientConnection>| matches!(tls.reader().read(&mut [0]), Ok(0));
        self.tls.as_mut().is_none_or(is_over)
    }

    /// Processes received TLS records.
    fn decrypt(&mut self, mut raw: &[u8]) -> Result<()> {
        while let Some(tls) = self.tls.as_mut().filter(|_| !raw.is_empty()) {
            if tls.read_tls(&mut raw)? == 0 {
                break;
            }
            tls.process_new_packets()?;
        }
        Ok(())
    }

    fn closed<M: Member>(&mut self, member: &mut M, recorder: &mut Recorder) -> ReadOutcome {
        let head = self.response.head();
        let is_websocket = head.is_some_and(|head| head.status == SWITCHING);
        let missing = if !self.response.ends_with_connection() {
            Some("closed by the server within a response")
        } else if is_websocket && !self.frames.are_over() {
            Some("a WebSocket that was closed without a close frame")
        } else if !self.is_tls_over() {
            Some("closed by the server without closing TLS")
        } else {
            None
        };
        if let Some(missing) = missing {
            member.response_ended(ResponseEnd::Broken(missing), recorder);
            recorder.end("connection closed");
        } else {
            let status = head.map_or(0, |head| head.status);
            member.response_ended(ResponseEnd::Complete(member_status(status)), recorder);
        }
        ReadOutcome::Gone
    }

    fn receive<M: Member>(
        &mut self,
        raw: &[u8],
        plain: &mut [u8],
        member: &mut M,
        recorder: &mut Recorder,
    ) -> Result<Option<ReadOutcome>> {
        if self.tls.is_none() {
            return self.feed(raw, member, recorder);
        }
        let mut rest = raw;
        while !rest.is_empty() {
            let Some(tls) = &mut self.tls else { break };
            tls.read_tls(&mut rest)?;
            tls.process_new_packets()?;
            while let Some(tls) = &mut self.tls {
                let len = match tls.reader().read(plain) {
                    Ok(0) => break,
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                };
                if let Some(turn) = self.feed(&plain[..len], member, recorder)? {
                    // The next records may close TLS.
                    self.decrypt(rest)?;
                    return Ok(Some(turn));
                }
            }
        }
        self.flush()?;
        Ok(None)
    }

    fn feed<M: Member>(
        &mut self,
        piece: &[u8],
        member: &mut M,
        recorder: &mut Recorder,
    ) -> Result<Option<ReadOutcome>> {
        let (frames, mut outcome) = (&mut self.frames, Ok(()));
        let progress = self.response.feed(piece, |head, data| {
            recorder.bytes += data.len() as u64;
            if head.status != SWITCHING {
                member.body(head.status, data, recorder);
            } else if outcome.is_ok() {
                let status = member_status(head.status);
                outcome = frames.feed(data, |data| member.body(status, data, recorder));
            }
        })?;
        outcome?;
        match progress {
            Progress::Partial => Ok(None),
            Progress::Complete(used) if used == piece.len() => {
                let head = self.response.head();
                let (status, closes) = head.map_or((0, true), |head| (head.status, head.closes));
                if status == TOO_MANY {
                    recorder.shed(head.is_some_and(|head| head.retry_after.is_some()));
                }
                member.response_ended(ResponseEnd::Complete(status), recorder);
                Ok(Some(if closes {
                    ReadOutcome::Gone
                } else {
                    ReadOutcome::Free
                }))
            }
            Progress::Complete(_) => bail!("bytes after the end of a response"),
        }
    }
}

/// The status for a member: a WebSocket counts as a 200.
const fn member_status(status: u16) -> u16 {
    match status {
        SWITCHING => 200,
        status => status,
    }
}

fn broken<M: Member>(
    member: &mut M,
    recorder: &mut Recorder,
    error: &anyhow::Error,
) -> ReadOutcome {
    let text = format!("{error:#}");
    recorder.end("connection broken");
    recorder.message(&text);
    member.response_ended(ResponseEnd::Broken(&text), recorder);
    ReadOutcome::Gone
}
