//! A delivery worker: a task that owns streams and writes their events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hashbrown::HashMap;
use slab::Slab;
use tokio::time::{Instant, Sleep};

use super::group::{DeliveryGroup, PassStart, SharedChunks};
use super::inbox::{Inbox, WakeToken, waker};
use super::limits::TurnLimits;
use super::new_stream::NewStream;
use super::stream::{DeliveryStream, StreamProgress};
use crate::transport::StreamFlush;
use crate::view::View;

/// Number of timer entries of removed streams that may remain, in addition to as many as there are streams.
const TIMERS_SPARE: usize = 64;
/// The backlog gets at least one in so many visits of a turn, whatever other work there is, so that at least one of its streams
/// advances.
const BACKLOG_SHARE: usize = 8;
/// The timer of a worker without deadlines.
const IDLE: Duration = Duration::from_secs(3_600);

/// Work of this turn or of later ones.
#[derive(Clone, Copy, Debug)]
enum WorkItem {
    Stream(usize),
    /// Start a pass over a group.
    Group(usize),
    /// Continue a pass over a group.
    Pass(usize),
}

#[derive(Debug)]
pub(super) struct DeliveryWorker {
    limits: TurnLimits,
    inbox: Arc<Inbox>,
    woken: Vec<WakeToken>,
    arrivals: VecDeque<Box<NewStream>>,
    tasks: VecDeque<WorkItem>,
    /// Streams that have used up their turn and have more to send or to search, each with the number of its entry. They get what
    /// other work leaves of a turn, but at least a fixed share.
    backlog: VecDeque<(usize, u64)>,
    backlog_entries: u64,
    streams: Slab<DeliveryStream>,
    groups: Slab<DeliveryGroup>,
    /// Groups by the address of their view, which the group keeps alive.
    by_view: HashMap<usize, usize, foldhash::fast::RandomState>,
    /// The times to visit streams at. An entry is valid only if it is equal to its stream's `wake_at`.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Groups whose next pass begins at a time. Keys are reused; a pass too many finds nothing to do.
    pauses: Vec<(Instant, usize)>,
    timer: Pin<Box<Sleep>>,
    /// What was sent over HTTP/2 and is not written yet: one write a connection, each with the group whose pass has sent it.
    flushes: VecDeque<(StreamFlush, Option<usize>)>,
    /// Since when the first of them waits.
    unflushed_since: Option<Instant>,
    /// The groups of this turn's passes that are not over.
    running: Vec<usize>,
    /// The groups whose pass is over, and ends when everything is written.
    over: Vec<usize>,
}

impl DeliveryWorker {
    pub(super) fn new(inbox: Arc<Inbox>, limits: TurnLimits) -> Self {
        Self {
            limits,
            inbox,
            woken: Vec::new(),
            arrivals: VecDeque::new(),
            tasks: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_entries: 0,
            streams: Slab::new(),
            groups: Slab::new(),
            by_view: HashMap::default(),
            timers: BinaryHeap::new(),
            pauses: Vec::new(),
            timer: Box::pin(tokio::time::sleep(IDLE)),
            flushes: VecDeque::new(),
            unflushed_since: None,
            running: Vec::new(),
            over: Vec::new(),
        }
    }

    /// A worker that replaces a panicked one. It takes over the streams that were not added yet; the others end with the panicked
    /// worker.
    pub(super) fn replacement_for(other: &mut Self) -> Self {
        let mut worker = Self::new(Arc::clone(&other.inbox), other.limits);
        worker.arrivals.append(&mut other.arrivals);
        worker
    }

    pub(super) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Adds a stream and visits it; returns the number of visits that it counts as.
    fn add_stream(&mut self, arrival: NewStream, now: Instant) -> usize {
        let NewStream {
            client,
            head,
            watch,
        } = arrival;
        let (cursor, waiter) = watch.into_parts();
        let view = Arc::clone(cursor.view());
        let recorder = Arc::clone(cursor.recorder());
        let entry = self.streams.vacant_entry();
        let key = entry.key();
        let waker = waker(&self.inbox, WakeToken::Stream(key));
        let stream = entry.insert(DeliveryStream::new(client, head, cursor, waker));
        // The group uses the waiter of its first stream.
        stream.group = *self.by_view.entry(address(&view)).or_insert_with(|| {
            let entry = self.groups.vacant_entry();
            let key = entry.key();
            let waker = super::inbox::waker(&self.inbox, WakeToken::Group(key));
            entry.insert(DeliveryGroup::new(view, recorder, waiter, waker));
            key
        });
        stream.group_index = self.groups[stream.group].push(key);
        self.timers.push(Reverse((stream.wake_at, key)));
        self.visit(key, now)
    }

