//! Drain: the orderly end. Says that it has begun and when it must be over; it does not end anything itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Whether the orderly end has begun, shared by every part of the process.
///
/// Clones are the same drain: whoever holds one may begin it, and everybody sees it. Begun is final.
///
/// ```text
/// serving ──begin()──▶ begun, until deadline()
/// ```
#[derive(Clone, Debug)]
pub struct Drain {
    begun: Arc<watch::Sender<Option<DrainStart>>>,
    timeout: Option<Duration>,
}

/// The facts of a drain that has begun.
#[derive(Clone, Copy, Debug)]
struct DrainStart {
    deadline: Option<Instant>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// A drain without a deadline: parts may take all the time they need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            begun: Arc::new(watch::Sender::new(None)),
            timeout: None,
        }
    }

    /// A drain whose deadline is `timeout` after it begins; what is left then is cut.
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..Self::new()
        }
    }

    /// Begins the end. The first call fixes the deadline; later calls change nothing.
    pub fn begin(&self) {
        self.begun.send_if_modified(|begun| {
            if begun.is_some() {
                return false;
            }
            let deadline = self.timeout.and_then(|t| Instant::now().checked_add(t));
            *begun = Some(DrainStart { deadline });
            true
        });
    }

    /// Whether the end has begun.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.borrow().is_some()
    }

    /// When all must be over; `None` before the end has begun, or if there is no limit.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.begun
            .borrow()
            .as_ref()
            .and_then(|begun| begun.deadline)
    }

    /// Completes once the end has begun, at once if it has already. Safe to cancel; borrows nothing, so a task may own it.
    pub fn begun(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        let sender = Arc::clone(&self.begun);
        let mut receiver = sender.subscribe();
        async move {
            // The future itself keeps the sender, so the channel cannot close under it.
            let _ = receiver.wait_for(Option::is_some).await;
            drop(sender);
        }
    }

    /// Completes when the deadline has passed. Without a deadline it never does. Safe to cancel.
    pub fn expired(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let drain = self.clone();
        async move {
            drain.begun().await;
            match drain.deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
    }
}
