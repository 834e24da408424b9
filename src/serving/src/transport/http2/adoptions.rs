//! The streams of an HTTP/2 connection whose frames the delivery workers write, and the window that they may use (decision 65).
//!
//! h2 counts both windows, the stream's and the connection's, so a worker may use only what h2 has given it: the stream's body sends zeros,
//! which h2 deducts from both windows and writes as DATA frames, and which are withheld from the client; for each of them the worker may write
//! a byte of its own. What is not used is given back to h2 by WINDOW_UPDATE frames that seem to come from the client.
//!
//! The body does not know its stream. It sends a mark, an empty DATA frame, as no other body does; one stream at a time.

use std::task::Waker;

use hashbrown::HashMap;
use slab::Slab;

use super::inbound::InboundEvent;
use super::outbound::OutboundEvent;
use crate::transport::frame_heads::{
    ACK, DATA, END_STREAM, FrameHead, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::transport::stall::{EndedStream, StreamEnd};

/// The window of a connection, and of a stream, that a client grants without saying so (RFC 9113 §6.9.2), bytes.
const FIRST_WINDOW_LEN: i64 = 65_535;
/// A connection whose window is smaller has nothing to spare for streams.
const WINDOW_MIN: i64 = 512 << 10;
/// When the connection's window is shorter than that, everything that is reserved and not used is given back.
const WINDOW_SHORT: i64 = 64 << 10;
/// What a stream reserves at most beyond what it needs at once.
const RESERVED_MAX: u32 = 64 << 10;
/// All streams of a connection together reserve this part of its window (one eighth), and what they need at once.
const RESERVED_SHARE: i64 = 8;
/// Bodies that wait to send their marks; others try again when they are polled for something else.
const MARKERS_MAX: usize = 64;
/// Resets of the client that h2 may not have seen; more are not remembered.
const RESETS_MAX: usize = 4_096;

/// What the body of an adopted stream does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyStep {
    /// Sends so many zeros.
    Reserve(u32),
    /// Waits until it is woken.
    Wait,
}

/// One adopted stream.
#[derive(Debug, Default)]
struct Adoption {
    /// Known when its mark is written.
    stream: Option<u32>,
    /// Bytes of both windows that the worker may use.
    reserved: u32,
    /// Zeros that the body has sent and h2 has not written yet.
    asked: u32,
    /// What the worker needs to go on, and what it should have for later.
    needed: u32,
    end: StreamEnd,
    body: Option<Waker>,
    worker: Option<Waker>,
    is_body_gone: bool,
    is_worker_gone: bool,
    /// The worker has written the stream's end.
    is_finished: bool,
    /// h2 writes nothing more on the stream.
    is_closed: bool,
}

/// Which body's mark h2 writes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Marking {
    #[default]
    Free,
    Begun(usize),
    /// Its body is gone, but h2 may have the mark in its buffer.
    Abandoned,
}

/// The adopted streams of one connection.
#[derive(Debug)]
pub(in crate::transport) struct Adoptions {
    adopted: Slab<Adoption>,
    by_stream: HashMap<u32, usize, foldhash::fast::RandomState>,
    marking: Marking,
    /// Bodies that wait to send their marks.
    markers: Vec<Waker>,
    /// Workers that wait for the end of h2's turn.
    turns: Vec<usize>,
    /// The connection's window as h2 knows it.
    window: i64,
    /// What all streams together have reserved and not used, bytes.
    reserved: i64,
    /// The window was short, and what was reserved has been given back.
    is_short: bool,
    /// Settings of the client that h2 has not acknowledged.
    settings: usize,
    /// Streams that the client has reset, and on which h2 may still write what is in its buffer.
    resets: Vec<u32>,
    /// Frames for h2.
    given_back: Vec<u8>,
    /// The delivery worker of all its streams, so that they do not wait for each other.
    pub(in crate::transport) worker: Option<usize>,
}

