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
use tokio::time::timeout;
use tracing::{Instrument, trace_span};

use super::clock::now;
use super::comparison::{UpstreamState, UpstreamStateFuture};
use super::fault::{AttemptFailure, FrameRejection, RequestKind, check_content_type};
use super::fetch::Fetch;
use super::recorder::{UpstreamWatchEnd, WatchConnection};
use super::response::read_status;
use super::{Driver, SPAN_TARGET, StopResult, request};
use crate::backoff::{FLOOR_MAX, fraction};
use crate::decode::{Frames, UpstreamStatus, WatchLine, object_in, scan_envelope, scan_watch};
use crate::reflector::{Comparison, Effect, Input};
use crate::resource::{CATCH_UP_HEADER, EventKind, Object, ResourceVersion};
use crate::sink::{LateChange, Sink};

/// While nothing arrives, the sink is called this often, so that it can drop old history.
const TICK: Duration = Duration::from_secs(5);
/// A server accepts a watch or refuses it at once, or after a wait of a few seconds in a queue of priority and fairness.
const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long streamed initial data may pause, or be followed by changes without its end. An API server sends the data from memory, without
/// pauses, and the end a moment later. One that does not know `sendInitialEvents` sends no end: the objects or nothing, and then changes.
const STALL_MAX: Duration = Duration::from_secs(10);
/// The longest time for streamed initial data. Pages take no longer and have no such limit.
const INITIAL_TIME_MAX: Duration = Duration::from_secs(60);
/// The silence after which the state is compared again if upstream's was found to differ, or if the last watches brought nothing.
const DOUBTFUL_SILENCE_MAX: Duration = Duration::from_secs(3);
/// The pause after a comparison that could not be made.
const COMPARISON_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of chunks that are collected before they are published.
const BATCH_LEN_MAX: usize = 4 << 20;

/// What waiting for the stream's next chunk ended with.
enum StreamRead {
    Chunk(Bytes),
    Tick,
    End,
    Cut(String),
    Compared(UpstreamState),
}

/// Times of an open watch. Those while the sink cannot take more do not count.
struct StreamTimes {
    opened_at: Instant,
    /// `opened_at`, later by the time for which the sink was waited for.
    begun_at: Instant,
    last_chunk_at: Instant,
    /// The state is not compared before this time.
    compare_at: Instant,
    /// [`Sink::newest_given`] when the sink was last asked.
    given: Option<ResourceVersion>,
}

impl StreamTimes {
    const fn at(opened_at: Instant, given: Option<ResourceVersion>) -> Self {
        Self {
            given,
            opened_at,
            begun_at: opened_at,
            last_chunk_at: opened_at,
            compare_at: opened_at,
        }
    }
}

