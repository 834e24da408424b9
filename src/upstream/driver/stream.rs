//! One watch stream, from its opening to its end.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http::header::DATE;
use http_body::Body;
use http_body_util::BodyExt;
use tracing::{Instrument, trace_span};

use super::clock::now;
use super::fault::{AttemptFailure, FrameRejection, RequestKind, check_content_type};
use super::fetch::Fetch;
use super::lists::{SILENCE_MAX, read_status};
use super::recorder::{StreamEnd, WatchConnection};
use super::{Driver, SPAN_TARGET, StopResult, request};
use crate::decode::{Frames, UpstreamStatus, WatchLine, object_in, scan_envelope, scan_watch};
use crate::resource::{CATCH_UP_HEADER, EventKind, Object};
use crate::upstream::reflector::{Effect, Input};
use crate::upstream::sink::Sink;

/// While nothing arrives, the sink is called this often, so that it can drop old history.
const TICK: Duration = Duration::from_secs(5);
/// Bytes of chunks that are collected before they are published.
const BATCH_LEN_MAX: usize = 4 << 20;

/// What waiting for the stream's next chunk ended with.
enum StreamRead {
    Chunk(Bytes),
    Tick,
    End,
    Cut(String),
}

/// Whether reading continues.
enum ReadFlow {
    More,
    Over(StreamEnd),
}

impl<F: Fetch, S: Sink> Driver<F, S> {
    pub(super) async fn watch(&mut self, path: String) -> Result<(), StopResult> {
        let response = match self.open(path).await {
            Ok(response) => response,
            Err(fault) => {
                self.failed(RequestKind::Watch, fault);
                return Ok(());
            }
        };
        self.observe(Input::WatchOpened);
        self.recorder.connected(WatchConnection::Yes);
        self.sink.watch_opened();
        let ended = self.read(response.into_body()).await;
        self.recorder.connected(WatchConnection::No(
            *ended.as_ref().unwrap_or(&StreamEnd::Error),
        ));
        ended.map(drop)
    }

    async fn open(&self, path: String) -> Result<Response<F::Body>, AttemptFailure> {
        let span = trace_span!(
            target: SPAN_TARGET,
            "watch",
            otel.kind = "client",
            resource = %self.spec.collection.gvr,
            outcome = tracing::field::Empty
        );
        let opened = self.open_in_span(path).instrument(span.clone()).await;
        span.record("outcome", if opened.is_ok() { "begun" } else { "failed" });
        opened
    }

    async fn open_in_span(&self, path: String) -> Result<Response<F::Body>, AttemptFailure> {
        let response = self
            .fetch
            .get(path, self.spec.watch_purpose(), self.spec.encoding)
            .await?;
        if response.status().as_u16() != 200 {
            return Err(AttemptFailure::refused(read_status(response).await));
        }
        if !self.spec.accepts_catch_up && response.headers().contains_key(CATCH_UP_HEADER) {
            let expired = UpstreamStatus::of_code(410);
            return Err(AttemptFailure::refused(expired));
        }
        check_content_type(&response, self.spec.encoding)?;
        if let Some(date) = response.headers().get(DATE) {
            self.recorder.dated(date);
        }
        Ok(response)
    }

    /// Reads until the stream is over, and returns how it ended.
    async fn read(&mut self, mut body: F::Body) -> Result<StreamEnd, StopResult> {
        let mut frames = Frames::new(self.spec.encoding, self.spec.frame_len_max);
        let give_up_at = now() + request::WATCH_DURATION_MAX;
        let mut last_chunk_at = now();
        let mut pending = None;
        loop {
            let next = match pending.take() {
                Some(pending) => pending,
                None => {
                    let tick = self.sink.quiet_time().map_or(TICK, |time| time.min(TICK));
                    next(&mut body, tick).await
                }
            };
            let is_initial = !self.reflector.is_live();
            match next {
                StreamRead::Chunk(_) if is_initial && now() >= give_up_at => {
                    return Ok(self.cut("the initial data did not end in time"));
                }
                StreamRead::Chunk(chunk) => {
                    last_chunk_at = now();
                    self.sink.arrived(last_chunk_at);
                    let mut batch_len = chunk.len();
                    let mut flow = self.apply_chunk(&chunk, &mut frames)?;
                    // Chunks that have arrived meanwhile join the batch, so that watches are woken once for all of them.
                    while let (ReadFlow::More, true) = (&flow, batch_len < BATCH_LEN_MAX) {
                        match more(&mut body, self.sink.hold_until()).await {
                            Some(StreamRead::Chunk(chunk)) => {
                                batch_len += chunk.len();
                                flow = self.apply_chunk(&chunk, &mut frames)?;
                            }
                            other => {
                                pending = other;
                                break;
                            }
                        }
                    }
                    self.sink.publish();
                    self.sink.ready().await;
                    if let ReadFlow::Over(end) = flow {
                        return Ok(end);
                    }
                }
                StreamRead::Tick if is_initial && now() >= last_chunk_at + SILENCE_MAX => {
                    return Ok(
                        self.cut("the stream went silent before the end of its initial data")
                    );
                }
                StreamRead::Tick if now() < give_up_at => {
                    self.sink.watch_quiet();
                    self.sink.tick();
                }
                StreamRead::End if !frames.is_mid_frame() => {
                    self.ended();
                    return Ok(StreamEnd::Clean);
                }
                StreamRead::End => return Ok(self.cut("the stream ended within a frame")),
                StreamRead::Cut(cause) => return Ok(self.cut(cause)),
                StreamRead::Tick => {
                    return Ok(self.cut("the watch went silent and did not end at its timeout"));
                }
            }
        }
    }