    /// Visits a stream: it reads from its client, does what is due, and sends what is available. Returns the number of visits that
    /// it counts as.
    fn visit(&mut self, key: usize, now: Instant) -> usize {
        let Some(stream) = self.streams.get_mut(key) else {
            return 1;
        };
        let timer_at = stream.wake_at;
        let writes_max = self.limits.stream_turn;
        let progress = catch_client_panic(|| stream.wake(now, writes_max));
        self.flushes
            .extend(stream.take_due_flush().map(|flush| (flush, None)));
        let wake_at = stream.wake_at;
        // A time that has passed needs no timer: it is handled when the client takes more data.
        if wake_at != timer_at && wake_at > now {
            self.timers.push(Reverse((wake_at, key)));
        }
        self.apply_progress(key, progress)
    }

    /// Acts on the state of a stream after a visit. Returns the number of visits it counts as, which is roughly its number of
    /// writes.
    fn apply_progress(&mut self, key: usize, progress: StreamProgress) -> usize {
        match progress {
            StreamProgress::Idle | StreamProgress::Blocked => {}
            StreamProgress::Behind => self.groups[self.streams[key].group].repeat(),
            StreamProgress::Again => {
                self.defer(key);
                return self.limits.stream_turn;
            }
            StreamProgress::Over => self.remove(key).return_connection(),
            StreamProgress::Gone => self.remove(key).drop_connection(),
        }
        1
    }

    /// Puts a stream into the backlog for a later turn, where it has one entry however often it is visited in between.
    fn defer(&mut self, key: usize) {
        let stream = &mut self.streams[key];
        if stream.backlog_entry.is_none() {
            self.backlog_entries += 1;
            stream.backlog_entry = Some(self.backlog_entries);
            self.backlog.push_back((key, self.backlog_entries));
        }
    }

    /// Visits the streams in the backlog, at most `budget` visits and each stream at most once.
    fn visit_backlog(&mut self, now: Instant, mut budget: usize) {
        for _ in 0..self.backlog.len() {
            if budget == 0 {
                break;
            }
            let Some((key, entry)) = self.backlog.pop_front() else {
                break;
            };
            let stream = self.streams.get_mut(key);
            // Keys are reused, so check the entry's number.
            if let Some(stream) = stream.filter(|stream| stream.backlog_entry == Some(entry)) {
                stream.backlog_entry = None;
                budget = budget.saturating_sub(self.visit(key, now));
            }
        }
    }

    fn remove(&mut self, key: usize) -> DeliveryStream {
        let stream = self.streams.remove(key);
        let group = &mut self.groups[stream.group];
        let streams = &mut self.streams;
        group.remove(stream.group_index, |moved, index| {
            streams[moved].group_index = index
        });
        if group.is_empty() {
            let group = self.groups.remove(stream.group);
            self.by_view.remove(&address(&group.view));
        }
        stream
    }

    /// Does one work item; returns the number of visits.
    fn perform(&mut self, task: WorkItem, now: Instant, budget: usize) -> usize {
        match task {
            WorkItem::Stream(key) => {
                // A stream in the backlog reads from its client when its turn comes there.
                let stream = self.streams.get(key);
                if stream.is_some_and(|stream| stream.backlog_entry.is_some()) {
                    return 1;
                }
                self.visit(key, now)
            }
            WorkItem::Group(key) => {
                match self.groups.get_mut(key).map(|group| group.begin(now)) {
                    Some(PassStart::Now) => return self.pass(key, budget),
                    Some(PassStart::At(at)) => self.pauses.push((at, key)),
                    Some(PassStart::Later) | None => {}
                }
                0
            }
            WorkItem::Pass(key) => self.pass(key, budget),
        }
    }

