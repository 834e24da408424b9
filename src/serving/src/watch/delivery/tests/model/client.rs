//! Clients of one view over HTTP/1.1, HTTP/2 and WebSocket, and the check of what each of them received.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flate2::write::GzDecoder;
use http_body::Body as _;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::stage::{Flag, Sees};
use super::wire::Wire;
use crate::auth::lease::Lease;
use crate::cache::samples::{Past, World};
use crate::connection::websocket::SocketIo;
use crate::transport::Transport;
use crate::watch::Watch;

pub(super) const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;
pub(super) const ERROR: &[u8] = br#"{"type":"ERROR""#;
const MARKER: &[u8] = b"k8s.io/initial-events-end";

/// The transport of a client's stream.
pub(super) enum Way {
    /// HTTP/1.1: written by a delivery worker.
    Delivered {
        wire: Wire,
        back: oneshot::Receiver<Transport>,
        is_back: bool,
    },
    /// HTTP/2: the body is polled.
    Pulled {
        body: Box<Watch>,
        flag: Arc<Flag>,
        lines: Vec<u8>,
        is_over: bool,
    },
    Socket {
        wire: Wire,
        talk: Pin<Box<SocketIo<Wire>>>,
        flag: Arc<Flag>,
        is_over: bool,
    },
}

/// What the script did to a client that excuses missing events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excuses {
    /// The client has closed the connection, or its half of it.
    pub(super) left: bool,
    /// The client does not read at present.
    pub(super) blocked: bool,
    /// The history is short, so the client may get 410.
    pub(super) may_lag: bool,
    /// The watch may have timed out.
    pub(super) may_end: bool,
}

pub(super) struct Client {
    pub(super) way: Way,
    pub(super) is_gzip: bool,
    pub(super) lease: Lease,
    pub(super) sees: Sees,
    /// Events up to this version are not for this client.
    pub(super) since: u64,
    /// The initial events, and whether a marker follows them.
    pub(super) initial: Vec<Vec<u8>>,
    pub(super) has_marker: bool,
    /// The view is closed or the permission revoked.
    pub(super) must_end: bool,
    pub(super) excuses: Excuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Clean,
    /// Within a chunk or frame.
    Cut,
}

fn frame(event_type: &str, json: &str) -> Vec<u8> {
    format!("{{\"type\":\"{event_type}\",\"object\":{json}}}\n").into_bytes()
}

/// The frames of a change for each kind of selector; `None` if it does not match.
#[derive(Debug)]
pub(super) struct Frames {
    version: u64,
    seen: [Option<Vec<u8>>; Sees::ALL.len()],
}

impl Frames {
    pub(super) fn of(past: &Past) -> Self {
        Self {
            version: past.version,
            seen: Sees::ALL.map(|sees| event(past, sees)),
        }
    }
}

/// The event that a watch gets for a change.
fn event(past: &Past, sees: Sees) -> Option<Vec<u8>> {
    let before = past.before.as_ref().filter(|sample| sees.sees(sample));
    let after = past.after.as_ref().filter(|sample| sees.sees(sample));
    let (event_type, sample) = match (before, after) {
        (None, None) => return None,
        (None, Some(after)) => ("ADDED", after),
        (Some(_), Some(after)) => ("MODIFIED", after),
        (Some(before), None) => ("DELETED", before),
    };
    let mut sample = sample.clone();
    sample.version = past.version;
    Some(frame(event_type, &sample.json().0))
}

/// The initial events of a watch that starts now.
pub(super) fn initial(world: &World, sees: Sees) -> Vec<Vec<u8>> {
    let samples = world.state.values().filter(|sample| sees.sees(sample));
    samples
        .map(|sample| frame("ADDED", &sample.json().0))
        .collect()
}

impl Client {
    pub(super) fn wire(&self) -> Option<&Wire> {
        match &self.way {
            Way::Delivered { wire, .. } | Way::Socket { wire, .. } => Some(wire),
            Way::Pulled { .. } => None,
        }
    }

    /// Runs the client's own task if it was woken; returns whether it was.
    pub(super) fn turn(&mut self) -> bool {
        match &mut self.way {
            Way::Delivered { .. } => false,
            Way::Pulled {
                body,
                flag,
                lines,
                is_over,
            } => {
                if *is_over || !flag.lower() {
                    return false;
                }
                let waker = flag.waker();
                match Pin::new(&mut **body).poll_frame(&mut Context::from_waker(&waker)) {
                    Poll::Pending => {}
                    Poll::Ready(None) => *is_over = true,
                    Poll::Ready(Some(Ok(frame))) => {
                        let buf = frame.into_data().unwrap();
                        buf.into_parts()
                            .for_each(|part| lines.extend_from_slice(&part));
                        // Like hyper, which polls again when the connection takes more.
                        flag.raise();
                    }
                }
                true
            }
            Way::Socket {
                talk,
                flag,
                is_over,
                ..
            } => {
                if *is_over || !flag.lower() {
                    return false;
                }
                let waker = flag.waker();
                *is_over = talk
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready();
                true
            }
        }
    }

