//! Tells every handler and stream of each change, each at its own pace.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::{EventHandler, HandlerOptions, Notification, Subscription, SubscriptionOptions};
use handler_pool::HandlerPool;
use listener::ListenerContext;
use resync::Resync;

mod deferred_work;
mod handler_pool;
mod listener;
mod queue;
mod registration;
mod resync;
mod scheduler;

pub(super) use deferred_work::DeferredWork;
pub(super) use listener::Listener;
pub use listener::{HandlerCounts, HandlerEnd, HandlerPanic, PanicHook};
pub use queue::InitialState;
pub use registration::Registration;

/// The handlers and streams of one informer. Clones are the same.
///
/// Handlers are served on the runtime's blocking threads, by few workers that go from one handler to the next. A handler that
/// blocks keeps its worker and another one is started, so one thread per stuck handler is needed, and of those a runtime has
/// 512 unless it was built otherwise (`max_blocking_threads`). Nothing is delivered while all of them are taken. A runtime that
/// is dropped waits for calls that run.
///
/// Notifications come from one place, one after the other. Whoever adds a handler keeps them out meanwhile, so that the
/// state it gives and the changes after it join without a gap.
pub struct Processor<T: Send + Sync + 'static> {
    inner: Arc<ProcessorState<T>>,
}

/// What came of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorEnd {
    /// Notifications that handlers were not told in time.
    pub dropped: u64,
}

pub(super) struct ProcessorState<T: Send + Sync + 'static> {
    crew: HandlerPool<Listener<T>>,
    shared: Arc<ListenerContext>,
    members: Mutex<ProcessorMembers<T>>,
    resync_changed: Notify,
}

struct ProcessorMembers<T> {
    all: Vec<ProcessorMember<T>>,
    /// Those of them that may hold everybody back.
    blocking: Vec<Arc<Listener<T>>>,
    initial_list_complete: bool,
    closed: bool,
}

/// What a listener joins with.
pub(super) struct JoinOptions<'a, T: Send + Sync + 'static> {
    pub(super) present: InitialState<T>,
    pub(super) after: &'a mut DeferredWork<T>,
}

struct ProcessorMember<T> {
    listener: Arc<Listener<T>>,
    resync: Option<Resync>,
    /// Whether it takes part in the resync that runs.
    resyncing: bool,
}

