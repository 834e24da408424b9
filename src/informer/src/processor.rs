//! The processor: distributes each notification to all handlers and streams of an informer, each at its own pace.
//!
//! Each recipient is a `Listener` with its own bounded `queue`. A `handler_pool` calls the handlers on few threads; its `scheduler`
//! decides how many. Work that may run user code is collected in `DeferredWork` and done once no lock is held.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::{EventHandler, HandlerOptions, Notification};
use handler_pool::HandlerPool;
use listener::{Listener, ListenerContext};
use parking_lot::Mutex;
use resync::Resync;
use state::{ProcessorMembers, ProcessorState};

mod deferred_work;
mod handler_pool;
mod listener;
mod queue;
mod registration;
mod resync;
mod scheduler;
mod state;
mod subscription;
mod user_code;

pub(super) use deferred_work::DeferredWork;
pub use listener::{HandlerCounts, HandlerEnd, HandlerPanic, PanicHook};
pub use queue::InitialState;
pub use registration::Registration;
pub use subscription::{StreamOverflow, Subscription, SubscriptionOptions};

/// The handlers and streams of one informer. Clones are handles of the same processor.
///
/// A few workers on the runtime's blocking threads call the handlers, going from one handler to the next. A handler that blocks keeps
/// its worker, and another worker is started. So each stuck handler needs a thread, and a runtime has 512 blocking threads unless it was
/// built otherwise (`max_blocking_threads`). Nothing is delivered while all of them are in use. Dropping the runtime waits for running
/// calls.
///
/// Notifications must be distributed one after the other, and none may be distributed while a handler is added: only then the initial
/// state of the handler and its later notifications fit together without a gap.
pub struct Processor<T: Send + Sync + 'static> {
    inner: Arc<ProcessorState<T>>,
}

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorEnd {
    /// Notifications that were not delivered in time.
    pub dropped: u64,
}

/// How a listener is added: its initial state, and where to defer work.
pub(super) struct JoinOptions<'a, T: Send + Sync + 'static> {
    pub(super) initial_state: InitialState<T>,
    pub(super) deferred: &'a mut DeferredWork<T>,
}

