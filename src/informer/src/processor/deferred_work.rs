//! Work that is deferred until no lock is held, because it may run user code: wakers, and the destructors of handlers and objects.
//! Each of them may call the informer.

use std::sync::Arc;
use std::task::Waker;

use super::handler_pool::HandlerPool;
use super::listener::{FollowUp, Listener};
use super::queue::QueueRemains;
use super::user_code::{drop_each, ignore_panic};
use crate::{Cached, Notification};

/// Deferred work for many listeners. It is done when this is dropped, so create this before taking a lock.
pub(crate) struct DeferredWork<T: Send + Sync + 'static> {
    pool: HandlerPool<Listener<T>>,
    ready: Vec<Arc<Listener<T>>>,
    wakers: Vec<Waker>,
    others: Vec<(Arc<Listener<T>>, FollowUp<T>)>,
    discarded: Vec<QueueRemains<T>>,
    delivered: Vec<Notification<T>>,
    objects: Vec<Arc<Cached<T>>>,
}

impl<T: Send + Sync + 'static> DeferredWork<T> {
    pub(super) const fn new(pool: HandlerPool<Listener<T>>) -> Self {
        Self {
            pool,
            ready: Vec::new(),
            wakers: Vec::new(),
            others: Vec::new(),
            discarded: Vec::new(),
            delivered: Vec::new(),
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

    /// Defers dropping notifications that were distributed.
    pub(crate) fn discard_delivered(&mut self, delivered: &mut Vec<Notification<T>>) {
        self.delivered.append(delivered);
    }

    /// Defers dropping an object that was not distributed.
    pub(crate) fn discard_object(&mut self, object: Option<Arc<Cached<T>>>) {
        self.objects.extend(object);
    }
}

impl<T: Send + Sync + 'static> Drop for DeferredWork<T> {
    fn drop(&mut self) {
        if !self.ready.is_empty() {
            self.pool.serve(self.ready.drain(..));
        }
        for waker in self.wakers.drain(..) {
            ignore_panic(|| waker.wake());
        }
        for (listener, follow_up) in self.others.drain(..) {
            follow_up.finish(&listener);
        }
        self.discarded.drain(..).for_each(QueueRemains::drop_each);
        drop_each(self.delivered.drain(..));
        drop_each(self.objects.drain(..));
    }
}