impl Default for Adoptions {
    fn default() -> Self {
        Self {
            adopted: Slab::new(),
            by_stream: HashMap::default(),
            marking: Marking::Free,
            markers: Vec::new(),
            turns: Vec::new(),
            window: FIRST_WINDOW_LEN,
            reserved: 0,
            is_short: false,
            settings: 0,
            resets: Vec::new(),
            given_back: Vec::new(),
            worker: None,
        }
    }
}

fn wake(waker: Option<&Waker>) {
    if let Some(waker) = waker {
        waker.wake_by_ref();
    }
}

/// What h2 and the client do.
impl Adoptions {
    /// Whether a frame of h2 is withheld from the client.
    pub(in crate::transport) fn withholds(&self, head: &FrameHead) -> bool {
        if is_mark(head) && self.marking != Marking::Free {
            return true;
        }
        let adopted = self.by_stream.get(&head.stream);
        let Some(adoption) = adopted.and_then(|key| self.adopted.get(*key)) else {
            return false;
        };
        match head.kind {
            DATA => adoption.is_finished || !head.has(END_STREAM),
            RST_STREAM => adoption.is_finished,
            _ => false,
        }
    }

    /// Records what h2 has written.
    pub(in crate::transport) fn written(&mut self, event: OutboundEvent) {
        match event {
            OutboundEvent::Head(head) if is_mark(&head) && self.marking != Marking::Free => {
                self.mark_written(head.stream);
            }
            OutboundEvent::Head(head) => {
                if head.kind == DATA {
                    self.window -= i64::try_from(head.len).unwrap_or(i64::MAX);
                    self.heed_short_window();
                }
                if head.kind == RST_STREAM || head.kind == DATA && head.has(END_STREAM) {
                    self.closed(head.stream);
                }
                if head.kind == SETTINGS && head.has(ACK) {
                    self.settings = self.settings.saturating_sub(1);
                }
            }
            OutboundEvent::Withheld { stream, len } => self.grant(stream, len),
        }
    }

    /// Records that h2 has written all that it had in its buffer.
    pub(in crate::transport) fn flushed(&mut self) {
        for stream in std::mem::take(&mut self.resets) {
            self.closed(stream);
        }
        if self.marking == Marking::Abandoned {
            self.free_marking();
        }
    }

    /// Records what was read from the client, before h2 sees it.
    pub(in crate::transport) fn received(&mut self, event: InboundEvent) {
        match event {
            InboundEvent::Granted(increment) => {
                self.window += i64::from(increment);
                if self.window > 2 * WINDOW_SHORT {
                    self.is_short = false;
                }
            }
            // The windows of streams may be smaller from the acknowledgement on, which h2 must see to.
            InboundEvent::Settings => {
                self.settings += 1;
                self.give_all_back();
            }
            InboundEvent::Reset(stream) => {
                let may_be_adopted =
                    self.marking != Marking::Free || self.by_stream.contains_key(&stream);
                if may_be_adopted && self.resets.len() < RESETS_MAX {
                    self.resets.push(stream);
                }
            }
        }
    }

    /// Frames that h2 must read before the client's next one.
    pub(in crate::transport) const fn given_back(&mut self) -> &mut Vec<u8> {
        &mut self.given_back
    }

    fn mark_written(&mut self, stream: u32) {
        if let Marking::Begun(key) = self.marking
            && let Some(adoption) = self.adopted.get_mut(key)
        {
            adoption.stream = Some(stream);
            wake(adoption.worker.as_ref());
            self.by_stream.insert(stream, key);
            self.free_marking();
        }
    }

    fn free_marking(&mut self) {
        self.marking = Marking::Free;
        self.markers.drain(..).for_each(Waker::wake);
    }

    fn grant(&mut self, stream: u32, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(key) = self.by_stream.get(&stream).copied() else {
            self.lend_back(0, len);
            return;
        };
        let adoption = &mut self.adopted[key];
        adoption.asked = adoption.asked.saturating_sub(len);
        adoption.reserved += len;
        self.reserved += i64::from(len);
        let is_over = adoption.is_body_gone || adoption.is_worker_gone;
        wake(adoption.worker.as_ref());
        if is_over || self.settings > 0 {
            self.give_back(key);
        }
    }

