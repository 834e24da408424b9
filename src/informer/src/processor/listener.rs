//! One recipient of notifications, a handler or a stream: its queue, its progress, and its end.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::handler_pool::PoolTask;
use super::queue::{InitialState, NotificationQueue, QueueOverflow, QueueRemains};
use super::user_code::{drop_each, ignore_panic};
use crate::resource::ObjectKey;
use crate::{EventHandler, HandlerOptions, Notification, Overflow};

/// Notifications taken from the queue at once. Few, because they can no longer be merged; not fewer, because each batch takes the lock
/// twice.
const BATCH_COUNT: usize = 128;

/// Why a handler or stream receives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandlerEnd {
    /// It was removed, or the stream was dropped.
    #[error("the handler was removed")]
    Removed,
    /// Its queue overflowed, and its policy is to be removed then.
    #[error("the handler fell too far behind")]
    Overflowed,
    /// The informer was shut down.
    #[error("the informer was shut down")]
    ShutDown,
}

/// A panic of a handler. The handler is called again with the next notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerPanic {
    /// The handler's name.
    pub handler: Arc<str>,
    /// The object of the notification.
    pub key: ObjectKey,
    /// The message of the panic; empty if it has none.
    pub message: String,
}

/// Called for each panic of a handler, on the thread on which it happened.
pub type PanicHook = Arc<dyn Fn(&HandlerPanic) + Send + Sync>;

/// Counts of one handler or stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// Notifications taken from the queue for delivery. Up to a batch of them (128) may still wait for the running call.
    pub delivered: u64,
    /// Notifications that were merged into others, or cancelled out.
    pub merged: u64,
    /// Notifications that still waited when it ended.
    pub dropped: u64,
    /// Calls that panicked.
    pub panics: u64,
}

/// State shared by all recipients of a processor.
pub(super) struct ListenerContext {
    pub(super) on_panic: PanicHook,
    /// Calls that panicked, of all handlers.
    pub(super) panics: Mutex<u64>,
    /// Notified when a queue with [`Overflow::Block`] falls below its bound, or a recipient ends.
    pub(super) room: Notify,
}

/// The progress of a recipient, for tasks that wait for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecipientProgress {
    /// It has processed the initial list.
    pub(super) synced: bool,
    /// It has ended: no new call starts.
    pub(super) ended: bool,
    /// It has ended, and no call is running.
    pub(super) idle: bool,
}

enum Recipient<T> {
    Callbacks(Arc<dyn EventHandler<T>>),
    /// The waker is set while the stream waits.
    Stream(Option<Waker>),
    Gone,
}

/// The outcome of taking a batch for a stream.
pub(crate) struct TakenBatch {
    /// If the initial list ends within the batch: the number of its notifications before that end.
    pub(crate) synced_at: Option<usize>,
    /// Whether the stream has more notifications now or later.
    pub(crate) open: bool,
}

/// Values of an ended listener, to be dropped without a lock.
pub(crate) struct ListenerRemains<T> {
    recipient: Recipient<T>,
    queue: QueueRemains<T>,
    idle: bool,
}

/// What is left to do for a listener once no lock is held.
#[must_use]
pub(crate) enum FollowUp<T> {
    Nothing,
    /// Its queue is no longer empty: give the listener to the handler pool.
    Serve,
    Wake(Waker),
    /// It has processed the initial list.
    Synced,
    Ended(ListenerRemains<T>),
}

impl<T: Send + Sync + 'static> FollowUp<T> {
    /// Does the work now. The caller holds no lock, and knows that the result cannot be `Serve`.
    pub(crate) fn finish(self, listener: &Listener<T>) {
        match self {
            Self::Nothing | Self::Serve => {}
            Self::Wake(waker) => ignore_panic(|| waker.wake()),
            Self::Synced => listener.set_synced(),
            Self::Ended(ended) => listener.announce_end(ended),
        }
    }
}