    /// The events that the client has received so far, and how its stream ended.
    pub(super) fn received(&mut self) -> Result<(Vec<u8>, End), String> {
        let (body, end) = self.body()?;
        let events = match (self.is_gzip, self.excuses.left) {
            (false, _) => body,
            (true, false) => ungzipped(&body, end)?,
            (true, true) => ungzipped(&body, End::Cut)?,
        };
        Ok((events, end))
    }

    /// What the client has received so far, without framing, and how its stream ended.
    fn body(&mut self) -> Result<(Vec<u8>, End), String> {
        match &mut self.way {
            Way::Delivered {
                wire,
                back,
                is_back,
            } => {
                let (lines, end) = unchunked(&wire.received())?;
                let is_held = match back.try_recv() {
                    Ok(_) => {
                        *is_back = true;
                        false
                    }
                    Err(TryRecvError::Closed) => false,
                    Err(TryRecvError::Empty) => true,
                };
                let left = self.excuses.left;
                let is_right = match end {
                    End::Clean => *is_back || left,
                    End::Open | End::Cut => is_held != left,
                };
                let state = format!("held {is_held}, returned {is_back}, {end:?}");
                is_right.then_some((lines, end)).ok_or(state)
            }
            Way::Pulled { lines, is_over, .. } => {
                let end = if *is_over { End::Clean } else { End::Open };
                Ok((lines.clone(), end))
            }
            Way::Socket { wire, is_over, .. } => {
                let (lines, end) = unframed(&wire.received())?;
                let is_closed = *is_over && end == End::Open;
                Ok((lines, if is_closed { End::Cut } else { end }))
            }
        }
    }

    /// Compares what the client received with what happened.
    pub(super) fn check(&mut self, past: &[Frames]) -> Result<(), String> {
        let (received, end) = self.received()?;
        let Excuses {
            left,
            blocked,
            may_lag,
            may_end,
        } = self.excuses;
        let initial = self.initial.iter().map(|frame| (0, &frame[..]));
        let past = past.iter().filter(|frames| frames.version > self.since);
        let events = past.filter_map(|frames| {
            let frame = frames.seen[self.sees as usize].as_ref()?;
            Some((frames.version, &frame[..]))
        });
        let expected = initial.chain(events);
        let rest = Reader::new(&received).read(expected, self.initial.len(), self.has_marker)?;
        let is_free = left || end == End::Clean && may_end;
        match rest {
            Rest::Nothing => {}
            Rest::Lacks(_) if left || blocked && end != End::Clean => return Ok(()),
            Rest::Lacks(_) if is_free => {}
            Rest::Lacks(count) => return Err(format!("{count} events are missing ({end:?})")),
            Rest::Error if may_lag => {
                return if end == End::Clean || blocked || left {
                    Ok(())
                } else {
                    Err("no end after an error".into())
                };
            }
            Rest::Error => return Err("unexpected 410".into()),
            Rest::Cut if left || blocked => return Ok(()),
            Rest::Cut => return Err("an incomplete event".into()),
        }
        match end {
            End::Open if self.must_end && !left && !blocked => Err("not ended".into()),
            End::Open => Ok(()),
            End::Clean if is_free || self.must_end => Ok(()),
            End::Clean => Err("ended".into()),
            End::Cut if left || blocked => Ok(()),
            End::Cut => Err("cut".into()),
        }
    }
}

enum Rest {
    Nothing,
    /// This many events are missing, or the marker.
    Lacks(usize),
    Error,
    Cut,
}

struct Reader<'a> {
    received: &'a [u8],
    /// The version of the last bookmark or event.
    version: u64,
    markers: usize,
}

impl<'a> Reader<'a> {
    fn new(received: &'a [u8]) -> Self {
        Self {
            received,
            version: 0,
            markers: 0,
        }
    }

    /// Consumes bookmarks. The version of each must not be lower than that of anything before it.
    fn bookmarks(&mut self) -> Result<(), String> {
        while self.received.starts_with(BOOKMARK) {
            let Some(end) = memchr::memchr(b'\n', self.received) else {
                return Ok(());
            };
            let (line, rest) = self.received.split_at(end + 1);
            let text = std::str::from_utf8(line).unwrap();
            let version = text.split("\"resourceVersion\":\"").nth(1).unwrap();
            let version = version.split('"').next().unwrap().parse().unwrap();
            if version < self.version {
                return Err(format!("a bookmark of {version} after {}", self.version));
            }
            self.version = version;
            self.markers += usize::from(memchr::memmem::find(line, MARKER).is_some());
            self.received = rest;
        }
        Ok(())
    }

