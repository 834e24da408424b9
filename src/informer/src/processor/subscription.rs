//! A subscription: an informer's notifications as a stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_core::Stream;

use super::listener::{HandlerCounts, HandlerEnd, Listener};
use super::state::ProcessorState;
use crate::{HandlerOptions, Notification, Overflow};

/// What happens when the queue of a stream is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOverflow {
    /// The waiting notifications are merged per object, as with [`Overflow::Merge`].
    Merge,
    /// The stream ends, with [`HandlerEnd::Overflowed`].
    Remove,
}

/// Options of a stream: name, queue, overflow policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    handler: HandlerOptions,
}

impl SubscriptionOptions {
    /// The defaults, as for handlers: up to 1,024 notifications wait, then they are merged.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let handler = HandlerOptions::named(name);
        Self { handler }
    }

    /// Sets how many notifications may wait before `overflow` applies: at least one. The initial state does not count.
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

/// The changes of a collection as a `Stream`, beginning with its present state.
///
/// It ends with the informer, or when its queue overflows and its options say so; dropping it removes it. Each notification is returned
/// once, and cancelling a wait for the next one loses none.
pub struct Subscription<T: Send + Sync + 'static> {
    listener: Arc<Listener<T>>,
    processor: Weak<ProcessorState<T>>,
    /// Notifications taken from the listener's queue, and not returned yet.
    batch: VecDeque<Notification<T>>,
    /// If the initial list ends within `batch`: the number of notifications left before that end.
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

    /// Whether the reader has processed the initial list: the stream was polled again after it returned the last object of the list.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Why the stream ended, or will end once the notifications that it already took are read; `None` while it is open.
    #[must_use]
    pub fn ended(&self) -> Option<HandlerEnd> {
        self.listener.ended()
    }

    /// The number of waiting notifications, including the rest of the initial state.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.listener.waiting_len() + self.batch.len()
    }

    /// Counts since the stream was created.
    #[must_use]
    pub fn counts(&self) -> HandlerCounts {
        self.listener.counts()
    }

    /// Marks the listener as synced once the end of the initial list is reached.
    fn check_initial_list_end(&mut self) {
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
        this.check_initial_list_end();
        let mut open = true;
        if this.batch.is_empty() {
            let taken = this.listener.take_for_stream(context, &mut this.batch);
            this.synced_at = taken.synced_at;
            this.check_initial_list_end();
            open = taken.open;
        }
        match this.batch.pop_front() {
            Some(notification) => {
                this.synced_at = this.synced_at.map(|remaining| remaining - 1);
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
            processor.remove_member(&self.listener);
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