enum ReadFlow {
    More,
    Over(UpstreamWatchEnd),
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
            *ended.as_ref().unwrap_or(&UpstreamWatchEnd::Error),
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
        let asked = self
            .fetch
            .get(path, self.spec.watch_purpose(), self.spec.encoding);
        let Ok(response) = timeout(HEAD_TIME_MAX, asked).await else {
            let cause = format!("no answer to the watch within {HEAD_TIME_MAX:?}");
            return Err(match self.reflector.is_live() {
                true => AttemptFailure::transport(cause),
                false => AttemptFailure::endless(cause),
            });
        };
        let response = response?;
        if response.status().as_u16() != 200 {
            return Err(AttemptFailure::refused(read_status(response).await));
        }
        // A catch-up leaves states out, so a list is needed instead (decision 44).
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
    async fn read(&mut self, mut body: F::Body) -> Result<UpstreamWatchEnd, StopResult> {
        let mut frames = Frames::new(self.spec.encoding, self.spec.frame_len_max);
        let mut times = StreamTimes::at(now(), self.sink.newest_given());
        self.changed_at = None;
        let mut pending = None;
        let mut comparison: Option<UpstreamStateFuture> = None;
        loop {
            let read = match pending.take() {
                Some(pending) => pending,
                None => {
                    let tick = self.tick(&times, comparison.is_some());
                    // Both are safe to cancel: a comparison is kept, and `next` loses no bytes.
                    tokio::select! {
                        biased;
                        read = next(&mut body, tick) => read,
                        upstream = state_of(&mut comparison) => StreamRead::Compared(upstream),
                    }
                }
            };
            match read {
                StreamRead::Chunk(chunk) => {
                    times.last_chunk_at = now();
                    self.sink.arrived(times.last_chunk_at);
                    let proven_at = self.proven_at;
                    let flow;
                    (flow, pending) = self.apply_batch(chunk, &mut body, &mut frames).await?;
                    if self.proven_at > proven_at {
                        // The comparison in progress was started before this proof, and is no longer needed.
                        comparison = None;
                    }
                    self.sink.publish();
                    if let ReadFlow::Over(end) = flow {
                        self.sink.ready().await?;
                        return Ok(end);
                    }
                    if let Some(end) = self.overdue(&times) {
                        return Ok(end);
                    }
                    self.wait_for_sink(&mut times).await?;
                }
                StreamRead::Tick if let Some(end) = self.overdue(&times) => return Ok(end),
                StreamRead::Tick if now() < times.opened_at + request::WATCH_DURATION_MAX => {
                    if self.reflector.is_live() {
                        self.sink.watch_quiet();
                    }
                    self.sink.tick();
                    self.follow_proofs(&mut times);
                    if self.time_to_comparison(&times) == Some(Duration::ZERO) {
                        comparison.get_or_insert_with(|| self.upstream_state());
                    }
                }
                StreamRead::Compared(upstream) => {
                    comparison = None;
                    if let Some(end) = self.compared(&upstream).await {
                        return Ok(end);
                    }
                    times.compare_at = now() + self.pause_after(&upstream);
                }
                StreamRead::End if !frames.is_mid_frame() => {
                    self.ended();
                    return Ok(UpstreamWatchEnd::Closed);
                }
                StreamRead::End => return Ok(self.cut("the stream ended within a frame")),
                StreamRead::Cut(cause) => return Ok(self.cut(cause)),
                StreamRead::Tick => {
                    return Ok(self.cut("the watch went silent and did not end at its timeout"));
                }
            }
        }
    }

    /// How the stream ends if its initial data has stalled, or the watch lags.
    fn overdue(&mut self, times: &StreamTimes) -> Option<UpstreamWatchEnd> {
        match self.stalled(times) {
            Some(cause) => Some(self.endless(cause)),
            None => self.lagging(),
        }
    }

    /// How long to wait for the next bytes.
    fn tick(&self, times: &StreamTimes, is_comparing: bool) -> Duration {
        let tick = self.sink.quiet_time().map_or(TICK, |time| time.min(TICK));
        match self.time_to_comparison(times) {
            Some(due) if !is_comparing => due.min(tick),
            Some(_) | None => tick,
        }
    }

    /// Waits until the sink takes more. Upstream is not blamed for this time.
    async fn wait_for_sink(&mut self, times: &mut StreamTimes) -> Result<(), StopResult> {
        let before = now();
        self.sink.ready().await?;
        times.last_chunk_at = now();
        let waited = times.last_chunk_at - before;
        times.begun_at += waited;
        self.changed_at = self.changed_at.map(|at| at + waited);
        Ok(())
    }

    /// The time until the next comparison after one with this result.
    const fn pause_after(&self, upstream: &UpstreamState) -> Duration {
        match upstream {
            UpstreamState::Unknown(_) => COMPARISON_PAUSE,
            _ if self.reflector.is_in_doubt() => DOUBTFUL_SILENCE_MAX,
            // Also if the sink cannot count its objects: nothing is gained by asking it sooner.
            UpstreamState::Same | UpstreamState::Older | UpstreamState::Newer { .. } => {
                self.spec.silence_max
            }
        }
    }

    /// Upstream could not be read, and asks for this wait, in seconds. Later watches keep to it, too.
    fn defer_comparison(&mut self, seconds: u32) {
        let asked = Duration::from_secs(seconds.into()).min(FLOOR_MAX);
        let spread = fraction(COMPARISON_PAUSE, crate::resource::random());
        self.compare_at = now() + asked.max(COMPARISON_PAUSE) + spread;
    }

