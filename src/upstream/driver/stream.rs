//! One watch stream, from its opening to its end.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::BodyExt;

use super::fault::check_content_type;
use super::lists::{SILENCE_MAX, refusal};
use super::{
    AttemptFailure, Driver, Fetch, FrameRejection, RequestKind, Sink, StopResult, StreamEnd,
    WatchConnection, now, request,
};
use crate::decode::{Frames, WatchLine, object_in, scan_envelope, scan_watch};
use crate::resource::{EventKind, Object};
use crate::upstream::reflector::{Effect, Input};

/// While nothing comes, old history is let go this often.
const TICK: Duration = Duration::from_secs(5);
/// Bytes of frames taken together before they are published.
const BATCH_LEN_MAX: usize = 4 << 20;

/// How reading went on.
enum StreamRead {
    Chunk(Bytes),
    Tick,
    End,
    Cut(String),
}

/// Whether the stream can be read further.
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
        self.tally.connected(WatchConnection::Yes);
        let ended = self.read(response.into_body()).await;
        self.tally.connected(WatchConnection::No(
            *ended.as_ref().unwrap_or(&StreamEnd::Error),
        ));
        ended.map(drop)
    }

    async fn open(&self, path: String) -> Result<Response<F::Body>, AttemptFailure> {
        let response = self
            .fetch
            .get(path, self.reading.watch_purpose(), self.reading.encoding)
            .await?;
        if response.status().as_u16() != 200 {
            return Err(AttemptFailure::refused(refusal(response).await));
        }
        check_content_type(&response, self.reading.encoding)?;
        Ok(response)
    }

    /// Reads until the stream is over; says how it ended.
    async fn read(&mut self, mut body: F::Body) -> Result<StreamEnd, StopResult> {
        let mut frames = Frames::new(self.reading.encoding, self.reading.frame_len_max);
        let give_up_at = now() + request::WATCH_LASTS_AT_MOST;
        let mut heard_at = now();
        let mut came = None;
        loop {
            let next = match came.take() {
                Some(came) => came,
                None => next(&mut body).await,
            };
            let is_initial = !self.reflector.is_live();
            match next {
                StreamRead::Chunk(_) if is_initial && now() >= give_up_at => {
                    return Ok(self.cut("initial data without end"));
                }
                StreamRead::Chunk(chunk) => {
                    heard_at = now();
                    let mut gathered = chunk.len();
                    let mut flow = self.take_chunk(&chunk, &mut frames)?;
                    // What arrives meanwhile joins the batch: one round of waking for all of it.
                    while let (ReadFlow::More, true) = (&flow, gathered < BATCH_LEN_MAX) {
                        match more(&mut body, self.sink.hold_until()).await {
                            Some(StreamRead::Chunk(chunk)) => {
                                gathered += chunk.len();
                                flow = self.take_chunk(&chunk, &mut frames)?;
                            }
                            other => {
                                came = other;
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
                StreamRead::Tick if is_initial && now() >= heard_at + SILENCE_MAX => {
                    return Ok(self.cut("silent before the end of the initial data"));
                }
                StreamRead::Tick if now() < give_up_at => {
                    self.sink.tick();
                }
                StreamRead::End if !frames.is_mid_frame() => {
                    self.ended();
                    return Ok(StreamEnd::Clean);
                }
                StreamRead::End => return Ok(self.cut("the stream ended within a frame")),
                StreamRead::Cut(cause) => return Ok(self.cut(cause)),
                StreamRead::Tick => return Ok(self.cut("silent past the end that was agreed on")),
            }
        }
    }

    fn take_chunk(&mut self, chunk: &[u8], frames: &mut Frames) -> Result<ReadFlow, StopResult> {
        self.tally.received(chunk.len());
        frames.push(chunk);
        self.take_frames(frames)
    }

    fn take_frames(&mut self, frames: &mut Frames) -> Result<ReadFlow, StopResult> {
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    let flow = self.take_frame(frame)?;
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

    fn take_frame(&mut self, frame: &[u8]) -> Result<ReadFlow, StopResult> {
        let encoding = self.reading.encoding;
        match scan_watch(encoding, frame, self.reading.fields) {
            Ok(WatchLine::Event {
                kind,
                object: span,
                parts,
            }) => {
                match object_in(encoding, frame, span, parts) {
                    Ok(object) => self.take_event(kind, object),
                    Err(error) => return Ok(self.reject(AttemptFailure::unparsable(&error))),
                }
                Ok(ReadFlow::More)
            }
            Ok(WatchLine::Bookmark(bookmark)) => {
                if let Ok(envelope) = scan_envelope(encoding, frame) {
                    self.tally.bookmark(envelope.object.of(frame), &bookmark);
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
                self.tally.failed(fault.trouble(RequestKind::Watch));
                self.observe(Input::WatchError(status));
                Ok(ReadFlow::Over(StreamEnd::Error))
            }
            Err(error) => Ok(self.reject(AttemptFailure::unparsable(&error))),
        }
    }

    fn take_event(&mut self, kind: EventKind, object: Object) {
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

    /// What was good before the bad frame counts; the stream does not.
    fn reject(&mut self, fault: AttemptFailure) -> ReadFlow {
        self.sink.publish();
        self.failed(RequestKind::Watch, fault);
        ReadFlow::Over(StreamEnd::Unreadable)
    }

    /// Ended between two frames, which is how watches end, but not initial data.
    fn ended(&mut self) {
        if self.observe(Input::WatchEnded) == Effect::Restarted {
            let fault = AttemptFailure::cut("the stream ended before its initial data did");
            self.tally.failed(fault.trouble(RequestKind::Watch));
        }
    }

    fn cut(&mut self, cause: impl Into<String>) -> StreamEnd {
        self.failed(RequestKind::Watch, AttemptFailure::cut(cause));
        StreamEnd::Cut
    }
}

/// Waits for what comes next, a tick at the latest. Losing the wait loses no bytes: frames are whole when they come.
async fn next<B: Body<Data = Bytes, Error: fmt::Display> + Unpin>(body: &mut B) -> StreamRead {
    loop {
        let Ok(frame) = tokio::time::timeout(TICK, body.frame()).await else {
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

/// What is there already, or comes until `hold_until`; `None` if nothing does.
async fn more<B: Body<Data = Bytes, Error: fmt::Display> + Unpin>(
    body: &mut B,
    hold_until: Option<Instant>,
) -> Option<StreamRead> {
    loop {
        let frame = if let Some(hold_until) = hold_until.filter(|at| *at > now()) {
            // As in `next`: frames are whole.
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
