//! One worker: a task that owns streams and brings them what they wait for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use slab::Slab;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::TurnLimits;
use super::group::{DeliveryGroup, SharedChunks};
use super::inbox::{Inbox, WakeToken, waker};
use super::stream::{DeliveryStream, StreamProgress};
use crate::transport::Transport;
use crate::view::{View, WatchWaiter};
use crate::watch::WatchCursor;

/// Timers of streams that are gone: so many may wait for their time besides as many as there are streams.
const TIMERS_SPARE: usize = 64;
/// Streams that are behind have this part of a turn at least: one of them goes on in each, whatever else there is to do.
const BACKLOG_SHARE: usize = 8;
/// An idle worker looks at the clock so often.
const IDLE: Duration = Duration::from_secs(3_600);

/// A watch that begins.
#[derive(Debug)]
pub(super) struct NewStream {
    pub(super) transport: Transport,
    pub(super) head: Bytes,
    pub(super) cursor: WatchCursor,
    pub(super) waiter: WatchWaiter,
    pub(super) done: oneshot::Sender<Transport>,
}

/// What is still to be done in this turn or the next ones.
#[derive(Clone, Copy, Debug)]
enum WorkItem {
    /// Look at a stream.
    Stream(usize),
    /// Begin a pass over a group.
    Group(usize),
    /// Go on with one.
    Pass(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct DeliveryWorker {
    limits: TurnLimits,
    inbox: Arc<Inbox>,
    woken: Vec<WakeToken>,
    arrivals: VecDeque<Box<NewStream>>,
    tasks: VecDeque<WorkItem>,
    /// Streams that have had a turn and have more to send or to look through, each with the number of its entry. They have what
    /// others leave of a turn, and a share of their own.
    backlog: VecDeque<(usize, u64)>,
    backlog_entries: u64,
    streams: Slab<DeliveryStream>,
    groups: Slab<DeliveryGroup>,
    /// Groups by the address of their view, which they keep alive.
    by_view: HashMap<usize, usize, foldhash::fast::RandomState>,
    /// When streams want to be looked at. An entry counts if it is what its stream's timer is set to.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    timer: Pin<Box<Sleep>>,
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
            timer: Box::pin(tokio::time::sleep(IDLE)),
        }
    }

    /// Takes over from one that panicked: whoever it has not looked at yet. Its streams end with it.
    pub(super) fn succeed(other: &mut Self) -> Self {
        let mut worker = Self::new(Arc::clone(&other.inbox), other.limits);
        worker.arrivals.append(&mut other.arrivals);
        worker
    }

    /// Number of open streams.
    pub(super) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Takes a stream in, and begins it; returns how many it counts for.
    fn arrive(&mut self, arrival: NewStream, now: Instant) -> usize {
        let NewStream {
            transport,
            head,
            cursor,
            waiter,
            done,
        } = arrival;
        let view = Arc::clone(cursor.view());
        let tally = Arc::clone(cursor.tally());
        let entry = self.streams.vacant_entry();
        let key = entry.key();
        let waker = waker(&self.inbox, WakeToken::Stream(key));
        let stream = entry.insert(DeliveryStream::new(transport, head, cursor, waker, done));
        // Whoever comes first lends its waiter to all.
        stream.group = *self.by_view.entry(address(&view)).or_insert_with(|| {
            let entry = self.groups.vacant_entry();
            let key = entry.key();
            let waker = super::inbox::waker(&self.inbox, WakeToken::Group(key));
            entry.insert(DeliveryGroup::new(view, tally, waiter, waker));
            key
        });
        stream.place = self.groups[stream.group].push(key);
        let wake_at = stream.wake_at;
        self.timers.push(Reverse((wake_at, key)));
        self.look_at(key, now)
    }

    /// Lets a stream hear its client, do what is due, and send what there is. Returns how many it counts for.
    fn look_at(&mut self, key: usize, now: Instant) -> usize {
        let Some(stream) = self.streams.get_mut(key) else {
            return 1;
        };
        let set_to = stream.wake_at;
        let turn = self.limits.stream_turn;
        let flow = catch_client_panic(|| stream.wake(now, turn));
        let wake_at = stream.wake_at;
        // What is due already is done when the client takes more.
        if wake_at != set_to && wake_at > now {
            self.timers.push(Reverse((wake_at, key)));
        }
        self.settle(key, flow)
    }

    /// Does what a look at a stream leads to. Returns for how many it counts: by its writes, about.
    fn settle(&mut self, key: usize, flow: StreamProgress) -> usize {
        match flow {
            StreamProgress::Idle | StreamProgress::Blocked => {}
            StreamProgress::Behind => self.groups[self.streams[key].group].repeat(),
            StreamProgress::Again => {
                self.put_off(key);
                return self.limits.stream_turn;
            }
            StreamProgress::Over => self.remove(key).give_back(),
            StreamProgress::Gone => drop(self.remove(key)),
        }
        1
    }

    /// Lets a stream go on in a later turn. However often it is looked at in between, it stands in the backlog once.
    fn put_off(&mut self, key: usize) {
        let stream = &mut self.streams[key];
        if stream.backlog_entry.is_none() {
            self.backlog_entries += 1;
            stream.backlog_entry = Some(self.backlog_entries);
            self.backlog.push_back((key, self.backlog_entries));
        }
    }

