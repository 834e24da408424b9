//! Compares a watch with memory's, from the first version that both sides can begin after.

use std::time::Duration;

use bytes::Buf as _;
use tokio::time::{Instant, sleep};

use super::super::body::AnswerBody;
use super::super::fresh::WAIT;
use super::super::negotiation::Negotiation;
use super::super::resources::Latest;
use super::memory::{
    BROKEN, CompareStop, MEMORY_SHORT, NoAnswer, OLD, ShadowRead, TOO_MUCH, UNREADABLE, next_bytes,
};
use super::{ForwardedHead, encoding};
use crate::cache::Epoch;
use crate::decode::Frames;
use crate::metrics::ShadowOutcome;
use crate::protocol::request::{WatchPlan, WatchStart};
use crate::resource::{CATCH_UP_HEADER, Encoding, EventKind, ResourceVersion};
use crate::shadow::{
    ByteBudget, ComparedSide, HeldBytes, ObjectHasher, ObjectSet, SequenceComparison, Shadow,
    ShadowFrame, TeeItem, TeeReader,
};
use crate::watch::Watch;

/// Longest frame of a watch, as for the gateway's own watches.
const FRAME_LEN_MAX: usize = 16 << 20;
/// Initial events of one watch: as many pods as a cluster has.
const INITIAL_EVENTS_MAX: usize = 200_000;
/// Items and frames that are taken at a time: with a turn for each, a busy watch would be slower than its events.
const TAKEN_MAX: usize = 256;
/// Objects were written while the initial events were sent.
const WRITTEN: CompareStop =
    CompareStop::NotComparable("objects were written during the initial events");
/// How often it is looked whether a side is behind, or silent.
const TICK: Duration = Duration::from_secs(2);
/// After another list, memory sends the difference between two states instead of all events.
const REFILLED: CompareStop = CompareStop::NotComparable("the cache was filled again");
/// How long the other side is waited for once one side has ended.
const SETTLE: Duration = Duration::from_secs(5);

/// The frames of one side.
struct FrameReader {
    encoding: Encoding,
    frames: Frames,
    /// Counts the bytes in `frames`.
    held: HeldBytes,
    hasher: ObjectHasher,
}

/// The initial events of one side.
struct InitialObjects {
    objects: ObjectSet,
    held: HeldBytes,
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
    fn new(encoding: Encoding, shadow: &Shadow) -> Result<Self, CompareStop> {
        Ok(Self {
            encoding,
            frames: Frames::new(encoding, FRAME_LEN_MAX),
            held: shadow.budget().hold(0).ok_or(TOO_MUCH)?,
            hasher: shadow.hasher().clone(),
        })
    }

    fn push(&mut self, bytes: &[u8], held: HeldBytes) {
        self.held.merge(held);
        self.frames.push(bytes);
    }