    fn read<'e>(
        mut self,
        expected: impl Iterator<Item = (u64, &'e [u8])>,
        initial: usize,
        has_marker: bool,
    ) -> Result<Rest, String> {
        let mut expected = expected.enumerate();
        while let Some((at, (version, frame))) = expected.next() {
            self.bookmarks()?;
            if self.received.is_empty() {
                return Ok(Rest::Lacks(1 + expected.count()));
            }
            let Some(rest) = self.received.strip_prefix(frame) else {
                return self.other(frame);
            };
            if at == initial && has_marker && self.markers != 1 {
                return Err(format!("{} markers after the initial events", self.markers));
            }
            if version > 0 && version <= self.version {
                return Err(format!("an event of {version} after {}", self.version));
            }
            self.version = self.version.max(version);
            self.received = rest;
        }
        self.bookmarks()?;
        if self.received.is_empty() {
            return match (self.markers, usize::from(has_marker)) {
                (marked, expected) if marked == expected => Ok(Rest::Nothing),
                (0, _) => Ok(Rest::Lacks(1)),
                (marked, _) => Err(format!("{marked} markers")),
            };
        }
        self.other(b"")
    }

    fn other(&self, frame: &[u8]) -> Result<Rest, String> {
        if self.received.starts_with(ERROR) {
            return Ok(Rest::Error);
        }
        if !self.received.contains(&b'\n')
            && (frame.starts_with(self.received)
                || self.received.starts_with(BOOKMARK)
                || BOOKMARK.starts_with(self.received)
                || ERROR.starts_with(self.received))
        {
            return Ok(Rest::Cut);
        }
        let short =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        Err(format!(
            "expected {}, received {}",
            short(frame),
            short(self.received)
        ))
    }
}

/// Length of gzip's header.
const HEADER_LEN: usize = 10;
/// The last bytes of an empty block.
const EMPTY_BLOCK: &[u8] = &[0, 0, 0xff, 0xff];

/// What a decoder has given out after these bytes, of which nothing may be left behind but an event that is cut.
fn ungzipped(bytes: &[u8], end: End) -> Result<Vec<u8>, String> {
    let mut decoder = GzDecoder::new(Vec::new());
    let decoded = decoder.write_all(bytes).and_then(|()| decoder.flush());
    decoded.map_err(|error| error.to_string())?;
    match end {
        // Also checks length and checksum.
        End::Clean => decoder.finish().map_err(|error| error.to_string()),
        // Go's decoder gives out nothing of a block before it has seen an empty one.
        End::Open
            if bytes.len() > HEADER_LEN
                && !bytes.ends_with(EMPTY_BLOCK)
                && decoder.try_finish().is_err() =>
        {
            Err("not flushed".into())
        }
        End::Open | End::Cut => Ok(decoder.get_ref().clone()),
    }
}

/// Decodes chunked transfer coding.
fn unchunked(bytes: &[u8]) -> Result<(Vec<u8>, End), String> {
    let Some(mut rest) = bytes.strip_prefix(HEAD) else {
        let is_cut = HEAD.starts_with(bytes);
        return is_cut
            .then_some((Vec::new(), End::Cut))
            .ok_or_else(|| "no head".into());
    };
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let Some(end) = memchr::memmem::find(rest, b"\r\n") else {
            return Ok((lines, End::Cut));
        };
        let len = std::str::from_utf8(&rest[..end]).unwrap();
        let len = usize::from_str_radix(len, 16).map_err(|error| error.to_string())?;
        let body = &rest[end + 2..];
        lines.extend_from_slice(&body[..body.len().min(len)]);
        let Some(tail) = body.get(len..len + 2) else {
            return Ok((lines, End::Cut));
        };
        if tail != b"\r\n" {
            return Err("a chunk without its end".into());
        }
        rest = &body[len + 2..];
        if len == 0 {
            return rest
                .is_empty()
                .then_some((lines, End::Clean))
                .ok_or_else(|| "more after the end".into());
        }
    }
    Ok((lines, End::Open))
}

/// Decodes WebSocket frames, each of which must be one line.
fn unframed(bytes: &[u8]) -> Result<(Vec<u8>, End), String> {
    let (mut rest, mut lines) = (bytes, Vec::new());
    loop {
        let (kind, len, head) = match *rest {
            [] => return Ok((lines, End::Open)),
            [kind, 126, high, low, ..] => (kind, usize::from(u16::from_be_bytes([high, low])), 4),
            [kind, 127, a, b, c, d, e, f, g, h, ..] => {
                let len = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                (kind, usize::try_from(len).unwrap(), 10)
            }
            [_, 126 | 127, ..] | [_] => return Ok((lines, End::Cut)),
            [kind, len, ..] => (kind, usize::from(len), 2),
        };
        let Some(payload) = rest.get(head..head + len) else {
            if kind == 0x81 {
                lines.extend_from_slice(&rest[head..]);
            }
            return Ok((lines, End::Cut));
        };
        rest = &rest[head + len..];
        match kind {
            0x88 => {
                return rest
                    .is_empty()
                    .then_some((lines, End::Clean))
                    .ok_or_else(|| "more after the end".into());
            }
            0x81 if payload.ends_with(b"\n") => lines.extend_from_slice(payload),
            _ => return Err(format!("a frame of kind {kind:x}")),
        }
    }
}
