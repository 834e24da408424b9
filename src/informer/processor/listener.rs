//! One recipient of notifications: its queue, and what became of it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use tokio::sync::{Notify, watch};

use super::deferred_work::{FollowUp, drop_each, quietly};
use super::handler_pool::PoolTask;
use super::queue::{InitialState, NotificationQueue, QueueOverflow, QueueRemains};
use crate::informer::{EventHandler, HandlerOptions, Notification, Overflow};
use crate::resource::ObjectKey;

/// Notifications taken from the queue at once. They can no longer be merged, so few; each batch takes the lock twice.
const BATCH_COUNT: usize = 128;

/// Why a handler or stream hears no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandlerEnd {
    /// It was removed.
    #[error("the handler was removed")]
    Removed,
    /// It fell behind by more than it may, and its policy is to be removed then.
    #[error("the handler fell too far behind")]
    Overflowed,
    /// The informer has ended.
    #[error("the informer was shut down")]
    ShutDown,
}

/// A handler panicked. It is called again with the next notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerPanic {
    /// The handler's name.
    pub handler: Arc<str>,
    /// The object that it was told of.
    pub key: ObjectKey,
    /// What the panic said, if it said anything.
    pub message: String,
}

/// Is told of each panic, on the thread that it happened on.
pub type PanicHook = Arc<dyn Fn(&HandlerPanic) + Send + Sync>;

/// What happened at one handler so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// Notifications that it was given; up to a batch of them may still wait behind the one that it has in hand.
    pub delivered: u64,
    /// Notifications that were merged with others, or away.
    pub merged: u64,
    /// Notifications that waited when it ended.
    pub dropped: u64,
    /// Calls that panicked.
    pub panics: u64,
}

/// What all recipients of a processor share.
pub(super) struct ListenerContext {
    pub(super) on_panic: PanicHook,
    pub(super) panics: Mutex<u64>,
    /// A queue with [`Overflow::Block`] is below its bound again.
    pub(super) room: Notify,
}

/// How far a recipient has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecipientProgress {
    /// All of the initial list is behind it.
    pub(super) synced: bool,
    /// It is told nothing new.
    pub(super) ended: bool,
    /// Nor does a call of it run.
    pub(super) quiet: bool,
}

/// Who is told.
enum Recipient<T> {
    Callbacks(Arc<dyn EventHandler<T>>),
    Stream(Option<Waker>),
    Gone,
}

/// What a stream took.
pub(in crate::informer) struct TakenBatch {
    /// Behind so many of the notifications, all of the initial list is behind the stream.
    pub(in crate::informer) synced_at: Option<usize>,
    /// Whether more will come.
    pub(in crate::informer) open: bool,
}

/// What an ended listener leaves behind.
pub(in crate::informer) struct ListenerRemains<T> {
    recipient: Recipient<T>,
    queue: QueueRemains<T>,
    /// No call of it runs.
    quiet: bool,
}

/// Where one handler or stream stands.
pub(in crate::informer) struct Listener<T> {
    name: Arc<str>,
    overflow: Overflow,
    shared: Arc<ListenerContext>,
    /// Also looked at between two calls, without the lock.
    ended: OnceLock<HandlerEnd>,
    progress: watch::Sender<RecipientProgress>,
    state: Mutex<ListenerState<T>>,
}

struct ListenerState<T> {
    queue: NotificationQueue<T>,
    recipient: Recipient<T>,
    /// With the crew: waiting for a worker or served by one.
    busy: bool,
    in_hand: usize,
    /// Nothing more will come; what waits is still delivered.
    closed: bool,
    counts: HandlerCounts,
}

impl<T> ListenerState<T> {
    /// Something waits that did not.
    fn wake(&mut self) -> FollowUp<T> {
        match &mut self.recipient {
            Recipient::Callbacks(_) if !self.busy => {
                self.busy = true;
                FollowUp::Serve
            }
            Recipient::Stream(waker) => waker.take().map_or(FollowUp::Nothing, FollowUp::Wake),
            Recipient::Callbacks(_) | Recipient::Gone => FollowUp::Nothing,
        }
    }

    fn take(&mut self, batch: &mut VecDeque<Notification<T>>) -> Option<usize> {
        let synced_at = self.queue.take(BATCH_COUNT, batch);
        self.in_hand = batch.len();
        self.counts.delivered += self.in_hand as u64;
        synced_at
    }
}