    /// The time until the state is to be compared because the watch brings nothing; `None` while initial data is read.
    fn time_to_comparison(&self, times: &StreamTimes) -> Option<Duration> {
        if !self.reflector.is_live() {
            return None;
        }
        // A watch that has just been opened gets a moment to bring what the last one lacked.
        let earliest = times.compare_at.max(times.opened_at + DOUBTFUL_SILENCE_MAX);
        let earliest = earliest.max(self.compare_at);
        let at = match self.reflector.is_in_doubt() {
            true => earliest.max(self.proven_at + DOUBTFUL_SILENCE_MAX),
            false => earliest.max(self.proven_at + self.silence_max),
        };
        Some(at.saturating_duration_since(now()))
    }

    /// Why the end of streamed initial data is not waited for any longer; `None` if it is, or has come.
    fn stalled(&self, times: &StreamTimes) -> Option<&'static str> {
        let now = now();
        if self.reflector.is_live() {
            return None;
        }
        if now >= times.last_chunk_at + STALL_MAX {
            return Some("the stream went silent before the end of its initial data");
        }
        if self.changed_at.is_some_and(|at| now >= at + STALL_MAX) {
            return Some("changes came, but not the end of the initial data");
        }
        (now >= times.begun_at + INITIAL_TIME_MAX).then_some("the initial data did not end in time")
    }

    /// Handles the result of a comparison. Returns how the watch ends, if it lacks what upstream has, or if only the next watch can show
    /// whether it does.
    async fn compared(&mut self, upstream: &UpstreamState) -> Option<UpstreamWatchEnd> {
        if let UpstreamState::Unknown(seconds) = upstream {
            self.defer_comparison(*seconds);
        }
        let comparison = self.compared_with(upstream).await;
        let input = Input::Compared(comparison);
        if comparison == Comparison::Different {
            return self.given_up(input, "the watch lacks what upstream has");
        }
        (self.observe(input) == Effect::EndWatch).then_some(UpstreamWatchEnd::Closed)
    }

    /// A consistent read may have compared the state with upstream's since the last call.
    fn follow_proofs(&mut self, times: &mut StreamTimes) {
        let given = self.sink.newest_given();
        if self.reflector.is_live() && given > times.given.max(self.reflector.version()) {
            self.observe(Input::Compared(Comparison::Equal));
        }
        times.given = given;
    }

    /// How the watch ends if it was found to bring changes far too late.
    fn lagging(&mut self) -> Option<UpstreamWatchEnd> {
        if !self.sink.is_lagging() {
            return None;
        }
        self.given_up(
            Input::Lagging,
            "the watch brings changes more than 45 s late",
        )
    }

    /// Reports what was found about the open watch. Returns how the watch ends if it is given up for that.
    fn given_up(&mut self, input: Input, cause: &str) -> Option<UpstreamWatchEnd> {
        if self.observe(input) != Effect::EndWatch {
            return None;
        }
        self.fetch.lagging();
        self.recorder
            .failed(AttemptFailure::transport(cause).report(RequestKind::Watch));
        Some(UpstreamWatchEnd::Disconnected)
    }

    /// Applies a chunk and those that have arrived meanwhile, so that watches are woken once for all of them. Also returns what was read
    /// after them, if it is not a chunk.
    async fn apply_batch(
        &mut self,
        chunk: Bytes,
        body: &mut F::Body,
        frames: &mut Frames,
    ) -> Result<(ReadFlow, Option<StreamRead>), StopResult> {
        let mut batch_len = chunk.len();
        let mut flow = self.apply_chunk(&chunk, frames)?;
        while let (ReadFlow::More, true) = (&flow, batch_len < BATCH_LEN_MAX) {
            match more(body, self.sink.hold_until()).await {
                Some(StreamRead::Chunk(chunk)) => {
                    batch_len += chunk.len();
                    flow = self.apply_chunk(&chunk, frames)?;
                }
                other => return Ok((flow, other)),
            }
        }
        Ok((flow, None))
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
            }) => match object_in(encoding, frame, span, parts) {
                Ok(object) if self.reflector.may_follow(object.resource_version()) => {
                    Ok(self.apply_event(kind, object))
                }
                Ok(object) => Ok(self.reject(AttemptFailure::far_ahead(object.resource_version()))),
                Err(error) => Ok(self.reject(AttemptFailure::unparsable(&error))),
            },
            Ok(WatchLine::Bookmark(bookmark))
                if !self.reflector.may_follow(bookmark.resource_version) =>
            {
                Ok(self.reject(AttemptFailure::far_ahead(bookmark.resource_version)))
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
                    Effect::Restarted => {
                        self.sink.restart();
                        return Ok(ReadFlow::Over(UpstreamWatchEnd::Disconnected));
                    }
                    Effect::EndWatch => {
                        let cause = "a bookmark came before the end of the initial data";
                        return Ok(ReadFlow::Over(self.endless(cause)));
                    }
                    Effect::None
                    | Effect::InitialItem
                    | Effect::Live
                    | Effect::Late
                    | Effect::Ignored
                    | Effect::Proven
                    | Effect::Relisting { .. } => {}
                }
                Ok(ReadFlow::More)
            }
            Ok(WatchLine::Error(status)) => {
                self.sink.publish();
                let fault = AttemptFailure::refused(status.clone());
                self.recorder.failed(fault.report(RequestKind::Watch));
                self.observe(Input::WatchError(status));
                Ok(ReadFlow::Over(UpstreamWatchEnd::Error))
            }
            Err(error) => Ok(self.reject(AttemptFailure::unparsable(&error))),
        }
    }

    fn apply_event(&mut self, kind: EventKind, object: Object) -> ReadFlow {
        let input = Input::Event {
            kind,
            resource_version: object.resource_version(),
        };
        match self.observe(input) {
            Effect::InitialItem => {
                if kind != EventKind::Added {
                    self.changed_at.get_or_insert_with(now);
                }
                self.sink.initial(kind, object);
            }
            Effect::Live => self.sink.live(kind, object),
            Effect::Late => match self.sink.late(kind, &object) {
                LateChange::Known => self.recorder.ignored(),
                LateChange::Applied => {}
                LateChange::Missing => {
                    let (key, version) = (object.key(), object.resource_version());
                    let cause = format!("{key} came at version {version} after newer ones");
                    self.failed(RequestKind::Watch, AttemptFailure::unordered(cause));
                    return ReadFlow::Over(UpstreamWatchEnd::Error);
                }
            },
            Effect::Restarted => self.sink.restart(),
            Effect::None
            | Effect::InitialDone { .. }
            | Effect::Progress { .. }
            | Effect::EndWatch
            | Effect::Ignored
            | Effect::Proven
            | Effect::Relisting { .. } => {}
        }
        ReadFlow::More
    }

    /// Ends the stream at a frame that cannot be used. The frames before it count.
    fn reject(&mut self, fault: AttemptFailure) -> ReadFlow {
        self.sink.publish();
        self.failed(RequestKind::Watch, fault);
        ReadFlow::Over(UpstreamWatchEnd::Undecodable)
    }

    /// The stream ended between two frames. That is how watches end, but initial data must not end this way.
    fn ended(&mut self) {
        if self.observe(Input::WatchEnded) == Effect::Restarted {
            let fault = AttemptFailure::transport("the stream ended before its initial data did");
            self.recorder.failed(fault.report(RequestKind::Watch));
        }
    }

    /// Gives up streamed initial data whose end does not come.
    fn endless(&mut self, cause: &str) -> UpstreamWatchEnd {
        self.failed(RequestKind::Watch, AttemptFailure::endless(cause));
        UpstreamWatchEnd::Disconnected
    }

    fn cut(&mut self, cause: impl Into<String>) -> UpstreamWatchEnd {
        self.failed(RequestKind::Watch, AttemptFailure::transport(cause));
        UpstreamWatchEnd::Disconnected
    }
}

/// Waits for a comparison, if one is under way.
async fn state_of(comparison: &mut Option<UpstreamStateFuture>) -> UpstreamState {
    match comparison {
        Some(comparison) => comparison.await,
        None => std::future::pending().await,
    }
}

/// Waits for the next chunk, at most for a tick. Cancelling the wait loses no bytes, because a frame of the body arrives
/// whole or not at all.
async fn next<B: Body<Data = Bytes, Error: fmt::Display> + Unpin>(
    body: &mut B,
    tick: Duration,
) -> StreamRead {
    loop {
        let Ok(frame) = timeout(tick, body.frame()).await else {
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
