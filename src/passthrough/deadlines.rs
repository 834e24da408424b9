//! When a forwarded stream must end although neither its client nor upstream ends it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::fairness::Permit;

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When a forwarded request must end, and a permit that it holds until then.
#[derive(Default)]
pub struct ForwardDeadlines {
    drain: Option<Wait>,
    limit: Option<Wait>,
    permit: Option<Arc<Permit>>,
}

impl fmt::Debug for ForwardDeadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (drain, limit) = (self.drain.is_some(), self.limit.is_some());
        write!(f, "ForwardDeadlines(drain: {drain}, limit: {limit})")
    }
}

impl ForwardDeadlines {
    /// Ends a watch once `drain` completes, between two events. Other requests, and watches whose events cannot be separated, are not
    /// affected: whatever drains the gateway ends them.
    #[must_use]
    pub fn drained_by(self, drain: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            drain: Some(Box::pin(drain)),
            ..self
        }
    }

    /// Ends the request once `limit` completes: a watch between two events if they can be separated, every other request at once.
    #[must_use]
    pub fn limited_by(self, limit: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            limit: Some(Box::pin(limit)),
            ..self
        }
    }

    /// Stores a permit that the request holds for as long as it lasts, also as a tunnel.
    #[must_use]
    pub fn holding(self, permit: Option<Arc<Permit>>) -> Self {
        Self { permit, ..self }
    }

    pub(super) fn take_permit(&mut self) -> Option<Arc<Permit>> {
        self.permit.take()
    }

    /// Whether a stream can reach a deadline. `is_divided`: its events can be separated.
    pub(super) const fn apply_to(&self, is_divided: bool) -> bool {
        self.limit.is_some() || is_divided && self.drain.is_some()
    }

    /// Completes at the limit, if there is one. May be cancelled and called again until it has completed.
    pub(super) async fn limit(&mut self) {
        std::future::poll_fn(|context| poll(&mut self.limit, context)).await;
    }

    /// Completes at the drain or at the limit, whichever is first.
    pub(super) async fn any(&mut self) {
        std::future::poll_fn(|context| {
            let drained = poll(&mut self.drain, context);
            let limited = poll(&mut self.limit, context);
            match drained.is_ready() || limited.is_ready() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Pending forever without a future.
fn poll(wait: &mut Option<Wait>, context: &mut Context<'_>) -> Poll<()> {
    match wait {
        Some(wait) => wait.as_mut().poll(context),
        None => Poll::Pending,
    }
}
