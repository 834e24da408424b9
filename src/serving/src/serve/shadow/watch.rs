//! Compares a watch with memory's, from the first version that both sides can begin after.

use std::time::Duration;

use bytes::Buf as _;
use tokio::time::{Instant, sleep};

use super::super::body::AnswerBody;
use super::super::fresh::WAIT;
use super::super::negotiation::Negotiation;
use super::super::resources::Latest;
use super::memory::{BROKEN, CompareStop, NoAnswer, ShadowRead, TOO_MUCH, UNREADABLE, next_bytes};
use super::{ForwardedHead, encoding};
use crate::cache::Epoch;
use crate::decode::Frames;
use crate::metrics::ShadowOutcome;
use crate::protocol::request::{WatchPlan, WatchStart};
use crate::resource::{CATCH_UP_HEADER, Encoding, ResourceVersion};
use crate::shadow::{
    ComparedSide, ObjectHasher, ObjectSet, SequenceComparison, ShadowFrame, TeeItem, TeeReader,
    differences,
};
use crate::watch::Watch;

/// Longest frame of a watch, as for the gateway's own watches.
const FRAME_LEN_MAX: usize = 16 << 20;
/// Initial events of one watch: as many pods as a cluster has.
const INITIAL_EVENTS_MAX: usize = 200_000;
/// Items and frames that are taken at a time: with a turn for each, a busy watch would be slower than its events.
const TAKEN_MAX: usize = 256;
/// How often it is looked whether a side is behind, or silent.
const TICK: Duration = Duration::from_secs(2);
/// How long the other side is waited for once one side has ended.
const SETTLE: Duration = Duration::from_secs(5);

/// The frames of one side.
struct FrameReader {
    encoding: Encoding,
    frames: Frames,
    hasher: ObjectHasher,
}

/// Upstream's side.
struct UpstreamWatch {
    items: TeeReader,
    reader: FrameReader,
    /// Since when it has sent nothing although its client waits.
    silent_since: Option<Instant>,
    has_events: bool,
    is_over: bool,
    /// Whether it ended within an event, although nothing broke off.
    is_cut: bool,
    /// The code of its ERROR event.
    error: Option<u16>,
}

/// Memory's side.
struct MemoryWatch {
    body: AnswerBody,
    reader: FrameReader,
    is_over: bool,
    error: Option<u16>,
}

/// Whether a comparison of two watches goes on.
enum EventsProgress {
    Open,
    Over,
}

impl FrameReader {
    const fn new(encoding: Encoding, hasher: ObjectHasher) -> Self {
        Self {
            encoding,
            frames: Frames::new(encoding, FRAME_LEN_MAX),
            hasher,
        }
    }

    fn next(&mut self) -> Result<Option<ShadowFrame>, CompareStop> {
        let frame = self.frames.next_frame();
        let Some(frame) = frame.map_err(|_| TOO_MUCH)? else {
            return Ok(None);
        };
        let frame = ShadowFrame::read(self.encoding, frame, &self.hasher);
        frame
            .map(Some)
            .map_err(|_| CompareStop::Differs(ShadowOutcome::Content))
    }
}