impl<T: Send + Sync + 'static> Processor<T> {
    /// A processor that calls its handlers on the blocking threads of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, on_panic: PanicHook) -> Self {
        Self {
            inner: Arc::new(ProcessorState {
                pool: HandlerPool::new(runtime),
                context: Arc::new(ListenerContext::new(on_panic)),
                members: Mutex::new(ProcessorMembers {
                    all: Vec::new(),
                    blocking: Vec::new(),
                    initial_list_complete: false,
                    closed: false,
                }),
                resync_changed: Notify::new(),
            }),
        }
    }

    /// Adds a handler. It receives `initial_state` as an initial list, and then every notification that is distributed from now on.
    /// After [`Processor::shutdown`] the handler is never called, and its registration has already ended.
    pub fn add(
        &self,
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        initial_state: InitialState<T>,
        now: Instant,
    ) -> Registration<T> {
        let join = JoinOptions {
            initial_state,
            deferred: &mut self.deferred_work(),
        };
        self.add_joining(handler, options, now, join)
    }

    /// Adds a stream, which receives the same notifications as a handler. Streams take no part in resyncs.
    #[must_use]
    pub fn subscribe(
        &self,
        options: SubscriptionOptions,
        initial_state: InitialState<T>,
    ) -> Subscription<T> {
        let join = JoinOptions {
            initial_state,
            deferred: &mut self.deferred_work(),
        };
        self.subscribe_joining(options, join)
    }

    /// Like [`Processor::add`], for a caller that holds a lock.
    pub(super) fn add_joining(
        &self,
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        now: Instant,
        join: JoinOptions<'_, T>,
    ) -> Registration<T> {
        let resync = options
            .resync_period
            .and_then(|period| Resync::new(period, now));
        let context = Arc::clone(&self.inner.context);
        let listener = Listener::of_callbacks(handler, options, join.initial_state, context);
        let listener = Arc::new(listener);
        self.inner.join(&listener, resync, join.deferred);
        Registration {
            listener,
            processor: Arc::downgrade(&self.inner),
        }
    }

    /// Like [`Processor::subscribe`], for a caller that holds a lock.
    pub(super) fn subscribe_joining(
        &self,
        options: SubscriptionOptions,
        join: JoinOptions<'_, T>,
    ) -> Subscription<T> {
        let context = Arc::clone(&self.inner.context);
        let listener = Listener::of_stream(options.into(), join.initial_state, context);
        let listener = Arc::new(listener);
        self.inner.join(&listener, None, join.deferred);
        Subscription::new(listener, Arc::downgrade(&self.inner))
    }

    /// Collects work that must wait until a lock is released. Create it before taking the lock, so that it is dropped after it.
    pub(super) fn deferred_work(&self) -> DeferredWork<T> {
        DeferredWork::new(self.inner.pool.clone())
    }

    /// Distributes a change to all handlers and streams.
    pub fn distribute(&self, change: Notification<T>) {
        self.distribute_all(&[change]);
    }

    /// Distributes changes, in order, to all handlers and streams.
    pub fn distribute_all(&self, changes: &[Notification<T>]) {
        self.distribute_all_deferred(changes, &mut self.deferred_work());
    }

    /// Like [`Processor::distribute_all`], for a caller that holds a lock.
    pub(super) fn distribute_all_deferred(
        &self,
        changes: &[Notification<T>],
        deferred: &mut DeferredWork<T>,
    ) {
        self.inner.distribute(changes, |_| true, deferred);
    }

    /// Distributes an object's state to the handlers whose resync is running; see [`Processor::resync_wanted`]. client-go treats every
    /// update that does not change the resource version in this way.
    pub fn distribute_resync(&self, change: Notification<T>) {
        self.distribute_resync_deferred(&[change], &mut self.deferred_work());
    }

    /// Like [`Processor::distribute_resync`], for a caller that holds a lock.
    pub(super) fn distribute_resync_deferred(
        &self,
        changes: &[Notification<T>],
        deferred: &mut DeferredWork<T>,
    ) {
        self.inner
            .distribute(changes, |member| member.resyncing, deferred);
    }

    /// Records that the initial list was distributed completely.
    pub fn initial_list_done(&self) {
        let mut deferred = self.deferred_work();
        let mut members = self.inner.locked();
        if !members.initial_list_complete {
            members.initial_list_complete = true;
            for member in &members.all {
                deferred.add(member.listener.end_initial_list(), &member.listener);
            }
        }
    }

    /// Whether the resync of any handler is due. Handlers whose resync is due take part in the running resync, with those that already
    /// do, until [`Processor::resync_done`].
    #[must_use]
    pub fn resync_wanted(&self, now: Instant) -> bool {
        let mut wanted = false;
        for member in &mut self.inner.locked().all {
            let due = member
                .resync
                .as_mut()
                .is_some_and(|resync| resync.is_due(now));
            member.resyncing |= due;
            wanted |= due;
        }
        wanted
    }

    /// Records that all objects have been distributed again.
    pub fn resync_done(&self) {
        for member in &mut self.inner.locked().all {
            member.resyncing = false;
        }
    }

    /// When to call [`Processor::resync_wanted`] next; `None` if no handler has a resync period.
    #[must_use]
    pub fn next_resync_at(&self) -> Option<Instant> {
        let members = self.inner.locked();
        members
            .all
            .iter()
            .filter_map(|member| member.resync)
            .map(|resync| resync.next_at())
            .min()
    }

    /// Waits until a handler with a resync period is added, which may be due earlier than the others. Safe to cancel. Supports one
    /// waiting task.
    pub async fn resync_changed(&self) {
        self.inner.resync_changed.notified().await;
    }

    /// Waits while any queue with [`Overflow::Block`](super::Overflow::Block) is full. No other policy makes the caller wait. There is no
    /// time limit, because such a handler must receive everything. Safe to cancel.
    pub async fn ready(&self) {
        loop {
            let room = self.inner.context.room.notified();
            if !self.inner.is_blocked() {
                return;
            }
            room.await;
        }
    }

    /// The number of handlers and streams that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.locked().all.len()
    }

    /// Whether no handler or stream is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many calls of handlers panicked, including handlers that were removed since.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.inner.context.panics()
    }

    /// Stops queueing notifications and adding handlers.
    pub(super) fn close(&self) {
        self.inner.close();
    }

    /// Ends all handlers and streams. Nothing more is queued. Waiting notifications of handlers are delivered within `grace`, and
    /// dropped after that; streams return what they have, and end. Returns when all calls have returned and all threads are free.
    ///
    /// A call that never returns makes this wait forever: use a timeout where handlers are not trusted. It may be cancelled and called
    /// again. A handler must not call it, and the runtime that handlers run on must still exist.
    pub async fn shutdown(&self, grace: Duration) -> ProcessorEnd {
        let listeners = self.inner.close();
        // `idle` is safe to cancel: it only waits.
        let in_time = tokio::time::timeout(grace, self.inner.pool.idle()).await;
        if in_time.is_err() {
            for listener in &listeners {
                listener.end(HandlerEnd::ShutDown).finish(listener);
            }
        }
        self.inner.pool.idle().await;
        let dropped = listeners
            .iter()
            .map(|listener| listener.counts().dropped)
            .sum();
        let members = std::mem::take(&mut self.inner.locked().all);
        drop(members);
        ProcessorEnd { dropped }
    }
}

impl<T: Send + Sync + 'static> Drop for ProcessorState<T> {
    /// No handle is left that could distribute anything, so all handlers and streams end.
    fn drop(&mut self) {
        self.close();
    }
}

impl<T: Send + Sync + 'static> Clone for Processor<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Processor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("pool", &self.inner.pool)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
