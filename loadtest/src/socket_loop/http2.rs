//! Just enough HTTP/2 for watches: it writes frames and keeps windows; requests are not parsed. Everything pending on all streams of a
//! connection leaves with one system call, which a server that handles its streams one by one cannot do.

use std::io::IoSlice;

use super::pipe::Pipe;
use super::{EventLog, Piece};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Initial windows of the protocol.
const WINDOW_LEN: i64 = 65_535;
/// The protocol's initial frame size; longer frames are neither sent nor accepted.
const FRAME_LEN_MAX: usize = 16_384;
const HEAD_LEN: usize = 9;
/// Slices of one system call: the kernel's limit.
const SLICES_MAX: usize = 1_024;
/// Bytes that are planned at a time.
const PLAN_LEN_MAX: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW: u16 = 4;
/// `:status: 200` in HPACK's static table.
const STATUS_200: u8 = 0x88;

pub struct Http2Connection {
    streams: Vec<Http2Stream>,
    window: i64,
    initial_window: i64,
    /// Control frames, and bytes that did not fit into the socket; sent first.
    waiting: Vec<u8>,
}

struct Http2Stream {
    id: u32,
    window: i64,
    /// Next piece, and how many bytes of its lines are sent.
    next: usize,
    offset: usize,
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    id: u32,
    body: &'a [u8],
}

/// A part of the bytes to be sent.
enum FramePart {
    Head([u8; HEAD_LEN]),
    /// A piece, and the range of its lines.
    Lines(usize, usize, usize),
}

impl Default for Http2Connection {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            window: WINDOW_LEN,
            initial_window: WINDOW_LEN,
            // SETTINGS without any setting.
            waiting: head(0, SETTINGS, 0, 0).to_vec(),
        }
    }
}

fn head(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_LEN] {
    let [_, a, b, c] = u32::try_from(len).unwrap_or(0).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

impl Http2Connection {
    /// Processes received frames; false if they are invalid.
    pub fn read(&mut self, input: &mut Vec<u8>, tape: &EventLog) -> bool {
        let mut at = 0;
        while let Some(&[a, b, c, kind, flags, d, e, f, g]) = input
            .get(at..at + HEAD_LEN)
            .and_then(|head| head.first_chunk())
        {
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            if len > FRAME_LEN_MAX {
                return false;
            }
            let Some(body) = input.get(at + HEAD_LEN..at + HEAD_LEN + len) else {
                break;
            };
            let frame = Frame {
                kind,
                flags,
                id: u32::from_be_bytes([d & 0x7f, e, f, g]),
                body,
            };
            if !self.frame(&frame, tape) {
                return false;
            }
            at += HEAD_LEN + len;
        }
        input.drain(..at);
        true
    }

    fn frame(&mut self, frame: &Frame<'_>, tape: &EventLog) -> bool {
        let Frame {
            kind,
            flags,
            id,
            body,
        } = *frame;
        match kind {
            HEADERS => {
                self.waiting.extend(head(1, HEADERS, END_HEADERS, id));
                self.waiting.push(STATUS_200);
                self.streams.push(Http2Stream {
                    id,
                    window: self.initial_window,
                    next: tape.listed,
                    offset: 0,
                });
            }
            RESET => self.streams.retain(|stream| stream.id != id),
            SETTINGS if flags & ACK == 0 => {
                self.settings(body);
                self.waiting.extend(head(0, SETTINGS, ACK, 0));
            }
            PING if flags & ACK == 0 => {
                self.waiting.extend(head(body.len(), PING, ACK, 0));
                self.waiting.extend_from_slice(body);
            }
            WINDOW_UPDATE => {
                let Some(more) = body.first_chunk() else {
                    return false;
                };
                let more = i64::from(u32::from_be_bytes(*more) & 0x7fff_ffff);
                if id == 0 {
                    self.window += more;
                } else if let Some(stream) = self.streams.iter_mut().find(|one| one.id == id) {
                    stream.window += more;
                }
            }
            _ => {}
        }
        true
    }

    fn settings(&mut self, body: &[u8]) {
        for &[a, b, c, d, e, f] in body.as_chunks().0 {
            if u16::from_be_bytes([a, b]) == INITIAL_WINDOW {
                let window = i64::from(u32::from_be_bytes([c, d, e, f]));
                let more = window - self.initial_window;
                self.initial_window = window;
                for stream in &mut self.streams {
                    stream.window += more;
                }
            }
        }
    }

    /// Writes the pending pieces of all streams within their windows; false when the client is gone.
    pub fn write(&mut self, pipe: &mut Pipe, tape: &EventLog) -> bool {
        while pipe.is_writable() {
            if !self.waiting.is_empty() {
                let Ok(len) = pipe.send(&self.waiting) else {
                    return false;
                };
                self.waiting.drain(..len);
                if len == 0 {
                    return true;
                }
                continue;
            }
            let plan = self.plan(tape);
            if plan.is_empty() {
                return true;
            }
            let slices: Vec<IoSlice<'_>> =
                plan.iter().map(|part| part.slice(&tape.pieces)).collect();
            for slices in slices.chunks(SLICES_MAX) {
                // Bytes that do not fit are kept: they are planned, and the windows count them.
                let mut sent = 0;
                if self.waiting.is_empty() {
                    match pipe.send_all(slices) {
                        Ok(len) => sent = len,
                        Err(_) => return false,
                    }
                }
                for slice in slices {
                    let gone = sent.min(slice.len());
                    sent -= gone;
                    self.waiting.extend_from_slice(&slice[gone..]);
                }
            }
        }
        true
    }

    /// Frames for the pending pieces of the streams, within the windows.
    fn plan(&mut self, tape: &EventLog) -> Vec<FramePart> {
        let mut plan = Vec::new();
        let mut left = PLAN_LEN_MAX;
        for stream in &mut self.streams {
            while left > 0 {
                let room = stream.window.min(self.window);
                let room = usize::try_from(room).unwrap_or(0).min(FRAME_LEN_MAX);
                let at = plan.len();
                plan.push(FramePart::Head([0; HEAD_LEN]));
                let len = stream.fill(&mut plan, &tape.pieces, room);
                if len == 0 {
                    plan.truncate(at);
                    break;
                }
                plan[at] = FramePart::Head(head(len, DATA, 0, stream.id));
                let taken = i64::try_from(len).unwrap_or(i64::MAX);
                stream.window -= taken;
                self.window -= taken;
                left = left.saturating_sub(len);
            }
        }
        plan
    }
}

impl Http2Stream {
    /// Adds pending pieces of at most this many bytes; returns their length.
    fn fill(&mut self, plan: &mut Vec<FramePart>, pieces: &[Piece], room: usize) -> usize {
        let mut len = 0;
        while len < room && self.next < pieces.len() {
            let lines_len = pieces[self.next].lines.len();
            let to = lines_len.min(self.offset + room - len);
            plan.push(FramePart::Lines(self.next, self.offset, to));
            len += to - self.offset;
            (self.next, self.offset) = match to == lines_len {
                true => (self.next + 1, 0),
                false => (self.next, to),
            };
        }
        len
    }
}

impl FramePart {
    fn slice<'a>(&'a self, pieces: &'a [Piece]) -> IoSlice<'a> {
        match self {
            Self::Head(head) => IoSlice::new(head),
            Self::Lines(piece, from, to) => {
                let piece = &pieces[*piece];
                IoSlice::new(&piece.chunk[piece.lines.clone()][*from..*to])
            }
        }
    }
}
