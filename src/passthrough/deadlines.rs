//! When a forwarded stream ends that neither its client nor upstream ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::fairness::Permit;

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When one forwarded request ends, whatever its client and upstream want, and a place that it holds until then.
#[derive(Default)]
pub struct ForwardDeadlines {
    drain: Option<Wait>,
    limit: Option<Wait>,
    permit: Option<Arc<Permit>>,
}

impl fmt::Debug for ForwardDeadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (drain, limit) = (self.drain.is_some(), self.limit.is_some());
        write!(f, "Ends(drain: {drain}, limit: {limit})")
    }
}

impl ForwardDeadlines {
    /// A watch whose events can be told apart ends between two of them once `drain` is done. Everything else is left to whoever
    /// drains.
    #[must_use]
    pub fn drained_by(self, drain: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            drain: Some(Box::pin(drain)),
            ..self
        }
    }

    /// The request ends once `limit` is done: a watch whose events can be told apart between two of them, everything else at once.
    #[must_use]
    pub fn limited_by(self, limit: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            limit: Some(Box::pin(limit)),
            ..self
        }
    }

    /// The request holds this place for as long as it lasts, also as a tunnel.
    #[must_use]
    pub fn holding(self, permit: Option<Arc<Permit>>) -> Self {
        Self { permit, ..self }
    }

    pub(super) fn take_permit(&mut self) -> Option<Arc<Permit>> {
        self.permit.take()
    }

    /// Whether a stream may have to be ended. `is_divided`: its events can be told apart.
    pub(super) const fn concern(&self, is_divided: bool) -> bool {
        self.limit.is_some() || is_divided && self.drain.is_some()
    }

    /// Done when the limit is reached, if there is one. May be cancelled and begun again until it is done.
    pub(super) async fn limit(&mut self) {
        std::future::poll_fn(|context| poll(&mut self.limit, context)).await;
    }

    /// Done when either the drain has begun or the limit is reached.
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

/// What is not there is never done.
fn poll(wait: &mut Option<Wait>, context: &mut Context<'_>) -> Poll<()> {
    match wait {
        Some(wait) => wait.as_mut().poll(context),
        None => Poll::Pending,
    }
}
