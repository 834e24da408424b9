//! What hears of changes: callbacks, and how much one of them may fall behind.

use std::sync::Arc;
use std::time::Duration;

use super::{Cached, Notification};

mod event_filter;

pub use event_filter::EventFilter;

/// Notifications that may wait for one handler before its [`Overflow`] applies. client-go begins with a buffer of this
/// size and lets it grow.
const QUEUE_LEN_MAX: usize = 1_024;

/// Callbacks for the changes of a collection. Any `Fn(&Notification<T>)` is one, too.
///
/// One handler is called from one thread at a time, in order; which thread that is may change. It may block: the others
/// are not held up, as long as the runtime has blocking threads left (see [`Processor`](super::Processor)). It must not wait
/// for its own removal or for the informer's end. If it panics, that is counted and told, and the next call follows.
pub trait EventHandler<T>: Send + Sync + 'static {
    /// An object is there that was not, or was before the handler was added: then `in_initial_list`.
    #[expect(unused_variables, reason = "by default nobody cares")]
    fn on_add(&self, object: &Arc<Cached<T>>, in_initial_list: bool) {}

    /// An object changed, or its present state is told once more by a resync: then both are the same.
    #[expect(unused_variables, reason = "by default nobody cares")]
    fn on_update(&self, old: &Arc<Cached<T>>, new: &Arc<Cached<T>>) {}

    /// An object is gone. Unless `final_state_known`, it may have changed after `object` and before it went.
    #[expect(unused_variables, reason = "by default nobody cares")]
    fn on_delete(&self, object: &Arc<Cached<T>>, final_state_known: bool) {}

    /// Any of these. Informers call this one; what it does by default is to call one of the other three.
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

/// What happens when as many notifications wait for a handler as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// What waits is merged, so that of each object at most one change is left: the one from what the handler was told to
    /// what is there now. It may leave out states between, and objects that came and went; one that was deleted and made
    /// again is told as updated. Beside the initial state a queue then holds at most as many as it may, or twice as many as
    /// there are objects that were listed or changed since it was last empty, whichever is more.
    Merge,
    /// The informer takes in no more until the handler has caught up. Nothing is left out, and everybody waits.
    Block,
    /// The handler is removed.
    Remove,
}

/// How a handler is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerOptions {
    pub(super) name: Arc<str>,
    pub(super) queue_len_max: usize,
    pub(super) overflow: Overflow,
    pub(super) resync_period: Option<Duration>,
}

impl HandlerOptions {
    /// Up to 1,024 notifications wait, then they are merged; no resync. The name is for whoever reads of a panic.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            queue_len_max: QUEUE_LEN_MAX,
            overflow: Overflow::Merge,
            resync_period: None,
        }
    }

    /// So many notifications may wait before `overflow` applies; at least one. The initial state does not count.
    #[must_use]
    pub const fn with_queue(mut self, queue_len_max: usize, overflow: Overflow) -> Self {
        self.queue_len_max = if queue_len_max == 0 { 1 } else { queue_len_max };
        self.overflow = overflow;
        self
    }

    /// All objects are told again as updates, about once in this time. Less than a second counts as one, as in client-go;
    /// unlike there, a period is not rounded up to that of an informer that runs already.
    #[must_use]
    pub const fn with_resync(mut self, period: Duration) -> Self {
        self.resync_period = Some(period);
        self
    }
}

#[cfg(test)]
mod tests;