impl<T: Send + Sync + 'static> Processor<T> {
    /// Handlers run on the blocking threads of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, on_panic: PanicHook) -> Self {
        Self {
            inner: Arc::new(ProcessorState {
                crew: HandlerPool::new(runtime),
                shared: Arc::new(ListenerContext::new(on_panic)),
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

    /// Adds a handler: it is told of `present` as of an initial list, then of every change distributed from now on. After
    /// [`Processor::shutdown`] the registration has ended from the beginning.
    pub fn add(
        &self,
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        present: InitialState<T>,
        now: Instant,
    ) -> Registration<T> {
        let joining = JoinOptions {
            present,
            after: &mut self.after_unlock(),
        };
        self.add_joining(handler, options, now, joining)
    }

    /// Adds a stream, which is told the same. Streams take no part in resyncs.
    #[must_use]
    pub fn subscribe(
        &self,
        options: SubscriptionOptions,
        present: InitialState<T>,
    ) -> Subscription<T> {
        let joining = JoinOptions {
            present,
            after: &mut self.after_unlock(),
        };
        self.subscribe_joining(options, joining)
    }

    /// As [`Processor::add`], for a caller that holds a lock.
    pub(super) fn add_joining(
        &self,
        handler: Arc<dyn EventHandler<T>>,
        options: HandlerOptions,
        now: Instant,
        joining: JoinOptions<'_, T>,
    ) -> Registration<T> {
        let resync = options
            .resync_period
            .and_then(|period| Resync::new(period, now));
        let shared = Arc::clone(&self.inner.shared);
        let listener = Listener::of_callbacks(handler, options, joining.present, shared);
        let listener = Arc::new(listener);
        self.inner.join(&listener, resync, joining.after);
        Registration {
            listener,
            processor: Arc::downgrade(&self.inner),
        }
    }

    /// As [`Processor::subscribe`], for a caller that holds a lock.
    pub(super) fn subscribe_joining(
        &self,
        options: SubscriptionOptions,
        joining: JoinOptions<'_, T>,
    ) -> Subscription<T> {
        let shared = Arc::clone(&self.inner.shared);
        let listener = Listener::of_stream(options.into(), joining.present, shared);
        let listener = Arc::new(listener);
        self.inner.join(&listener, None, joining.after);
        Subscription::new(listener, Arc::downgrade(&self.inner))
    }

    /// Where work is gathered that must wait until a lock is released; make it before taking the lock.
    pub(super) fn after_unlock(&self) -> DeferredWork<T> {
        DeferredWork::new(self.inner.crew.clone())
    }

    /// Tells everybody of a change.
    pub fn distribute(&self, change: Notification<T>) {
        self.distribute_all(&[change]);
    }

    /// Tells everybody of changes, in order.
    pub fn distribute_all(&self, changes: &[Notification<T>]) {
        self.tell_all(changes, &mut self.after_unlock());
    }

    /// As [`Processor::distribute_all`], for a caller that holds a lock.
    pub(super) fn tell_all(&self, changes: &[Notification<T>], after: &mut DeferredWork<T>) {
        self.inner.tell(changes, |_| true, after);
    }

    /// Tells those of an object's state whose resync runs; see [`Processor::resync_wanted`]. client-go treats every update
    /// that does not change the resource version like this.
    pub fn distribute_resync(&self, change: Notification<T>) {
        self.tell_resync(&[change], &mut self.after_unlock());
    }

    /// As [`Processor::distribute_resync`], for a caller that holds a lock.
    pub(super) fn tell_resync(&self, changes: &[Notification<T>], after: &mut DeferredWork<T>) {
        self.inner.tell(changes, |member| member.resyncing, after);
    }

    /// The initial list is complete: all of it was distributed.
    pub fn initial_list_done(&self) {
        let mut after = self.after_unlock();
        let mut members = self.inner.locked();
        if !members.initial_list_complete {
            members.initial_list_complete = true;
            for member in &members.all {
                after.add(member.listener.end_initial_list(), &member.listener);
            }
        }
    }

    /// Whether the resync of any handler is due. If so, those whose is take part in the one that runs from now on until
    /// [`Processor::resync_done`], with those that take part already.
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

    /// All objects have been told again.
    pub fn resync_done(&self) {
        for member in &mut self.inner.locked().all {
            member.resyncing = false;
        }
    }

    /// When to ask for [`Processor::resync_wanted`] next.
    #[must_use]
    pub fn next_resync_at(&self) -> Option<Instant> {
        let members = self.inner.locked();
        let resyncs = members.all.iter().filter_map(|member| member.resync);
        resyncs.map(|resync| resync.next_at()).min()
    }

    /// Waits until a handler was added that may want a resync earlier than the others. Safe to cancel; for one who waits.
    pub async fn resync_changed(&self) {
        self.inner.resync_changed.notified().await;
    }

    /// Waits while any queue with [`Overflow::Block`](super::Overflow::Block) is full. Nothing else need be waited for. There
    /// is no limit: that is what the policy asks for. Safe to cancel.
    pub async fn ready(&self) {
        loop {
            let room = self.inner.shared.room.notified();
            if !self.inner.is_held_back() {
                return;
            }
            room.await;
        }
    }

    /// Handlers and streams that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.locked().all.len()
    }

    /// Whether nobody listens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls that panicked, of all handlers that ever were.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.inner.shared.panics()
    }

    /// Nothing more is queued, and nobody can be added.
    pub(super) fn close(&self) {
        self.inner.close();
    }

    /// Ends everything: nothing more is queued; what handlers have waiting is delivered within `grace`, then dropped; streams
    /// give what they have and end. Returns when no call runs any more and all threads are given back. A call that never
    /// returns makes this wait for ever, so put a limit on it where handlers are not trusted; cancelled and called again it
    /// goes on. Not to be called by a handler, nor without the runtime that handlers run on.
    pub async fn shutdown(&self, grace: Duration) -> ProcessorEnd {
        let left = self.inner.close();
        // Safe to cut short: waiting holds nothing.
        let in_time = tokio::time::timeout(grace, self.inner.crew.idle()).await;
        if in_time.is_err() {
            for listener in &left {
                listener.end(HandlerEnd::ShutDown).finish(listener);
            }
        }
        self.inner.crew.idle().await;
        let dropped = left.iter().map(|listener| listener.counts().dropped);
        let dropped = dropped.sum();
        let members = std::mem::take(&mut self.inner.locked().all);
        drop(members);
        ProcessorEnd { dropped }
    }
}