    fn closed(&mut self, stream: u32) {
        if let Some(key) = self.by_stream.get(&stream).copied() {
            self.adopted[key].is_closed = true;
            self.remove_if_over(key);
        }
    }

    fn heed_short_window(&mut self) {
        if self.window < WINDOW_SHORT && !self.is_short {
            self.is_short = true;
            self.give_all_back();
        }
    }

    fn give_all_back(&mut self) {
        let keys: Vec<_> = self.by_stream.values().copied().collect();
        keys.into_iter().for_each(|key| self.give_back(key));
    }

    /// Gives back what a stream has reserved.
    fn give_back(&mut self, key: usize) {
        let adoption = &mut self.adopted[key];
        let reserved = std::mem::take(&mut adoption.reserved);
        let Some(stream) = adoption.stream.filter(|_| reserved > 0) else {
            return;
        };
        self.reserved -= i64::from(reserved);
        self.lend_back(stream, reserved);
        self.lend_back(0, reserved);
    }

    /// Gives window of a stream, or of the connection, back to h2.
    fn lend_back(&mut self, stream: u32, len: u32) {
        if stream == 0 {
            self.window += i64::from(len);
        }
        let head = FrameHead {
            len: size_of::<u32>(),
            kind: WINDOW_UPDATE,
            flags: 0,
            stream,
        };
        self.given_back.extend_from_slice(&head.encoded());
        self.given_back.extend_from_slice(&len.to_be_bytes());
    }

    fn remove_if_over(&mut self, key: usize) {
        let adoption = &self.adopted[key];
        if !adoption.is_body_gone || !adoption.is_worker_gone {
            return;
        }
        match adoption.stream {
            Some(stream) if adoption.is_closed => {
                self.by_stream.remove(&stream);
            }
            // h2 may still write zeros.
            Some(_) => return,
            None => {}
        }
        self.adopted.remove(key);
    }
}

/// The bodies' part.
impl Adoptions {
    /// Begins an adoption, whose body must send its mark next; `None` if that cannot be now. If it can be later, the body is woken.
    pub(in crate::transport) fn begin(&mut self, body: &Waker, end: &StreamEnd) -> Option<usize> {
        if self.window < WINDOW_MIN {
            return None;
        }
        if self.marking != Marking::Free {
            let is_noted = |waker: &Waker| waker.will_wake(body);
            if self.markers.len() < MARKERS_MAX && !self.markers.iter().any(is_noted) {
                self.markers.push(body.clone());
            }
            return None;
        }
        let key = self.adopted.insert(Adoption {
            needed: 1,
            end: end.clone(),
            ..Adoption::default()
        });
        self.marking = Marking::Begun(key);
        Some(key)
    }

    /// What the body does next.
    pub(in crate::transport) fn poll_body(&mut self, key: usize, body: &Waker) -> BodyStep {
        let share = self.share();
        let adoption = &mut self.adopted[key];
        match &mut adoption.body {
            Some(known) => known.clone_from(body),
            none => *none = Some(body.clone()),
        }
        if adoption.end.is_set() {
            return BodyStep::Wait;
        }
        let needed = std::mem::take(&mut adoption.needed);
        if needed == 0 || adoption.asked > 0 {
            return BodyStep::Wait;
        }
        match needed.max(share).saturating_sub(adoption.reserved) {
            0 => BodyStep::Wait,
            len => {
                adoption.asked = len;
                BodyStep::Reserve(len)
            }
        }
    }

    /// The body is gone, and with it h2's stream.
    pub(in crate::transport) fn drop_body(&mut self, key: usize) {
        let adoption = &mut self.adopted[key];
        (adoption.is_body_gone, adoption.body) = (true, None);
        wake(adoption.worker.as_ref());
        if self.marking == Marking::Begun(key) {
            self.marking = Marking::Abandoned;
        }
        self.give_back(key);
        self.remove_if_over(key);
    }

