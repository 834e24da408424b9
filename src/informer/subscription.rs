//! Changes as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_core::Stream;

use super::processor::{HandlerCounts, HandlerEnd, Listener, ProcessorState};
use super::{HandlerOptions, Notification, Overflow};

/// What happens when as many notifications wait in a stream as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOverflow {
    /// What waits is merged per object, as by [`Overflow::Merge`].
    Merge,
    /// The stream ends.
    Remove,
}

/// How a stream is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    handler: HandlerOptions,
}

impl SubscriptionOptions {
    /// As for handlers, up to 1,024 notifications wait, then they are merged.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let handler = HandlerOptions::named(name);
        Self { handler }
    }

    /// So many notifications may wait before `overflow` applies; at least one. The initial state does not count.
    #[must_use]
    pub fn with_queue(self, queue_len_max: usize, overflow: StreamOverflow) -> Self {
        let overflow = match overflow {
            StreamOverflow::Merge => Overflow::Merge,
            StreamOverflow::Remove => Overflow::Remove,
        };
        let handler = self.handler.with_queue(queue_len_max, overflow);
        Self { handler }
    }
}

impl From<SubscriptionOptions> for HandlerOptions {
    fn from(options: SubscriptionOptions) -> Self {
        options.handler
    }
}

/// The changes of a collection, beginning with its present state. Ends when the informer does, or as its options say.
/// Dropping it ends it. A notification that a poll gave is given only once, and none is lost by not polling.
pub struct Subscription<T: Send + Sync + 'static> {
    listener: Arc<Listener<T>>,
    processor: Weak<ProcessorState<T>>,
    /// Taken and not given yet.
    batch: VecDeque<Notification<T>>,
    /// Behind so many of these the initial list ends.
    synced_at: Option<usize>,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    pub(super) const fn new(
        listener: Arc<Listener<T>>,
        processor: Weak<ProcessorState<T>>,
    ) -> Self {
        Self {
            listener,
            processor,
            batch: VecDeque::new(),
            synced_at: None,
        }
    }

    /// Whether all of the initial list is behind the reader: it was given, and something was asked for after it.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Why the stream ended, or will when what it still has was read.
    #[must_use]
    pub fn ended(&self) -> Option<HandlerEnd> {
        self.listener.ended()
    }

    /// Notifications that wait, with the rest of the initial state.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.listener.waiting_len() + self.batch.len()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> HandlerCounts {
        self.listener.counts()
    }

    fn pass_initial_list_end(&mut self) {
        if self.synced_at == Some(0) {
            self.synced_at = None;
            self.listener.set_synced();
        }
    }
}

impl<T: Send + Sync + 'static> Stream for Subscription<T> {
    type Item = Notification<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.pass_initial_list_end();
        let mut open = true;
        if this.batch.is_empty() {
            let taken = this.listener.take_for_stream(context, &mut this.batch);
            this.synced_at = taken.synced_at;
            this.pass_initial_list_end();
            open = taken.open;
        }
        match this.batch.pop_front() {
            Some(notification) => {
                this.synced_at = this.synced_at.map(|place| place - 1);
                Poll::Ready(Some(notification))
            }
            None if open => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Subscription<T> {
    fn drop(&mut self) {
        if let Some(processor) = self.processor.upgrade() {
            processor.forget(&self.listener);
        }
        self.listener
            .end(HandlerEnd::Removed)
            .finish(&self.listener);
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.listener).finish()
    }
}

#[cfg(test)]
mod tests;
