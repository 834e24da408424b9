//! What one holds of a handler that was added.

use std::fmt;
use std::sync::{Arc, Weak};

use super::ProcessorState;
use super::listener::{HandlerCounts, HandlerEnd, Listener};

/// A handler's place at an informer. Clones are the same place; dropping them changes nothing: only
/// [`Registration::remove`] removes the handler.
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

    /// Whether the handler has been called for all of the initial list, and the last of these calls has returned.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Waits for [`Registration::has_synced`]. Safe to cancel.
    ///
    /// # Errors
    /// The handler ended before.
    pub async fn synced(&self) -> Result<(), HandlerEnd> {
        let mut progress = self.listener.progress();
        // The listener holds the sender, so the channel cannot close.
        let reached = progress.wait_for(|now| now.synced || now.ended).await;
        let synced = reached.is_ok_and(|now| now.synced);
        match self.ended() {
            Some(end) if !synced => Err(end),
            Some(_) | None => Ok(()),
        }
    }

    /// Ends delivery: at most the call that runs now still ends, perhaps after this returns. What waits is dropped. A handler
    /// may remove itself. Again is fine.
    pub fn remove(&self) {
        if let Some(processor) = self.processor.upgrade() {
            processor.forget(&self.listener);
        }
        self.listener
            .end(HandlerEnd::Removed)
            .finish(&self.listener);
    }

    /// Waits until the handler has ended, for any reason, and no call of it runs. Within a call of it that is never. Safe to
    /// cancel.
    pub async fn removed(&self) -> HandlerEnd {
        let mut progress = self.listener.progress();
        // The listener holds the sender, so the channel cannot close.
        drop(progress.wait_for(|now| now.quiet).await);
        self.ended().unwrap_or(HandlerEnd::Removed)
    }

    /// Why the handler hears no more; none while it does.
    #[must_use]
    pub fn ended(&self) -> Option<HandlerEnd> {
        self.listener.ended()
    }

    /// Notifications that wait, with the rest of the initial state and the batch in hand (up to 128).
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.listener.queue_len()
    }

    /// What happened so far.
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
