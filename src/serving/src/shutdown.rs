//! The drain: the orderly shutdown. It announces its start and its deadline to all parts of the process, which end their own work.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// The state of the orderly shutdown, shared by every part of the process.
///
/// Clones share the same drain: any clone can begin it, and all clones observe that. It cannot be undone.
///
/// ```text
/// serving ── begin() ──▶ begun ── the delay is over ──▶ closing ──▶ deadline()
/// ```
#[derive(Clone, Debug)]
pub struct Drain {
    start: Arc<watch::Sender<Option<DrainStart>>>,
    timing: Arc<Mutex<DrainTiming>>,
}

/// How long a drain takes; it can change until the drain begins.
#[derive(Clone, Copy, Debug, Default)]
struct DrainTiming {
    timeout: Option<Duration>,
    delay: Duration,
}

/// The times of a drain that has begun.
#[derive(Clone, Copy, Debug)]
struct DrainStart {
    /// When clients are turned away.
    closing_at: Instant,
    deadline: Option<Instant>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// A drain without a deadline: the parts of the process may take as long as they need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Arc::new(watch::Sender::new(None)),
            timing: Arc::default(),
        }
    }

    /// A drain whose deadline is `timeout` after its start. Work that is unfinished then is cut.
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Self {
        let drain = Self::new();
        drain.timing.lock().timeout = Some(timeout);
        drain
    }

    /// The same drain, which serves clients for the time `delay` after its start, so that load balancers notice first that the process is
    /// no longer ready. The delay is a part of the timeout.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        self.set_delay(delay);
        self
    }

    /// Changes the timeout. Without effect once the drain has begun.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timing.lock().timeout = Some(timeout);
    }

    /// Changes the delay. Without effect once the drain has begun.
    pub fn set_delay(&self, delay: Duration) {
        self.timing.lock().delay = delay;
    }

    /// Begins the drain. The first call sets the deadline; later calls have no effect.
    pub fn begin(&self) {
        self.start.send_if_modified(|start| {
            if start.is_some() {
                return false;
            }
            let DrainTiming { timeout, delay } = *self.timing.lock();
            let now = Instant::now();
            let deadline = timeout.and_then(|timeout| now.checked_add(timeout));
            let closing_at = now + delay;
            *start = Some(DrainStart {
                closing_at: deadline.map_or(closing_at, |deadline| closing_at.min(deadline)),
                deadline,
            });
            true
        });
    }

    /// Whether the drain has begun.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.start.borrow().is_some()
    }

    /// The deadline; `None` before the drain has begun, or if it has no timeout.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.start
            .borrow()
            .as_ref()
            .and_then(|start| start.deadline)
    }

    /// Completes once the drain has begun, immediately if it already has. Cancel-safe, and borrows nothing, so a task can own it.
    pub fn begun(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        let sender = Arc::clone(&self.start);
        let mut receiver = sender.subscribe();
        async move {
            // The future holds the sender, so the channel cannot be closed while it waits.
            let _ = receiver.wait_for(Option::is_some).await;
            drop(sender);
        }
    }

    /// Whether the drain has begun and its delay is over.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        let start = *self.start.borrow();
        start.is_some_and(|start| start.closing_at <= Instant::now())
    }

    /// Completes once the drain has begun and its delay is over: no more clients are served, and those that are there leave. Cancel-safe,
    /// and borrows nothing.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        let (begun, start) = (self.begun(), Arc::clone(&self.start));
        async move {
            begun.await;
            let start = *start.borrow();
            if let Some(start) = start
                && start.closing_at > Instant::now()
            {
                tokio::time::sleep_until(start.closing_at).await;
            }
        }
    }

    /// Completes when the deadline has passed; never without a deadline. Cancel-safe.
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