impl UpstreamWatch {
    /// Takes this item, and those behind it.
    fn take_all(&mut self, item: Option<TeeItem>) -> Result<(), CompareStop> {
        self.take(item)?;
        for _ in 1..TAKEN_MAX {
            match self.items.try_recv() {
                Ok(item) => self.take(Some(item))?,
                // That it takes no more is told after all that it took.
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, item: Option<TeeItem>) -> Result<(), CompareStop> {
        self.silent_since = matches!(item, Some(TeeItem::Idle)).then(Instant::now);
        match item {
            Some(TeeItem::Chunk(chunk, _)) => self.reader.frames.push(&chunk),
            Some(TeeItem::Idle) => {}
            Some(TeeItem::End) => {
                (self.is_over, self.is_cut) = (true, self.reader.frames.is_mid_frame())
            }
            Some(TeeItem::Broken) => self.is_over = true,
            // Its comparison is too slow.
            None => return Err(TOO_MUCH),
        }
        Ok(())
    }
}

impl MemoryWatch {
    async fn next(&mut self) {
        match next_bytes(&mut self.body).await {
            Some(Ok(mut bytes)) => {
                while bytes.has_remaining() {
                    let part = bytes.chunk();
                    self.reader.frames.push(part);
                    bytes.advance(part.len());
                }
            }
            Some(Err(_)) | None => self.is_over = true,
        }
    }

    /// Waits for the next frame, and takes those that are there already.
    async fn next_all(&mut self) {
        self.next().await;
        for _ in 1..TAKEN_MAX {
            let is_ready = tokio::select! {
                biased;
                () = self.next(), if !self.is_over => true,
                () = std::future::ready(()) => false,
            };
            if !is_ready {
                break;
            }
        }
    }

    /// The watch itself; `None` if memory has refused it.
    fn watch(&mut self) -> Option<&mut Watch> {
        match &mut self.body {
            AnswerBody::Watch(watch) => Some(watch),
            AnswerBody::Whole(_)
            | AnswerBody::Stream(_)
            | AnswerBody::List(_)
            | AnswerBody::Forwarded(..) => None,
        }
    }

    /// Another list has replaced events.
    fn epoch(&mut self) -> Option<Epoch> {
        self.watch()?.epoch()
    }
}

impl ShadowRead {
    /// Compares a watch.
    pub(super) async fn compare_watch(
        &self,
        head: &ForwardedHead,
        items: TeeReader,
    ) -> Result<(), CompareStop> {
        if head.code != 200 {
            return self.compare_status(head.code).await;
        }
        let sent = head.encoding.filter(|_| !head.is_gzip);
        let sent = sent.ok_or(UNREADABLE)?;
        let mut upstream = UpstreamWatch {
            items,
            reader: FrameReader::new(sent, self.shadow.hasher().clone()),
            silent_since: None,
            has_events: false,
            is_over: false,
            is_cut: false,
            error: None,
        };
        let plan = WatchPlan::decide(&self.read.options).ok_or(UNREADABLE)?;
        let (start, initial) = match plan.start {
            WatchStart::After(version) => (version, None),
            WatchStart::Initial { .. } if plan.has_end_marker() => {
                let (version, objects) = self.upstream_initial(&mut upstream).await?;
                (version, Some(objects))
            }
            // Upstream's start is not known, but it is not after the newest version of this moment.
            WatchStart::Initial { .. } | WatchStart::FromNow { .. } => {
                (self.newest_version().await?, None)
            }
        };
        let response = self.answer(Some(start)).await?;
        if encoding(response.headers()) != Some(sent) {
            return Err(CompareStop::Differs(ShadowOutcome::Content));
        }
        // It has the latest states instead of all events.
        if response.headers().contains_key(CATCH_UP_HEADER) {
            return Err(CompareStop::NotComparable("memory sends the latest state"));
        }
        let mut memory = MemoryWatch {
            body: response.into_body(),
            reader: FrameReader::new(sent, self.shadow.hasher().clone()),
            is_over: false,
            error: None,
        };
        if let Some(objects) = initial {
            let others = self.memory_initial(&mut memory).await?;
            self.recorder.record(&differences(&objects, &others));
        }
        self.compare_events(upstream, memory, start).await
    }

    /// The newest version that upstream has given out.
    async fn newest_version(&self) -> Result<ResourceVersion, CompareStop> {
        let read = self.authorized(None).await?;
        let negotiation = Negotiation::of(&self.info, self.service.resources.gates());
        let first = negotiation.first_choice();
        let first = first.ok_or(UNREADABLE)?;
        let (_, served) = self.service.cache(&read, first).await;
        let served = served.map_err(|_| NoAnswer::Unknown)?;
        let until = Instant::now() + WAIT;
        match self.service.query_latest(&served, until).await {
            Latest::At(version) | Latest::Proven(_, version) => Ok(version),
            Latest::Unknown => Err(NoAnswer::Unknown.into()),
        }
    }

    /// Upstream's initial events, and their version.
    async fn upstream_initial(
        &self,
        upstream: &mut UpstreamWatch,
    ) -> Result<(ResourceVersion, ObjectSet), CompareStop> {
        let mut objects = ObjectSet::default();
        loop {
            {
                let _turn = self.shadow.turn().await;
                if let Some(version) = read_initial(&mut upstream.reader, &mut objects)? {
                    upstream.has_events = true;
                    return Ok((version, objects));
                }
            }
            if upstream.is_over {
                return Err(BROKEN);
            }
            let item = upstream.items.recv().await;
            upstream.take(item)?;
        }
    }

    /// The same of memory's.
    async fn memory_initial(&self, memory: &mut MemoryWatch) -> Result<ObjectSet, CompareStop> {
        let mut objects = ObjectSet::default();
        loop {
            {
                let _turn = self.shadow.turn().await;
                if read_initial(&mut memory.reader, &mut objects)?.is_some() {
                    return Ok(objects);
                }
            }
            if memory.is_over {
                return Err(BROKEN);
            }
            memory.next().await;
        }
    }

    /// Compares the events after `start`, until one of the watches ends.
    async fn compare_events(
        &self,
        mut upstream: UpstreamWatch,
        mut memory: MemoryWatch,
        start: ResourceVersion,
    ) -> Result<(), CompareStop> {
        let mut comparison = SequenceComparison::after(start);
        let (epoch, mut settled_at) = (memory.epoch(), None);
        loop {
            {
                let _turn = self.shadow.turn().await;
                read_events(&mut upstream, &mut memory, &mut comparison)?;
                // After another list, memory sends the difference between two states instead of all events.
                if memory.epoch() != epoch {
                    return Err(CompareStop::NotComparable("the cache was filled again"));
                }
                self.record_events(&mut comparison, upstream.silent_since);
            }
            let now = Instant::now();
            if upstream.is_over || upstream.error.is_some() || memory.error.is_some() {
                settled_at.get_or_insert(now + SETTLE);
            }
            let is_settled = settled_at.is_some_and(|at| now >= at);
            if let EventsProgress::Over = self.judge(&upstream, &memory, &comparison, is_settled)? {
                return Ok(());
            }
            // Both may be cancelled: what they have not returned stays where it is.
            tokio::select! {
                item = upstream.items.recv(), if !upstream.is_over => upstream.take_all(item)?,
                () = memory.next_all(), if !memory.is_over => {}
                () = sleep(TICK) => {}
            }
        }
    }

    fn record_events(&self, comparison: &mut SequenceComparison, silent_since: Option<Instant>) {
        let (now, mut equal) = (Instant::now(), 0);
        while let Some(compared) = comparison.next(silent_since, now) {
            match compared {
                Ok(()) => equal += 1,
                Err(difference) => self.recorder.differs(&difference),
            }
        }
        self.recorder.count(ShadowOutcome::Equal, equal);
    }

    /// Whether there is more to compare.
    fn judge(
        &self,
        upstream: &UpstreamWatch,
        memory: &MemoryWatch,
        comparison: &SequenceComparison,
        is_settled: bool,
    ) -> Result<EventsProgress, CompareStop> {
        match (upstream.error, memory.error) {
            (Some(code), Some(other)) if code == other => {
                self.recorder.count(ShadowOutcome::Equal, 1);
                return Ok(EventsProgress::Over);
            }
            (Some(_), Some(_)) => return Err(CompareStop::Differs(ShadowOutcome::Status)),
            // Memory goes on where upstream has refused the client's version.
            (Some(_), None) if is_settled && !upstream.has_events => {
                return Err(CompareStop::Differs(ShadowOutcome::Status));
            }
            // Memory does not reach back so far, or its watch fell behind.
            (None, Some(_)) if is_settled => {
                return Err(CompareStop::NotComparable(
                    "memory's history does not reach it",
                ));
            }
            _ => {}
        }
        let waits = comparison.waits_for_memory();
        let is_memory_gone = memory.is_over && memory.error.is_none();
        if comparison.is_hopeless(Instant::now()) || waits && (is_settled || is_memory_gone) {
            return Err(CompareStop::NotComparable("one side is behind"));
        }
        let is_over = is_memory_gone
            || is_settled
            || upstream.is_over && upstream.error.is_none() && !waits
            || !self.control.has_shadow();
        match is_over {
            true if upstream.is_cut => Err(CompareStop::Differs(ShadowOutcome::Content)),
            true => Ok(EventsProgress::Over),
            false => Ok(EventsProgress::Open),
        }
    }
}

/// Adds initial events to `objects`; returns their version once they are complete.
fn read_initial(
    reader: &mut FrameReader,
    objects: &mut ObjectSet,
) -> Result<Option<ResourceVersion>, CompareStop> {
    while let Some(frame) = reader.next()? {
        match frame {
            ShadowFrame::Event(_, object) if objects.len() < INITIAL_EVENTS_MAX => {
                objects.push(object);
            }
            ShadowFrame::Bookmark {
                version,
                ends_initial_events: true,
            } => return Ok(Some(version)),
            ShadowFrame::Event(..) | ShadowFrame::Bookmark { .. } | ShadowFrame::Error(_) => {
                return Err(TOO_MUCH);
            }
        }
    }
    Ok(None)
}

/// Adds all events that have arrived.
fn read_events(
    upstream: &mut UpstreamWatch,
    memory: &mut MemoryWatch,
    comparison: &mut SequenceComparison,
) -> Result<(), CompareStop> {
    let now = Instant::now();
    while let Some(frame) = upstream.reader.next()? {
        match frame {
            ShadowFrame::Event(kind, object) => {
                upstream.has_events = true;
                comparison.push(ComparedSide::Upstream, kind, object, now);
            }
            ShadowFrame::Bookmark { version, .. } => {
                upstream.has_events = true;
                comparison.pass(ComparedSide::Upstream, version);
            }
            ShadowFrame::Error(code) => upstream.error = Some(code),
        }
    }
    while let Some(frame) = memory.reader.next()? {
        match frame {
            ShadowFrame::Event(kind, object) => {
                comparison.push(ComparedSide::Memory, kind, object, now);
            }
            ShadowFrame::Bookmark { version, .. } => {
                comparison.pass(ComparedSide::Memory, version);
            }
            ShadowFrame::Error(code) => memory.error = Some(code),
        }
    }
    if comparison.waits_for_memory()
        && let Some(version) = memory.watch().and_then(Watch::proven)
    {
        comparison.pass(ComparedSide::Memory, version);
    }
    Ok(())
}