    /// Goes on with the streams in the backlog, for `left` looks; each has one turn at most.
    fn go_on(&mut self, now: Instant, mut left: usize) {
        for _ in 0..self.backlog.len() {
            if left == 0 {
                break;
            }
            let Some((key, entry)) = self.backlog.pop_front() else {
                break;
            };
            let stream = self.streams.get_mut(key);
            // Keys are used again.
            if let Some(stream) = stream.filter(|stream| stream.backlog_entry == Some(entry)) {
                stream.backlog_entry = None;
                left = left.saturating_sub(self.look_at(key, now));
            }
        }
    }

    fn remove(&mut self, key: usize) -> DeliveryStream {
        let stream = self.streams.remove(key);
        let group = &mut self.groups[stream.group];
        let streams = &mut self.streams;
        group.remove(stream.place, |moved, place| streams[moved].place = place);
        if group.is_empty() {
            let group = self.groups.remove(stream.group);
            self.by_view.remove(&address(&group.view));
        }
        stream
    }

    /// Does one thing; returns how many streams were looked at.
    fn perform(&mut self, task: WorkItem, now: Instant, left: usize) -> usize {
        match task {
            WorkItem::Stream(key) => {
                // One in the backlog hears its client when it goes on.
                let stream = self.streams.get(key);
                if stream.is_some_and(|stream| stream.backlog_entry.is_some()) {
                    return 1;
                }
                self.look_at(key, now)
            }
            WorkItem::Group(key) => {
                if self.groups.get_mut(key).is_some_and(DeliveryGroup::begin) {
                    return self.pass(key, left);
                }
                0
            }
            WorkItem::Pass(key) => self.pass(key, left),
        }
    }

    /// Brings `left` members of a group what is new.
    fn pass(&mut self, key: usize, left: usize) -> usize {
        let Some(group) = self.groups.get_mut(key) else {
            return 0;
        };
        let (view, tally) = (Arc::clone(&group.view), Arc::clone(&group.tally));
        let turn = self.limits.stream_turn;
        // Asked in this order: what came before the end is still shown.
        let (is_closed, head) = (view.is_closed(), view.head());
        let (mut chunks, mut looked_at) = (SharedChunks::new(self.limits), 0);
        while looked_at < left {
            // It may have ended with its last member.
            let Some(group) = self.groups.get_mut(key) else {
                break;
            };
            let Some(member) = group.next() else {
                if group.finish() {
                    self.tasks.push_back(WorkItem::Group(key));
                }
                chunks.record_lines(&*tally);
                return looked_at;
            };
            let stream = &mut self.streams[member];
            let cursor = stream.cursor().cursor();
            let goes_on_itself = !stream.is_level() || stream.backlog_entry.is_some();
            if goes_on_itself || cursor == head && !is_closed {
                looked_at += 1;
                continue;
            }
            let flow = catch_client_panic(|| {
                // Nobody will be woken again for a view that is closed: each goes on to its own end.
                let chunk = if is_closed {
                    None
                } else {
                    chunks.at(&view, cursor)
                };
                let taken = chunk.and_then(|(chunk, takers)| {
                    let flow = stream.take(chunk)?;
                    *takers += 1;
                    Some(flow)
                });
                taken.unwrap_or_else(|| stream.drive(turn))
            });
            looked_at += self.settle(member, flow);
        }
        chunks.record_lines(&*tally);
        self.tasks.push_back(WorkItem::Pass(key));
        looked_at
    }

    /// Notes whose time has come.
    fn expire_timers(&mut self, now: Instant) {
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
        // Entries of streams that are gone wait for their time; they must not be most of all.
        if self.timers.len() > 2 * self.streams.len() + TIMERS_SPARE {
            let streams = &self.streams;
            self.timers.retain(|Reverse((at, key))| {
                let stream = streams.get(*key);
                stream.is_some_and(|stream| stream.wake_at == *at)
            });
        }
    }

    /// Asks to be woken when the next one's time comes.
    fn set_timer(&mut self, now: Instant, context: &mut Context<'_>) {
        let next = self.timers.peek();
        let next = next.map_or(now + IDLE, |Reverse((at, _))| *at);
        if self.timer.deadline() > next || self.timer.deadline() <= now {
            self.timer.as_mut().reset(next);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}

/// A panic on the way of one client ends that client's connection, and no other's.
fn catch_client_panic(act: impl FnOnce() -> StreamProgress) -> StreamProgress {
    // What may be left half done belongs to the stream, and goes with it.
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
            .extend(this.woken.drain(..).map(|name| match name {
                WakeToken::Stream(key) => WorkItem::Stream(key),
                WakeToken::Group(key) => WorkItem::Group(key),
            }));
        this.expire_timers(now);
        // Whoever comes has half of a turn at most: the other half is for those who are there.
        let mut left = this.limits.worker_turn / 2;
        while left > 0
            && let Some(arrival) = this.arrivals.pop_front()
        {
            left = left.saturating_sub(this.arrive(*arrival, now));
        }
        left += this.limits.worker_turn / 2;
        let mut tasks = this.tasks.len();
        while left > 0
            && tasks > 0
            && let Some(task) = this.tasks.pop_front()
        {
            left = left.saturating_sub(this.perform(task, now, left));
            tasks -= 1;
        }
        let share = this.limits.worker_turn.div_ceil(BACKLOG_SHARE);
        this.go_on(now, left.max(share));
        this.set_timer(now, context);
        if !(this.tasks.is_empty() && this.arrivals.is_empty() && this.backlog.is_empty()) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