    /// Continues the pass over a group; returns the number of visits.
    fn pass(&mut self, key: usize, budget: usize) -> usize {
        let begin = Instant::now();
        let (visited, is_over) = self.send_batches(key, budget);
        // The group may have been removed with its last member.
        if let Some(group) = self.groups.get_mut(key) {
            group.add_time(begin.elapsed());
            match is_over {
                true => self.over.push(key),
                false => self.running.push(key),
            }
        }
        visited
    }

    /// Writes what was sent over HTTP/2, unless all passes of this turn go on and may bring more to the same connections. Ends the passes
    /// that are over.
    fn end_passes(&mut self) {
        let has_sent = |key: &usize| self.flushes.iter().any(|(_, group)| *group == Some(*key));
        let goes_on = |key: &usize| self.groups.contains(*key) && has_sent(key);
        let some_go_on = !self.running.is_empty() && self.over.is_empty();
        let may_wait = some_go_on && self.running.iter().all(goes_on);
        let since = *self.unflushed_since.get_or_insert_with(Instant::now);
        if !may_wait || since.elapsed() >= self.limits.flush_wait {
            self.flush();
        }
        self.tasks
            .extend(self.running.drain(..).map(WorkItem::Pass));
        if !self.flushes.is_empty() {
            return;
        }
        self.unflushed_since = None;
        let end = Instant::now();
        for key in self.over.drain(..) {
            let group = self.groups.get_mut(key);
            if group.is_some_and(|group| group.finish(end, self.limits.pass_min)) {
                self.tasks.push_back(WorkItem::Group(key));
            }
        }
    }

    /// Writes to more connections than a turn visits, so that none waits for ever. That belongs to the time of the passes.
    fn flush(&mut self) {
        let mut begin = Instant::now();
        let count = self.flushes.len().min(2 * self.limits.worker_turn);
        for (flush, group) in self.flushes.drain(..count) {
            drop(flush);
            let end = Instant::now();
            if let Some(group) = group.and_then(|key| self.groups.get_mut(key)) {
                group.add_time(end - begin);
            }
            begin = end;
        }
    }

    /// Sends new batches to up to `budget` members of a group; returns the number of visits, and whether these were the last members.
    fn send_batches(&mut self, key: usize, budget: usize) -> (usize, bool) {
        let Some(group) = self.groups.get_mut(key) else {
            return (0, true);
        };
        let (view, recorder) = (Arc::clone(&group.view), Arc::clone(&group.recorder));
        let writes_max = self.limits.stream_turn;
        // Check in this order, so that events published before the view was closed are still sent.
        let (is_closed, head) = (view.is_closed(), view.head());
        let is_scheduled = view.end_schedule().is_some();
        let (mut chunks, mut visited) = (SharedChunks::new(self.limits), 0);
        let mut is_over = false;
        while visited < budget {
            let next = self.groups.get_mut(key).and_then(DeliveryGroup::next);
            let Some(member) = next else {
                is_over = true;
                break;
            };
            let stream = &mut self.streams[member];
            if is_scheduled && let Some(wake_at) = stream.schedule_end() {
                self.timers.push(Reverse((wake_at, member)));
            }
            let cursor = stream.cursor().cursor();
            let reads_by_itself = !stream.is_caught_up() || stream.backlog_entry.is_some();
            if reads_by_itself || cursor == head && !is_closed {
                visited += 1;
                continue;
            }
            let progress = catch_client_panic(|| {
                // A closed view wakes no stream again, so each stream reads to its own end.
                let chunk = if is_closed {
                    None
                } else {
                    chunks.at(&view, cursor)
                };
                let taken = chunk.and_then(|(chunk, client_count)| {
                    let progress = stream.send_shared(chunk)?;
                    *client_count += 1;
                    Some(progress)
                });
                taken.unwrap_or_else(|| stream.drive(writes_max))
            });
            self.flushes
                .extend(stream.take_due_flush().map(|flush| (flush, Some(key))));
            if progress == StreamProgress::Blocked && stream.must_watch_progress() {
                self.tasks.push_back(WorkItem::Stream(member));
            }
            visited += self.apply_progress(member, progress);
        }
        chunks.record_lines(&*recorder);
        (visited, is_over)
    }

