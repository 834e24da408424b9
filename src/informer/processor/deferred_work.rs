//! What remains to be done once no lock is held, because it may run code of users: wakers, and the destructors of handlers
//! and objects. Any of it may call the informer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use super::handler_pool::HandlerPool;
use super::listener::{Listener, ListenerRemains};
use super::queue::QueueRemains;
use crate::informer::{Cached, Notification};

/// What remains to be done for one listener.
#[must_use]
pub(in crate::informer) enum FollowUp<T> {
    Nothing,
    /// Something waits that did not: give it to the crew.
    Serve,
    Wake(Waker),
    /// All of the initial list is behind it.
    Synced,
    Ended(ListenerRemains<T>),
}

impl<T: Send + Sync + 'static> FollowUp<T> {
    /// Does it at once; for where no handler can have become busy, and no lock is held.
    pub(in crate::informer) fn finish(self, listener: &Listener<T>) {
        match self {
            Self::Nothing | Self::Serve => {}
            Self::Wake(waker) => quietly(|| waker.wake()),
            Self::Synced => listener.set_synced(),
            Self::Ended(ended) => listener.announce_end(ended),
        }
    }
}

/// What remains to be done for many listeners. It is done when this is dropped, so make it before taking a lock.
pub(in crate::informer) struct DeferredWork<T: Send + Sync + 'static> {
    crew: HandlerPool<Listener<T>>,
    ready: Vec<Arc<Listener<T>>>,
    wakers: Vec<Waker>,
    others: Vec<(Arc<Listener<T>>, FollowUp<T>)>,
    discarded: Vec<QueueRemains<T>>,
    told: Vec<Notification<T>>,
    objects: Vec<Arc<Cached<T>>>,
}

impl<T: Send + Sync + 'static> DeferredWork<T> {
    pub(super) const fn new(crew: HandlerPool<Listener<T>>) -> Self {
        Self {
            crew,
            ready: Vec::new(),
            wakers: Vec::new(),
            others: Vec::new(),
            discarded: Vec::new(),
            told: Vec::new(),
            objects: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, follow_up: FollowUp<T>, listener: &Arc<Listener<T>>) {
        match follow_up {
            FollowUp::Nothing => {}
            FollowUp::Serve => self.ready.push(Arc::clone(listener)),
            FollowUp::Wake(waker) => self.wakers.push(waker),
            FollowUp::Synced | FollowUp::Ended(_) => {
                self.others.push((Arc::clone(listener), follow_up));
            }
        }
    }

    pub(super) fn discard(&mut self, discarded: QueueRemains<T>) {
        if !discarded.is_empty() {
            self.discarded.push(discarded);
        }
    }

    /// Drops notifications that everybody was told.
    pub(in crate::informer) fn discard_told(&mut self, told: &mut Vec<Notification<T>>) {
        self.told.append(told);
    }

    /// Drops an object that nobody was told of.
    pub(in crate::informer) fn discard_object(&mut self, object: Option<Arc<Cached<T>>>) {
        self.objects.extend(object);
    }
}

impl<T: Send + Sync + 'static> Drop for DeferredWork<T> {
    fn drop(&mut self) {
        if !self.ready.is_empty() {
            self.crew.serve(self.ready.drain(..));
        }
        for waker in self.wakers.drain(..) {
            quietly(|| waker.wake());
        }
        for (listener, follow_up) in self.others.drain(..) {
            follow_up.finish(&listener);
        }
        self.discarded.drain(..).for_each(QueueRemains::drop_each);
        drop_each(self.told.drain(..));
        drop_each(self.objects.drain(..));
    }
}

/// Drops what is the user's, one by one: a second panic while the first unwinds would end the process.
pub(super) fn drop_each<V>(values: impl IntoIterator<Item = V>) {
    values.into_iter().for_each(|value| quietly(|| drop(value)));
}

/// Runs code of users whose panic concerns nobody here; the process's panic hook has told of it.
pub(super) fn quietly(run: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(run)));
}
