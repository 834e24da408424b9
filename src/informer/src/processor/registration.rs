//! The handle of a handler that was added to an informer.

use std::fmt;
use std::sync::{Arc, Weak};

use super::listener::{HandlerCounts, HandlerEnd, Listener};
use super::state::ProcessorState;

/// The handle of a handler that was added (client-go's `ResourceEventHandlerRegistration`). Clones refer to the same handler. Dropping
/// them has no effect: only [`Registration::remove`] removes the handler.
pub struct Registration<T: Send + Sync + 'static> {
    pub(super) listener: Arc<Listener<T>>,
    pub(super) processor: Weak<ProcessorState<T>>,
}

impl<T: Send + Sync + 'static> Registration<T> {
    /// The name from the handler's options.
    #[must_use]
    pub fn name(&self) -> &str {
        self.listener.name()
    }

    /// Whether the handler has been called for every object of the initial list, and all these calls have returned.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Waits until [`Registration::has_synced`] is true. Safe to cancel.
    ///
    /// # Errors
    /// The handler ended before that.
    pub async fn synced(&self) -> Result<(), HandlerEnd> {
        let mut progress = self.listener.progress();
        // The listener owns the sender, so the channel cannot close.
        let reached = progress.wait_for(|now| now.synced || now.ended).await;
        let synced = reached.is_ok_and(|now| now.synced);
        match self.ended() {
            Some(end) if !synced => Err(end),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the handler. Waiting notifications are dropped, and no call starts any more; a call that is running may return after
    /// this does. A handler may remove itself. Removing it again has no effect.
    pub fn remove(&self) {
        if let Some(processor) = self.processor.upgrade() {
            processor.remove_member(&self.listener);
        }
        self.listener
            .end(HandlerEnd::Removed)
            .finish(&self.listener);
    }

    /// Waits until the handler has ended, for any reason, and its running call has returned. A call of the handler must not wait for
    /// this: it would never return. Safe to cancel.
    pub async fn removed(&self) -> HandlerEnd {
        let mut progress = self.listener.progress();
        // The listener owns the sender, so the channel cannot close.
        drop(progress.wait_for(|now| now.idle).await);
        self.ended().unwrap_or(HandlerEnd::Removed)
    }

    /// Why the handler receives nothing more; `None` while it does.
    #[must_use]
    pub fn ended(&self) -> Option<HandlerEnd> {
        self.listener.ended()
    }

    /// The number of waiting notifications, including the rest of the initial state and the batch that is being delivered (up to 128).
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.listener.queue_len()
    }

    /// Counts since the handler was added.
    #[must_use]
    pub fn counts(&self) -> HandlerCounts {
        self.listener.counts()
    }
}

impl<T: Send + Sync + 'static> Clone for Registration<T> {
    fn clone(&self) -> Self {
        Self {
            listener: Arc::clone(&self.listener),
            processor: Weak::clone(&self.processor),
        }
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Registration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.listener).finish()
    }
}