    /// Queues the streams and groups whose time has come.
    fn expire_timers(&mut self, now: Instant) {
        let over = self.pauses.extract_if(.., |(at, _)| *at <= now);
        self.tasks.extend(over.map(|(_, key)| WorkItem::Group(key)));
        while let Some(Reverse((at, key))) = self.timers.peek().copied() {
            let stream = self.streams.get(key);
            let is_set = stream.is_some_and(|stream| stream.wake_at == at);
            if is_set && at > now {
                break;
            }
            self.timers.pop();
            if is_set {
                self.tasks.push_back(WorkItem::Stream(key));
            }
        }
        // Drop stale entries before they outnumber the valid ones.
        if self.timers.len() > 2 * self.streams.len() + TIMERS_SPARE {
            let streams = &self.streams;
            self.timers.retain(|Reverse((at, key))| {
                let stream = streams.get(*key);
                stream.is_some_and(|stream| stream.wake_at == *at)
            });
        }
    }

    /// Sets the timer to the next entry.
    fn set_timer(&mut self, now: Instant, context: &mut Context<'_>) {
        let visit = self.timers.peek().map(|Reverse((at, _))| *at);
        let pass = self.pauses.iter().map(|(at, _)| *at).min();
        let next = visit.into_iter().chain(pass).min().unwrap_or(now + IDLE);
        if self.timer.deadline() > next || self.timer.deadline() <= now {
            self.timer.as_mut().reset(next);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}

/// Limits a panic to the connection of the client that caused it.
fn catch_client_panic(act: impl FnOnce() -> StreamProgress) -> StreamProgress {
    // Unwind-safe: state that may be inconsistent belongs to the stream, which is removed.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(StreamProgress::Gone)
}

fn address(view: &Arc<View>) -> usize {
    Arc::as_ptr(view).addr()
}

impl Future for DeliveryWorker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.inbox
            .take(&mut this.woken, &mut this.arrivals, context.waker());
        let now = Instant::now();
        this.tasks
            .extend(this.woken.drain(..).map(|token| match token {
                WakeToken::Stream(key) => WorkItem::Stream(key),
                WakeToken::Group(key) => WorkItem::Group(key),
            }));
        this.expire_timers(now);
        // New streams get at most half of the turn; the other half is for existing streams.
        let mut budget = this.limits.worker_turn / 2;
        while budget > 0
            && let Some(arrival) = this.arrivals.pop_front()
        {
            budget = budget.saturating_sub(this.add_stream(*arrival, now));
        }
        budget += this.limits.worker_turn / 2;
        let mut tasks = this.tasks.len();
        while budget > 0
            && tasks > 0
            && let Some(task) = this.tasks.pop_front()
        {
            budget = budget.saturating_sub(this.perform(task, now, budget));
            tasks -= 1;
        }
        let share = this.limits.worker_turn.div_ceil(BACKLOG_SHARE);
        this.visit_backlog(now, budget.max(share));
        this.end_passes();
        this.set_timer(now, context);
        let is_idle = this.tasks.is_empty() && this.arrivals.is_empty() && this.backlog.is_empty();
        if !is_idle || !this.flushes.is_empty() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::LIMITS;
    use super::*;
    use crate::cache::samples::kind;
    use crate::resource::Layout;
    use crate::selector::Selector;
    use crate::view::Hub;

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_removed_groups_pass_ends_no_pass_of_its_successor() {
        let mut worker = DeliveryWorker::new(Arc::default(), LIMITS);
        let entry = Hub::new(&kind(Layout::Typed)).join(&Selector::default());
        let waker = std::task::Waker::noop().clone();
        let group = DeliveryGroup::new(entry.view, Arc::new(()), entry.waiter, waker);
        let key = worker.groups.insert(group);
        let now = Instant::now();
        worker.perform(WorkItem::Pass(key), now, 1);
        assert_eq!(worker.groups[key].begin(now), PassStart::Now);
        worker.end_passes();
        assert_eq!(worker.groups[key].begin(now), PassStart::Later);
        worker.perform(WorkItem::Pass(key), now, 1);
        worker.end_passes();
        assert_eq!(worker.groups[key].begin(now), PassStart::Now);
    }
}