/// One handler or stream of a processor.
pub(crate) struct Listener<T> {
    name: Arc<str>,
    overflow: Overflow,
    context: Arc<ListenerContext>,
    /// Set once. Also read between two calls, without the lock.
    ended: OnceLock<HandlerEnd>,
    progress: watch::Sender<RecipientProgress>,
    state: Mutex<ListenerState<T>>,
}

struct ListenerState<T> {
    queue: NotificationQueue<T>,
    recipient: Recipient<T>,
    /// In the handler pool: waiting for a worker, or served by one.
    busy: bool,
    /// Notifications of the batch that is being delivered.
    in_delivery: usize,
    /// Nothing more is queued; waiting notifications are still delivered.
    closed: bool,
    counts: HandlerCounts,
}

impl<T> ListenerState<T> {
    /// The follow-up after something was queued.
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

    /// Takes a batch. If the initial list ends within it, returns the number of notifications before that end.
    fn take(&mut self, batch: &mut VecDeque<Notification<T>>) -> Option<usize> {
        let synced_at = self.queue.take(BATCH_COUNT, batch);
        self.in_delivery = batch.len();
        self.counts.delivered += self.in_delivery as u64;
        synced_at
    }
}

impl<T: Send + Sync + 'static> Listener<T> {
    pub(super) fn of_callbacks(
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        initial_state: InitialState<T>,
        context: Arc<ListenerContext>,
    ) -> Self {
        Self::new(
            Recipient::Callbacks(handler),
            options,
            initial_state,
            context,
        )
    }

    pub(super) fn of_stream(
        options: HandlerOptions,
        initial_state: InitialState<T>,
        context: Arc<ListenerContext>,
    ) -> Self {
        Self::new(Recipient::Stream(None), options, initial_state, context)
    }

    fn new(
        recipient: Recipient<T>,
        options: HandlerOptions,
        initial_state: InitialState<T>,
        context: Arc<ListenerContext>,
    ) -> Self {
        Self {
            name: options.name,
            overflow: options.overflow,
            context,
            ended: OnceLock::new(),
            progress: watch::Sender::default(),
            state: Mutex::new(ListenerState {
                queue: NotificationQueue::new(
                    initial_state,
                    options.queue_len_max,
                    options.overflow,
                ),
                recipient,
                busy: false,
                in_delivery: 0,
                closed: false,
                counts: HandlerCounts::default(),
            }),
        }
    }

    fn locked(&self) -> MutexGuard<'_, ListenerState<T>> {
        self.state.lock()
    }

    /// Queues the changes. If the queue overflows and its policy says so, the recipient ends.
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

    /// Marks the initial list as complete: the recipient has synced once it has processed everything queued until now.
    pub(super) fn end_initial_list(&self) -> FollowUp<T> {
        let mut state = self.locked();
        state.queue.end_initial_list();
        let nothing_in_delivery = state.in_delivery == 0 && !state.busy;
        if nothing_in_delivery && state.queue.take(0, &mut VecDeque::new()).is_some() {
            // Nothing to process, so the recipient has synced now: a stream of an empty collection is never read.
            return FollowUp::Synced;
        }
        state.wake()
    }

    /// The follow-up for the initial state of a recipient that was just added.
    pub(super) fn start(&self) -> FollowUp<T> {
        let mut state = self.locked();
        if state.queue.is_done() {
            return FollowUp::Nothing;
        }
        state.wake()
    }

    /// Stops queueing. Waiting notifications are still delivered.
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

    /// Ends immediately; waiting notifications are dropped. Only the first reason is kept.
    pub(crate) fn end(&self, reason: HandlerEnd) -> FollowUp<T> {
        let mut state = self.locked();
        if self.ended.set(reason).is_err() {
            return FollowUp::Nothing;
        }
        state.counts.dropped += state.queue.len() as u64;
        FollowUp::Ended(ListenerRemains {
            queue: state.queue.clear(),
            recipient: std::mem::replace(&mut state.recipient, Recipient::Gone),
            idle: !state.busy,
        })
    }

    /// Drops the remains, and notifies tasks that wait for the end. The caller holds no lock.
    pub(super) fn announce_end(&self, ended: ListenerRemains<T>) {
        let ListenerRemains {
            recipient,
            queue,
            idle,
        } = ended;
        queue.drop_each();
        let waker = match recipient {
            Recipient::Callbacks(handler) => {
                ignore_panic(|| drop(handler));
                None
            }
            Recipient::Stream(waker) => waker,
            Recipient::Gone => None,
        };
        self.progress.send_modify(|progress| {
            progress.ended = true;
            progress.idle |= idle;
        });
        self.context.room.notify_waiters();
        if let Some(waker) = waker {
            ignore_panic(|| waker.wake());
        }
    }

    pub(crate) fn ended(&self) -> Option<HandlerEnd> {
        self.ended.get().copied()
    }

    pub(super) const fn blocks(&self) -> bool {
        matches!(self.overflow, Overflow::Block)
    }

    /// Whether the informer must wait for this recipient: its queue is full, with [`Overflow::Block`].
    pub(super) fn is_blocking(&self) -> bool {
        self.blocks() && self.ended().is_none() && self.locked().queue.is_full()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waiting notifications, without the batch that was taken.
    pub(crate) fn waiting_len(&self) -> usize {
        self.locked().queue.len()
    }

    pub(super) fn queue_len(&self) -> usize {
        let state = self.locked();
        state.queue.len() + state.in_delivery
    }

    pub(crate) fn counts(&self) -> HandlerCounts {
        let state = self.locked();
        HandlerCounts {
            merged: state.queue.merged(),
            ..state.counts
        }
    }

    pub(super) fn progress(&self) -> watch::Receiver<RecipientProgress> {
        self.progress.subscribe()
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Records that the recipient has processed the initial list.
    pub(crate) fn set_synced(&self) {
        self.progress.send_modify(|progress| progress.synced = true);
    }

    /// Takes the next batch for a stream that has processed the previous one. If nothing waits, registers the stream's waker.
    pub(crate) fn take_for_stream(
        &self,
        context: &Context<'_>,
        batch: &mut VecDeque<Notification<T>>,
    ) -> TakenBatch {
        // Cloning and dropping a waker is user code, so both happen outside of the lock.
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

    /// Takes the next batch for a handler. `None` if the handler has ended.
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
            self.context.room.notify_waiters();
        }
        Some((handler, synced_at))
    }

    /// Calls the handler with one notification.
    fn call_handler(&self, handler: &dyn EventHandler<T>, notification: Notification<T>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            handler.on_notification(&notification);
        }));
        if let Err(payload) = outcome {
            self.report_panic(notification.key().clone(), &*payload);
        }
        // This may drop the last reference to an object, whose destructor is user code, too.
        ignore_panic(|| drop(notification));
    }

    fn report_panic(&self, key: ObjectKey, payload: &(dyn Any + Send)) {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        self.locked().counts.panics += 1;
        self.context.count_panic();
        let panic = HandlerPanic {
            handler: Arc::clone(&self.name),
            key,
            message: text.unwrap_or_default().to_owned(),
        };
        // A panic of the hook itself is reported only by the process's panic hook.
        ignore_panic(|| (self.context.on_panic)(&panic));
    }

    /// Ends a batch, of which `undelivered` notifications were not delivered. Returns whether more wait.
    fn finish_batch(&self, undelivered: usize) -> bool {
        let mut state = self.locked();
        state.in_delivery = 0;
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
            self.progress.send_modify(|progress| progress.idle = true);
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
            return self.finish_batch(0);
        };
        let mut delivered = 0;
        loop {
            if self.ended().is_some() {
                break;
            }
            if synced_at == Some(delivered) {
                self.set_synced();
                synced_at = None;
            }
            let Some(notification) = batch.pop_front() else {
                break;
            };
            self.call_handler(&*handler, notification);
            delivered += 1;
        }
        let undelivered = batch.len();
        drop_each(batch.drain(..));
        // This may drop the last reference to a handler that was removed, whose destructor is user code.
        ignore_panic(|| drop(handler));
        self.finish_batch(undelivered)
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
        *self.panics.lock() += 1;
    }

    pub(super) fn panics(&self) -> u64 {
        *self.panics.lock()
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