    fn apply_chunk(&mut self, chunk: &[u8], frames: &mut Frames) -> Result<ReadFlow, StopResult> {
        self.recorder.received(chunk.len());
        frames.push(chunk);
        self.apply_frames(frames)
    }

    fn apply_frames(&mut self, frames: &mut Frames) -> Result<ReadFlow, StopResult> {
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    let flow = self.apply_frame(frame)?;
                    if let ReadFlow::Over(_) = flow {
                        return Ok(flow);
                    }
                }
                Ok(None) => return Ok(ReadFlow::More),
                Err(error) => {
                    let reason = FrameRejection::TooLong;
                    return Ok(self.reject(AttemptFailure::rejected(reason, error.to_string())));
                }
            }
        }
    }

    fn apply_frame(&mut self, frame: &[u8]) -> Result<ReadFlow, StopResult> {
        let encoding = self.spec.encoding;
        match scan_watch(encoding, frame, self.spec.fields) {
            Ok(WatchLine::Event {
                kind,
                object: span,
                parts,
            }) => {
                match object_in(encoding, frame, span, parts) {
                    Ok(object) => self.apply_event(kind, object),
                    Err(error) => return Ok(self.reject(AttemptFailure::unparsable(&error))),
                }
                Ok(ReadFlow::More)
            }
            Ok(WatchLine::Bookmark(bookmark)) => {
                if let Ok(envelope) = scan_envelope(encoding, frame) {
                    self.recorder.bookmark();
                    self.sink.bookmark(envelope.object.of(frame), &bookmark);
                }
                let (resource_version, initial_events_end) =
                    (bookmark.resource_version, bookmark.initial_events_end);
                match self.observe(Input::Bookmark {
                    resource_version,
                    initial_events_end,
                }) {
                    Effect::InitialDone { resource_version } => {
                        self.sink.replace(resource_version)?
                    }
                    Effect::Progress { resource_version } => {
                        self.sink.publish();
                        self.sink.progress(resource_version);
                    }
                    Effect::Restarted => self.sink.restart(),
                    Effect::None
                    | Effect::InitialItem
                    | Effect::Live
                    | Effect::Ignored
                    | Effect::Relisting { .. } => {}
                }
                Ok(ReadFlow::More)
            }
            Ok(WatchLine::Error(status)) => {
                self.sink.publish();
                let fault = AttemptFailure::refused(status.clone());
                self.recorder.failed(fault.report(RequestKind::Watch));
                self.observe(Input::WatchError(status));
                Ok(ReadFlow::Over(StreamEnd::Error))
            }
            Err(error) => Ok(self.reject(AttemptFailure::unparsable(&error))),
        }
    }

    fn apply_event(&mut self, kind: EventKind, object: Object) {
        let input = Input::Event {
            kind,
            resource_version: object.resource_version(),
        };
        match self.observe(input) {
            Effect::InitialItem => self.sink.initial(kind, object),
            Effect::Live => self.sink.live(kind, object),
            Effect::Restarted => self.sink.restart(),
            Effect::None
            | Effect::InitialDone { .. }
            | Effect::Progress { .. }
            | Effect::Ignored
            | Effect::Relisting { .. } => {}
        }
    }

    /// Ends the stream at a frame that cannot be used. The frames before it count.
    fn reject(&mut self, fault: AttemptFailure) -> ReadFlow {
        self.sink.publish();
        self.failed(RequestKind::Watch, fault);
        ReadFlow::Over(StreamEnd::Unreadable)
    }

    /// The stream ended between two frames. That is how watches end, but initial data must not end this way.
    fn ended(&mut self) {
        if self.observe(Input::WatchEnded) == Effect::Restarted {
            let fault = AttemptFailure::transport("the stream ended before its initial data did");
            self.recorder.failed(fault.report(RequestKind::Watch));
        }
    }

    fn cut(&mut self, cause: impl Into<String>) -> StreamEnd {
        self.failed(RequestKind::Watch, AttemptFailure::transport(cause));
        StreamEnd::Cut
    }
}

/// Waits for the next chunk, at most for a tick. Cancelling the wait loses no bytes, because a frame of the body arrives
/// whole or not at all.
async fn next<B: Body<Data = Bytes, Error: fmt::Display> + Unpin>(
    body: &mut B,
    tick: Duration,
) -> StreamRead {
    loop {
        let Ok(frame) = tokio::time::timeout(tick, body.frame()).await else {
            return StreamRead::Tick;
        };
        match frame {
            None => return StreamRead::End,
            Some(Err(error)) => return StreamRead::Cut(error.to_string()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return StreamRead::Chunk(data);
                }
            }
        }
    }
}

/// Returns a chunk that is ready, or that arrives until `hold_until`; `None` if there is none.
async fn more<B: Body<Data = Bytes, Error: fmt::Display> + Unpin>(
    body: &mut B,
    hold_until: Option<Instant>,
) -> Option<StreamRead> {
    loop {
        let frame = if let Some(hold_until) = hold_until.filter(|at| *at > now()) {
            // As in `next`, cancelling loses no bytes.
            tokio::time::timeout_at(hold_until.into(), body.frame())
                .await
                .ok()?
        } else {
            let ready = poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
                Poll::Ready(frame) => Poll::Ready(Some(frame)),
                Poll::Pending => Poll::Ready(None),
            });
            ready.await?
        };
        match frame {
            None => return Some(StreamRead::End),
            Some(Err(error)) => return Some(StreamRead::Cut(error.to_string())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Some(StreamRead::Chunk(data));
                }
            }
        }
    }
}
