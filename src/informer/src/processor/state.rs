//! The members of a processor, which its handle, its registrations and its subscriptions share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::deferred_work::DeferredWork;
use super::handler_pool::HandlerPool;
use super::listener::{HandlerEnd, Listener, ListenerContext};
use super::resync::Resync;
use crate::Notification;

/// What the handles of a processor share.
pub(super) struct ProcessorState<T: Send + Sync + 'static> {
    pub(super) pool: HandlerPool<Listener<T>>,
    pub(super) context: Arc<ListenerContext>,
    pub(super) members: Mutex<ProcessorMembers<T>>,
    /// A handler with a resync period was added.
    pub(super) resync_changed: Notify,
}

pub(super) struct ProcessorMembers<T> {
    pub(super) all: Vec<ProcessorMember<T>>,
    /// The members with `Overflow::Block`, which may make the informer wait.
    pub(super) blocking: Vec<Arc<Listener<T>>>,
    pub(super) initial_list_complete: bool,
    pub(super) closed: bool,
}

pub(super) struct ProcessorMember<T> {
    pub(super) listener: Arc<Listener<T>>,
    pub(super) resync: Option<Resync>,
    /// Whether the handler takes part in the running resync.
    pub(super) resyncing: bool,
}

impl<T: Send + Sync + 'static> ProcessorState<T> {
    pub(super) fn locked(&self) -> MutexGuard<'_, ProcessorMembers<T>> {
        self.members.lock()
    }

    pub(super) fn join(
        &self,
        listener: &Arc<Listener<T>>,
        resync: Option<Resync>,
        deferred: &mut DeferredWork<T>,
    ) {
        let mut members = self.locked();
        let follow_up = if members.closed {
            listener.end(HandlerEnd::ShutDown)
        } else if members.initial_list_complete {
            listener.end_initial_list()
        } else {
            listener.start()
        };
        deferred.add(follow_up, listener);
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

    pub(super) fn distribute(
        &self,
        changes: &[Notification<T>],
        is_recipient: impl Fn(&ProcessorMember<T>) -> bool,
        deferred: &mut DeferredWork<T>,
    ) {
        if changes.is_empty() {
            return;
        }
        let mut members = self.locked();
        let before = members.all.len();
        members.all.retain(|member| {
            if is_recipient(member) {
                let (follow_up, discarded) = member.listener.push(changes);
                deferred.add(follow_up, &member.listener);
                deferred.discard(discarded);
            }
            // May be dropped under the lock: a listener that has ended owns no user values.
            member.listener.ended().is_none()
        });
        if members.all.len() < before {
            members
                .blocking
                .retain(|listener| listener.ended().is_none());
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        let blocking = &self.locked().blocking;
        blocking.iter().any(|listener| listener.is_blocking())
    }

    /// Removes a handler or stream: it receives nothing more.
    pub(super) fn remove_member(&self, listener: &Arc<Listener<T>>) {
        let mut members = self.locked();
        members
            .all
            .retain(|member| !Arc::ptr_eq(&member.listener, listener));
        members
            .blocking
            .retain(|blocking| !Arc::ptr_eq(blocking, listener));
    }

    /// Stops distribution. Returns the listeners whose waiting notifications are still to be delivered.
    pub(super) fn close(&self) -> Vec<Arc<Listener<T>>> {
        let mut members = self.locked();
        members.closed = true;
        members.blocking.clear();
        let listeners: Vec<_> = members
            .all
            .iter()
            .map(|member| Arc::clone(&member.listener))
            .collect();
        drop(members);
        for listener in &listeners {
            listener.close().finish(listener);
        }
        self.context.room.notify_waiters();
        listeners
    }
}