impl<T: Send + Sync + 'static> ProcessorState<T> {
    fn locked(&self) -> MutexGuard<'_, ProcessorMembers<T>> {
        // Lists that are whole between two operations; no callback runs under the lock.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(
        &self,
        listener: &Arc<Listener<T>>,
        resync: Option<Resync>,
        after: &mut DeferredWork<T>,
    ) {
        let mut members = self.locked();
        let follow_up = if members.closed {
            listener.end(HandlerEnd::ShutDown)
        } else if members.initial_list_complete {
            listener.end_initial_list()
        } else {
            listener.begin()
        };
        after.add(follow_up, listener);
        if !members.closed {
            if listener.blocks() {
                members.blocking.push(Arc::clone(listener));
            }
            members.all.push(ProcessorMember {
                listener: Arc::clone(listener),
                resync,
                resyncing: false,
            });
        }
        drop(members);
        if resync.is_some() {
            self.resync_changed.notify_one();
        }
    }

    fn tell(
        &self,
        changes: &[Notification<T>],
        concerns: impl Fn(&ProcessorMember<T>) -> bool,
        after: &mut DeferredWork<T>,
    ) {
        if changes.is_empty() {
            return;
        }
        let mut members = self.locked();
        let before = members.all.len();
        members.all.retain(|member| {
            if concerns(member) {
                let (follow_up, discarded) = member.listener.push(changes);
                after.add(follow_up, &member.listener);
                after.discard(discarded);
            }
            // One that has ended holds nothing of the user's.
            member.listener.ended().is_none()
        });
        if members.all.len() < before {
            members
                .blocking
                .retain(|listener| listener.ended().is_none());
        }
    }

    fn is_held_back(&self) -> bool {
        let blocking = &self.locked().blocking;
        blocking.iter().any(|listener| listener.holds_back())
    }

    /// Tells no more to this one.
    pub(super) fn forget(&self, listener: &Arc<Listener<T>>) {
        let mut members = self.locked();
        members
            .all
            .retain(|member| !Arc::ptr_eq(&member.listener, listener));
        members
            .blocking
            .retain(|blocking| !Arc::ptr_eq(blocking, listener));
    }

    /// Nothing more comes. Who has to be served to the end.
    fn close(&self) -> Vec<Arc<Listener<T>>> {
        let mut members = self.locked();
        members.closed = true;
        members.blocking.clear();
        let left: Vec<_> = members
            .all
            .iter()
            .map(|member| Arc::clone(&member.listener))
            .collect();
        drop(members);
        for listener in &left {
            listener.close().finish(listener);
        }
        self.shared.room.notify_waiters();
        left
    }
}

impl<T: Send + Sync + 'static> Drop for ProcessorState<T> {
    /// Nobody is left who could tell anything.
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
            .field("crew", &self.inner.crew)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