impl<T: Send + Sync + 'static> Listener<T> {
    pub(super) fn of_callbacks(
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        present: InitialState<T>,
        shared: Arc<ListenerContext>,
    ) -> Self {
        Self::new(Recipient::Callbacks(handler), options, present, shared)
    }

    pub(super) fn of_stream(
        options: HandlerOptions,
        present: InitialState<T>,
        shared: Arc<ListenerContext>,
    ) -> Self {
        Self::new(Recipient::Stream(None), options, present, shared)
    }

    fn new(
        recipient: Recipient<T>,
        options: HandlerOptions,
        present: InitialState<T>,
        shared: Arc<ListenerContext>,
    ) -> Self {
        Self {
            name: options.name,
            overflow: options.overflow,
            shared,
            ended: OnceLock::new(),
            progress: watch::Sender::default(),
            state: Mutex::new(ListenerState {
                queue: NotificationQueue::new(present, options.queue_len_max, options.overflow),
                recipient,
                busy: false,
                in_hand: 0,
                closed: false,
                counts: HandlerCounts::default(),
            }),
        }
    }

    fn locked(&self) -> MutexGuard<'_, ListenerState<T>> {
        // No callback runs under the lock, and a queue is whole between its operations.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the changes. Afterwards the recipient may have ended, if that is its policy.
    pub(super) fn push(&self, changes: &[Notification<T>]) -> (FollowUp<T>, QueueRemains<T>) {
        let mut state = self.locked();
        if state.closed || self.ended().is_some() {
            return (FollowUp::Nothing, QueueRemains::default());
        }
        for change in changes {
            if let Err(QueueOverflow) = state.queue.push(change.clone()) {
                drop(state);
                return (self.end(HandlerEnd::Overflowed), QueueRemains::default());
            }
        }
        (state.wake(), state.queue.discarded())
    }

    /// The initial list is complete: the recipient has synced when all that was queued until now is behind it.
    pub(super) fn end_initial_list(&self) -> FollowUp<T> {
        let mut state = self.locked();
        state.queue.end_initial_list();
        let nothing_in_hand = state.in_hand == 0 && !state.busy;
        if nothing_in_hand && state.queue.take(0, &mut VecDeque::new()).is_some() {
            // So a stream of nothing has synced before it is read.
            return FollowUp::Synced;
        }
        state.wake()
    }

    /// Whom to wake for what was there from the beginning.
    pub(super) fn begin(&self) -> FollowUp<T> {
        let mut state = self.locked();
        if state.queue.is_done() {
            return FollowUp::Nothing;
        }
        state.wake()
    }

    /// Nothing more will come. What waits is still delivered.
    pub(super) fn close(&self) -> FollowUp<T> {
        let mut state = self.locked();
        state.closed = true;
        let busy = state.busy;
        match &mut state.recipient {
            Recipient::Stream(waker) => waker.take().map_or(FollowUp::Nothing, FollowUp::Wake),
            Recipient::Callbacks(_) if !busy => {
                drop(state);
                self.end(HandlerEnd::ShutDown)
            }
            Recipient::Callbacks(_) | Recipient::Gone => FollowUp::Nothing,
        }
    }

    /// Ends at once: what waits is dropped. The first reason stays.
    pub(in crate::informer) fn end(&self, reason: HandlerEnd) -> FollowUp<T> {
        let mut state = self.locked();
        if self.ended.set(reason).is_err() {
            return FollowUp::Nothing;
        }
        state.counts.dropped += state.queue.len() as u64;
        FollowUp::Ended(ListenerRemains {
            queue: state.queue.clear(),
            recipient: std::mem::replace(&mut state.recipient, Recipient::Gone),
            quiet: !state.busy,
        })
    }

    /// Tells who waits for the end, and drops what is left. No lock is held.
    pub(super) fn announce_end(&self, ended: ListenerRemains<T>) {
        let ListenerRemains {
            recipient,
            queue,
            quiet,
        } = ended;
        queue.drop_each();
        let waker = match recipient {
            Recipient::Callbacks(handler) => {
                quietly(|| drop(handler));
                None
            }
            Recipient::Stream(waker) => waker,
            Recipient::Gone => None,
        };
        self.progress.send_modify(|progress| {
            progress.ended = true;
            progress.quiet |= quiet;
        });
        self.shared.room.notify_waiters();
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    pub(in crate::informer) fn ended(&self) -> Option<HandlerEnd> {
        self.ended.get().copied()
    }

    pub(super) const fn blocks(&self) -> bool {
        matches!(self.overflow, Overflow::Block)
    }

    /// Whether the informer has to wait for it.
    pub(super) fn holds_back(&self) -> bool {
        self.blocks() && self.ended().is_none() && self.locked().queue.is_full()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Without what a stream has taken.
    pub(in crate::informer) fn waiting_len(&self) -> usize {
        self.locked().queue.len()
    }

    pub(super) fn queue_len(&self) -> usize {
        let state = self.locked();
        state.queue.len() + state.in_hand
    }

    pub(in crate::informer) fn counts(&self) -> HandlerCounts {
        let state = self.locked();
        HandlerCounts {
            merged: state.queue.merged(),
            ..state.counts
        }
    }

    pub(super) fn progress(&self) -> watch::Receiver<RecipientProgress> {
        self.progress.subscribe()
    }

    pub(in crate::informer) fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// All of the initial list is behind the recipient.
    pub(in crate::informer) fn set_synced(&self) {
        self.progress.send_modify(|progress| progress.synced = true);
    }

    /// Takes the next notifications for a stream that has dealt with those before. If there are none, the stream is woken
    /// when that changes.
    pub(in crate::informer) fn take_for_stream(
        &self,
        context: &Context<'_>,
        batch: &mut VecDeque<Notification<T>>,
    ) -> TakenBatch {
        // Wakers are the user's, so this one is cloned, and its predecessor dropped, outside of the lock.
        let mut waker = Some(context.waker().clone());
        let mut state = self.locked();
        let synced_at = state.take(batch);
        let discarded = state.queue.discarded();
        let open = !batch.is_empty() || !(state.closed || self.ended().is_some());
        if let Recipient::Stream(registered) = &mut state.recipient
            && batch.is_empty()
        {
            std::mem::swap(registered, &mut waker);
        }
        drop(state);
        drop(waker);
        discarded.drop_each();
        if !open {
            self.end(HandlerEnd::ShutDown).finish(self);
        }
        TakenBatch { synced_at, open }
    }

    /// Takes the next notifications for callbacks. None if there is nothing left to do.
    fn take_for_callbacks(
        &self,
        batch: &mut VecDeque<Notification<T>>,
    ) -> Option<(Arc<dyn EventHandler<T>>, Option<usize>)> {
        let mut state = self.locked();
        let Recipient::Callbacks(handler) = &state.recipient else {
            return None;
        };
        let handler = Arc::clone(handler);
        let was_full = state.queue.is_full();
        let synced_at = state.take(batch);
        let discarded = state.queue.discarded();
        let room = was_full && !state.queue.is_full();
        drop(state);
        discarded.drop_each();
        if room && self.blocks() {
            self.shared.room.notify_waiters();
        }
        Some((handler, synced_at))
    }

    /// One call.
    fn tell(&self, handler: &dyn EventHandler<T>, notification: Notification<T>) {
        let told = catch_unwind(AssertUnwindSafe(|| {
            handler.on_notification(&notification);
        }));
        if let Err(payload) = told {
            self.report(notification.key().clone(), &*payload);
        }
        // The last reference to an object may be this one, and how it is dropped is the user's, too.
        quietly(|| drop(notification));
    }

    fn report(&self, key: ObjectKey, payload: &(dyn Any + Send)) {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        self.locked().counts.panics += 1;
        self.shared.count_panic();
        let panic = HandlerPanic {
            handler: Arc::clone(&self.name),
            key,
            message: text.unwrap_or_default().to_owned(),
        };
        // A hook that panics has nobody left to tell.
        quietly(|| (self.shared.on_panic)(&panic));
    }

    /// After a batch, or what was left of it. Whether more waits.
    fn settle(&self, undelivered: usize) -> bool {
        let mut state = self.locked();
        state.in_hand = 0;
        state.counts.delivered -= undelivered as u64;
        state.counts.dropped += undelivered as u64;
        let ended = self.ended().is_some();
        if !ended && !state.queue.is_done() {
            return true;
        }
        state.busy = false;
        let closed = state.closed;
        drop(state);
        if ended {
            self.progress.send_modify(|progress| progress.quiet = true);
        } else if closed {
            self.end(HandlerEnd::ShutDown).finish(self);
        }
        false
    }
}

impl<T: Send + Sync + 'static> PoolTask for Listener<T> {
    type Batch = VecDeque<Notification<T>>;

    fn serve(&self, batch: &mut Self::Batch) -> bool {
        let Some((handler, mut synced_at)) = self.take_for_callbacks(batch) else {
            return self.settle(0);
        };
        let mut told = 0;
        loop {
            if self.ended().is_some() {
                break;
            }
            if synced_at == Some(told) {
                self.set_synced();
                synced_at = None;
            }
            let Some(notification) = batch.pop_front() else {
                break;
            };
            self.tell(&*handler, notification);
            told += 1;
        }
        let undelivered = batch.len();
        drop_each(batch.drain(..));
        // The last reference to a handler that was removed may be this one.
        quietly(|| drop(handler));
        self.settle(undelivered)
    }
}

impl ListenerContext {
    pub(super) fn new(on_panic: PanicHook) -> Self {
        Self {
            on_panic,
            panics: Mutex::new(0),
            room: Notify::new(),
        }
    }

    fn count_panic(&self) {
        *self.panics.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    pub(super) fn panics(&self) -> u64 {
        *self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("name", &self.name)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