    fn next(&mut self) -> Result<Option<ShadowFrame>, CompareStop> {
        let frame = self.frames.next_frame();
        let Some(frame) = frame.map_err(|_| TOO_MUCH)? else {
            self.held.resize(self.frames.held_len()).ok_or(TOO_MUCH)?;
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
            Some(TeeItem::Chunk(chunk, held)) => self.reader.push(&chunk, held),
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
    async fn next(&mut self, budget: &ByteBudget) -> Result<(), CompareStop> {
        match next_bytes(&mut self.body).await {
            Some(Ok(mut bytes)) => {
                while bytes.has_remaining() {
                    let part = bytes.chunk();
                    self.reader
                        .push(part, budget.hold(part.len()).ok_or(TOO_MUCH)?);
                    bytes.advance(part.len());
                }
            }
            Some(Err(_)) => return Err(BROKEN),
            None => self.is_over = true,
        }
        Ok(())
    }

    /// Waits for the next frame, and takes those that are there already.
    async fn next_all(&mut self, budget: &ByteBudget) -> Result<(), CompareStop> {
        self.next(budget).await?;
        for _ in 1..TAKEN_MAX {
            let is_ready = tokio::select! {
                biased;
                read = self.next(budget), if !self.is_over => {
                    read?;
                    true
                }
                () = std::future::ready(()) => false,
            };
            if !is_ready {
                break;
            }
        }
        Ok(())
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
            reader: FrameReader::new(sent, &self.shadow)?,
            silent_since: None,
            has_events: false,
            is_over: false,
            is_cut: false,
            error: None,
        };
        // Held until the initial events of both sides are compared.
        let mut collecting = None;
        let plan = WatchPlan::decide(&self.read.options).ok_or(UNREADABLE)?;
        let (start, initial) = match plan.start {
            WatchStart::After(version) => (version, None),
            WatchStart::Initial { .. } if plan.has_end_marker() => {
                let permit = self.shadow.initial();
                let permit = permit.ok_or(CompareStop::NotComparable("too many comparisons"))?;
                collecting = Some(permit);
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
            reader: FrameReader::new(sent, &self.shadow)?,
            is_over: false,
            error: None,
        };
        let epoch = memory.epoch();
        if let Some(objects) = initial {
            let others = self.memory_initial(&mut memory).await?;
            if memory.epoch() != epoch {
                return Err(REFILLED);
            }
            self.compare_states(objects.objects, others.objects).await?;
        }
        drop(collecting);
        self.compare_events(upstream, memory, start, epoch).await
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

    fn no_events(&self) -> Result<InitialObjects, CompareStop> {
        Ok(InitialObjects {
            objects: ObjectSet::default(),
            held: self.shadow.budget().hold(0).ok_or(TOO_MUCH)?,
        })
    }

    /// Ends the comparison if clients need the memory.
    fn has_memory(&self) -> Result<(), CompareStop> {
        match self.clients.is_memory_short() {
            true => Err(CompareStop::NotComparable(MEMORY_SHORT)),
            false => Ok(()),
        }
    }

    /// Upstream's initial events, and their version.
    async fn upstream_initial(
        &self,
        upstream: &mut UpstreamWatch,
    ) -> Result<(ResourceVersion, InitialObjects), CompareStop> {
        let mut objects = self.no_events()?;
        loop {
            {
                let _turn = self.shadow.turn().await;
                if let Some(version) =
                    read_initial(&mut upstream.reader, self.shadow.budget(), &mut objects)?
                {
                    upstream.has_events = true;
                    return Ok((version, objects));
                }
            }
            if upstream.is_over {
                return Err(BROKEN);
            }
            self.has_memory()?;
            let item = upstream.items.recv().await;
            upstream.take(item)?;
        }
    }

    /// The same of memory's.
    async fn memory_initial(
        &self,
        memory: &mut MemoryWatch,
    ) -> Result<InitialObjects, CompareStop> {
        let mut objects = self.no_events()?;
        loop {
            {
                let _turn = self.shadow.turn().await;
                if read_initial(&mut memory.reader, self.shadow.budget(), &mut objects)?.is_some() {
                    return Ok(objects);
                }
            }
            if memory.is_over {
                return Err(BROKEN);
            }
            self.has_memory()?;
            memory.next(self.shadow.budget()).await?;
        }
    }

    /// Compares the events after `start`, until one of the watches ends.
    async fn compare_events(
        &self,
        mut upstream: UpstreamWatch,
        mut memory: MemoryWatch,
        start: ResourceVersion,
        epoch: Option<Epoch>,
    ) -> Result<(), CompareStop> {
        let mut held = self.shadow.budget().hold(0).ok_or(TOO_MUCH)?;
        let mut comparison = SequenceComparison::after(start);
        let mut settled_at = None;
        loop {
            self.has_memory()?;
            {
                let _turn = self.shadow.turn().await;
                read_events(&mut upstream, &mut memory, &mut comparison)?;
                // After another list, memory sends the difference between two states instead of all events.
                if memory.epoch() != epoch {
                    return Err(REFILLED);
                }
                self.record_events(&mut comparison);
                held.resize(comparison.held_len()).ok_or(TOO_MUCH)?;
            }
            let now = Instant::now();
            let is_ended = upstream.is_over || memory.is_over;
            if is_ended || upstream.error.is_some() || memory.error.is_some() {
                settled_at.get_or_insert(now + SETTLE);
            }
            let is_settled = settled_at.is_some_and(|at| now >= at);
            if let EventsProgress::Over = self.judge(&upstream, &memory, &comparison, is_settled)? {
                return Ok(());
            }
            // Both may be cancelled: what they have not returned stays where it is.
            tokio::select! {
                item = upstream.items.recv(), if !upstream.is_over => upstream.take_all(item)?,
                read = memory.next_all(self.shadow.budget()), if !memory.is_over => read?,
                () = sleep(TICK) => {}
            }
        }
    }

    fn record_events(&self, comparison: &mut SequenceComparison) {
        let mut equal = 0;
        while let Some(compared) = comparison.next() {
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
            (Some(410), Some(other)) if !is_refusal(other) => return Err(OLD),
            (Some(_), Some(other)) if !is_refusal(other) => {
                return Err(NoAnswer::Unknown.into());
            }
            (Some(_), Some(_)) => return Err(CompareStop::Differs(ShadowOutcome::Status)),
            (Some(410), None) if is_settled => return Err(OLD),
            // Memory goes on where upstream has refused the client's version.
            (Some(_), None) if is_settled && !upstream.has_events => {
                return Err(CompareStop::Differs(ShadowOutcome::Status));
            }
            (None, Some(code)) if is_settled && is_refusal(code) => {
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
        if is_memory_gone && memory.reader.frames.is_mid_frame() {
            return Err(CompareStop::Differs(ShadowOutcome::Content));
        }
        // With bookmarks, upstream may be silent for longer than that.
        let has_bookmarks = self.read.options.allow_watch_bookmarks;
        let silent_since = upstream.silent_since.filter(|_| !has_bookmarks);
        if comparison.is_hopeless(silent_since, Instant::now())
            || waits && (is_settled || is_memory_gone)
        {
            return Err(CompareStop::NotComparable("one side is behind"));
        }
        if is_memory_gone && is_settled && !upstream.is_over && upstream.error.is_none() {
            return Err(CompareStop::NotComparable("memory's watch ended first"));
        }
        let is_over = is_settled || upstream.is_over && upstream.error.is_none() && !waits;
        match is_over {
            true if upstream.is_cut => Err(CompareStop::Differs(ShadowOutcome::Content)),
            true => Ok(EventsProgress::Over),
            false => Ok(EventsProgress::Open),
        }
    }
}

/// Whether the code of an ERROR event says something about the request.
const fn is_refusal(code: u16) -> bool {
    code != 410 && matches!(NoAnswer::of_code(code), NoAnswer::Refused(_))
}

/// Adds initial events to `objects`; returns their version once they are complete.
fn read_initial(
    reader: &mut FrameReader,
    budget: &ByteBudget,
    initial: &mut InitialObjects,
) -> Result<Option<ResourceVersion>, CompareStop> {
    let mut len = 0;
    while let Some(frame) = reader.next()? {
        match frame {
            // Either side may send what is written meanwhile before the end of the initial events.
            ShadowFrame::Event(kind, _) if kind != EventKind::Added => return Err(WRITTEN),
            ShadowFrame::Event(_, object) if initial.objects.len() < INITIAL_EVENTS_MAX => {
                len += object.held_len();
                initial.objects.push(object);
            }
            ShadowFrame::Error(code) if is_refusal(code) => {
                return Err(CompareStop::Differs(ShadowOutcome::Status));
            }
            ShadowFrame::Error(_) => return Err(BROKEN),
            ShadowFrame::Bookmark {
                version,
                ends_initial_events: true,
            } => return Ok(Some(version)),
            ShadowFrame::Event(..) | ShadowFrame::Bookmark { .. } => return Err(TOO_MUCH),
        }
    }
    let more = budget.hold(len).ok_or(TOO_MUCH)?;
    initial.held.merge(more);
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
                comparison.mark(ComparedSide::Memory, version);
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
