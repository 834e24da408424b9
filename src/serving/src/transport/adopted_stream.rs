//! A stream of an HTTP/2 connection whose frames a delivery worker writes: the worker's handle and the one of the stream's body.

use std::io;
use std::task::{Context, Poll, Waker};

use bytes::Buf;

use super::http2::BodyStep;
use super::stall::{EndedStream, StreamEnd};
use super::write_coalescer::{DueFlush, WriteCoalescer};
use super::{ControlFrameMeter, Traffic, Transport};

/// What an HTTP/2 connection is written to.
pub(crate) type Http2Writer = WriteCoalescer<ControlFrameMeter<Transport>>;

/// A flush of what a worker has sent. It happens when this is dropped.
pub(crate) type StreamFlush = DueFlush<ControlFrameMeter<Transport>>;

/// The worker's handle. Dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct AdoptedStream {
    writer: Http2Writer,
    key: usize,
    traffic: Traffic,
    due: Option<StreamFlush>,
}

/// The handle of the body, which h2 still polls. Dropping it tells the worker that the stream is over.
#[derive(Debug)]
pub(crate) struct AdoptedBody {
    writer: Http2Writer,
    key: usize,
}

impl Http2Writer {
    /// Makes a stream the workers', if that can be now. Its body must then send an empty frame, and afterwards what
    /// [`AdoptedBody::poll`] says; `end` tells when it is over. If it can be later, the body is woken.
    pub(crate) fn adopt(
        &self,
        traffic: &Traffic,
        body: &Waker,
        end: &StreamEnd,
    ) -> Option<(AdoptedStream, AdoptedBody)> {
        let key = self.state().adoptions.begin(body, end)?;
        let stream = AdoptedStream {
            writer: self.clone(),
            key,
            traffic: traffic.clone(),
            due: None,
        };
        let writer = self.clone();
        Some((stream, AdoptedBody { writer, key }))
    }
}

impl AdoptedStream {
    /// The number of the worker that has all adopted streams of the connection; `choose` chooses it for the first one.
    pub(crate) fn worker(&self, choose: impl FnOnce() -> usize) -> usize {
        let mut state = self.writer.state();
        *state.adoptions.worker.get_or_insert_with(choose)
    }

    /// Wakes this whenever the stream may go on, or is over.
    pub(crate) fn set_waker(&self, worker: &Waker) {
        self.writer.state().adoptions.set_worker(self.key, worker);
    }

    /// Whether the stream or its connection is over.
    pub(crate) fn is_over(&self) -> bool {
        self.writer.state().adoptions.is_over(self.key)
    }

    /// Whether the client of the connection has stopped reading.
    pub(crate) fn has_stalled(&self) -> bool {
        self.traffic.has_stalled()
    }

    /// Sends `data` as far as the client's windows and the connection have room now. Pending if something remains: the worker is woken.
    ///
    /// # Errors
    /// If the stream or its connection is over.
    pub(crate) fn poll_send(&mut self, data: &mut impl Buf) -> Poll<io::Result<()>> {
        let before = data.remaining();
        let mut state = self.writer.state();
        let polled = state.poll_add_data(self.key, data);
        let is_first = data.remaining() < before && state.defer_flush();
        drop(state);
        self.note_due(is_first);
        polled
    }

    /// Sends the end of the stream.
    ///
    /// # Errors
    /// If the stream or its connection is over.
    pub(crate) fn poll_send_end(&mut self) -> Poll<io::Result<()>> {
        let mut state = self.writer.state();
        let polled = state.poll_add_end(self.key);
        let is_first = state.defer_flush();
        drop(state);
        self.note_due(is_first);
        polled
    }

    /// A flush of what was sent, for the end of the worker's turn.
    pub(crate) fn take_due_flush(&mut self) -> Option<StreamFlush> {
        self.due.take()
    }

    /// Ends the stream, because its client has not read for too long.
    pub(crate) fn cut(self) {
        let state = self.writer.state();
        state.adoptions.end(self.key, EndedStream::Stalled);
    }

    fn note_due(&mut self, is_first: bool) {
        if is_first && self.due.is_none() {
            self.due = Some(self.writer.due_flush());
        }
    }
}

impl Drop for AdoptedStream {
    fn drop(&mut self) {
        self.writer.state().drop_worker(self.key);
    }
}

impl AdoptedBody {
    /// What the body does next.
    pub(crate) fn poll(&self, context: &Context<'_>) -> BodyStep {
        let mut state = self.writer.state();
        state.adoptions.poll_body(self.key, context.waker())
    }
}

impl Drop for AdoptedBody {
    fn drop(&mut self) {
        self.writer.state().drop_body(self.key);
    }
}