    /// What a stream should have for later, bytes.
    fn share(&self) -> u32 {
        if self.is_short {
            return 0;
        }
        let streams = i64::try_from(self.adopted.len()).unwrap_or(i64::MAX);
        let all = (self.window + self.reserved) / RESERVED_SHARE;
        let share = (all / streams.max(1)).min(all - self.reserved).max(0);
        u32::try_from(share).unwrap_or(u32::MAX).min(RESERVED_MAX)
    }
}

/// The workers' part.
impl Adoptions {
    pub(in crate::transport) fn set_worker(&mut self, key: usize, worker: &Waker) {
        self.adopted[key].worker = Some(worker.clone());
    }

    /// Whether h2's stream is over.
    pub(in crate::transport) fn is_over(&self, key: usize) -> bool {
        let adoption = &self.adopted[key];
        adoption.is_body_gone || adoption.is_closed
    }

    /// The stream, and how many bytes the worker may write on it now, of `needed`; `None` if it has to wait for its body.
    pub(in crate::transport) fn room(&mut self, key: usize, needed: usize) -> Option<(u32, usize)> {
        let adoption = &mut self.adopted[key];
        let room = usize::try_from(adoption.reserved).unwrap_or(usize::MAX);
        match adoption.stream {
            Some(stream) if room > 0 => Some((stream, room.min(needed))),
            Some(_) | None => {
                let needed = u32::try_from(needed).unwrap_or(u32::MAX).min(RESERVED_MAX);
                adoption.needed = needed.max(1);
                if adoption.asked == 0 {
                    wake(adoption.body.as_ref());
                }
                None
            }
        }
    }

    /// The stream, for a frame without payload; `None` before its mark is written.
    pub(in crate::transport) fn stream(&self, key: usize) -> Option<u32> {
        self.adopted[key].stream
    }

    /// The worker has written `len` bytes on the stream. If little is left for later, the body reserves more.
    pub(in crate::transport) fn spend(&mut self, key: usize, len: usize) {
        let adoption = &mut self.adopted[key];
        let len = u32::try_from(len)
            .unwrap_or(u32::MAX)
            .min(adoption.reserved);
        adoption.reserved -= len;
        self.reserved -= i64::from(len);
        let is_waiting = adoption.asked > 0 || adoption.needed > 0;
        if !is_waiting && self.adopted[key].reserved < self.share() / 2 {
            let adoption = &mut self.adopted[key];
            adoption.needed = 1;
            wake(adoption.body.as_ref());
        }
    }

    /// The worker waits for the end of h2's turn.
    pub(in crate::transport) fn wait_for_turn(&mut self, key: usize) {
        if !self.turns.contains(&key) {
            self.turns.push(key);
        }
    }

    /// h2's turn is over.
    pub(in crate::transport) fn end_turn(&mut self) {
        for key in self.turns.drain(..) {
            if let Some(adoption) = self.adopted.get(key) {
                wake(adoption.worker.as_ref());
            }
        }
    }

    /// The worker has written the stream's end.
    pub(in crate::transport) fn finish(&mut self, key: usize) {
        self.adopted[key].is_finished = true;
        self.end(key, EndedStream::Over);
    }

    /// The worker's part of the stream ends.
    pub(in crate::transport) fn end(&self, key: usize, end: EndedStream) {
        let adoption = &self.adopted[key];
        adoption.end.set(end);
        wake(adoption.body.as_ref());
    }

    /// The worker is gone.
    pub(in crate::transport) fn drop_worker(&mut self, key: usize) {
        self.end(key, EndedStream::Over);
        let adoption = &mut self.adopted[key];
        (adoption.is_worker_gone, adoption.worker) = (true, None);
        self.give_back(key);
        self.remove_if_over(key);
    }
}

/// Whether this is the mark of a body, if one is expected: no other body sends empty frames before its end.
const fn is_mark(head: &FrameHead) -> bool {
    head.kind == DATA && head.len == 0 && !head.has(END_STREAM)
}
