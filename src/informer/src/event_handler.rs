//! Event handlers: their callbacks, and what happens when a handler falls behind.

use std::sync::Arc;
use std::time::Duration;

use super::{Cached, Notification};

mod event_filter;

pub use event_filter::EventFilter;

/// Notifications that may wait for one handler before its [`Overflow`] applies. client-go starts with a buffer of this size, and
/// lets it grow without limit.
const QUEUE_LEN_MAX: usize = 1_024;

/// Callbacks for the changes of a collection (client-go's `ResourceEventHandler`). Any `Fn(&Notification<T>)` implements it, too.
///
/// A handler is called from one thread at a time, in order; the thread may change between calls. A handler may block: other
/// handlers are not delayed, as long as the runtime has blocking threads left (see [`Processor`](super::Processor)). It must not wait
/// for its own removal or for the end of its informer. A panic is caught, counted and reported, and the next call follows.
pub trait EventHandler<T>: Send + Sync + 'static {
    /// An object was added. `in_initial_list` is true if it is part of the state that the handler starts with.
    #[expect(unused_variables, reason = "the default does nothing")]
    fn on_add(&self, object: &Arc<Cached<T>>, in_initial_list: bool) {}

    /// An object changed, or a resync delivers its present state again: then `old` and `new` are equal.
    #[expect(unused_variables, reason = "the default does nothing")]
    fn on_update(&self, old: &Arc<Cached<T>>, new: &Arc<Cached<T>>) {}

    /// An object was deleted. If `final_state_known` is false, `object` is the last known state, and may be outdated.
    #[expect(unused_variables, reason = "the default does nothing")]
    fn on_delete(&self, object: &Arc<Cached<T>>, final_state_known: bool) {}

    /// Any of these changes. Informers call only this method; its default implementation calls one of the other three.
    fn on_notification(&self, notification: &Notification<T>) {
        match notification {
            Notification::Added {
                object,
                in_initial_list,
            } => self.on_add(object, *in_initial_list),
            Notification::Updated { old, new } => self.on_update(old, new),
            Notification::Deleted {
                object,
                final_state_known,
                ..
            } => self.on_delete(object, *final_state_known),
        }
    }
}

impl<T, F> EventHandler<T> for F
where
    F: Fn(&Notification<T>) + Send + Sync + 'static,
{
    fn on_notification(&self, notification: &Notification<T>) {
        self(notification);
    }
}

/// What happens when the queue of a handler is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The waiting notifications are merged, so that at most one per object is left: from the state that was delivered last to the
    /// newest state. This may leave out states in between, and objects that were created and deleted meanwhile; an object that was
    /// deleted and recreated is delivered as updated.
    ///
    /// Apart from the initial state, a queue then holds at most its configured length, or twice the number of objects that were
    /// listed or changed since it was last empty, whichever is more.
    Merge,
    /// The informer stops distributing changes until the queue has room. Nothing is left out, and all other handlers wait, too.
    Block,
    /// The handler is removed; its registration has ended with [`HandlerEnd::Overflowed`](super::HandlerEnd::Overflowed).
    Remove,
}

/// Options of a handler: name, queue, overflow policy, resync period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerOptions {
    pub(super) name: Arc<str>,
    pub(super) queue_len_max: usize,
    pub(super) overflow: Overflow,
    pub(super) resync_period: Option<Duration>,
}

impl HandlerOptions {
    /// The defaults: up to 1,024 notifications wait, then they are merged; no resync. Reports of panics contain the name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            queue_len_max: QUEUE_LEN_MAX,
            overflow: Overflow::Merge,
            resync_period: None,
        }
    }

    /// Sets how many notifications may wait before `overflow` applies: at least one. The initial state does not count.
    #[must_use]
    pub const fn with_queue(mut self, queue_len_max: usize, overflow: Overflow) -> Self {
        self.queue_len_max = if queue_len_max == 0 { 1 } else { queue_len_max };
        self.overflow = overflow;
        self
    }

    /// Delivers all objects again as updates, about once per `period`. As in client-go, a period below one second counts as one second;
    /// unlike in client-go, it is not rounded up to the period of an informer that already runs.
    #[must_use]
    pub const fn with_resync(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }
}

#[cfg(test)]
mod tests;
