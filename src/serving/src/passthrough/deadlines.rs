//! When a forwarded stream must end although neither its client nor upstream ends it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::fairness::Permit;
use crate::metrics::ForwardedRequest;

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When a forwarded request must end, and what it holds until then.
#[derive(Default)]
pub struct ForwardDeadlines {
    drain: Option<Wait>,
    limit: Option<Wait>,
    /// Completes when the request's permit was taken back.
    reclaim: Option<Wait>,
    permit: Option<Arc<Permit>>,
    /// Counts the request as open until it is dropped, if it becomes a tunnel.
    _counted: Option<Arc<OnceLock<ForwardedRequest>>>,
}

/// Which end a request has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardEnd {
    /// The drain or the limit: a watch may finish its event.
    Due,
    /// Its permit was taken back, and belongs to another request already.
    Reclaimed,
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

    /// Stores the count of an upgraded request, which a tunnel holds for as long as it lasts. Its owner sets it once the response is known.
    #[must_use]
    pub fn counted_by(self, counted: Option<Arc<OnceLock<ForwardedRequest>>>) -> Self {
        Self {
            _counted: counted,
            ..self
        }
    }

    pub(super) fn take_permit(&mut self) -> Option<Arc<Permit>> {
        self.permit.take()
    }

    pub(super) fn reclaimed_by(&mut self, reclaim: impl Future<Output = ()> + Send + 'static) {
        self.reclaim = Some(Box::pin(reclaim));
    }

    /// Completes at the limit, if there is one, or when the permit is taken back. May be cancelled and called again until it has completed.
    pub(super) async fn limit(&mut self) -> ForwardEnd {
        std::future::poll_fn(|context| self.poll_limit(context)).await
    }

    /// Like [`limit`](Self::limit), but also completes at the drain.
    pub(super) async fn any(&mut self) -> ForwardEnd {
        std::future::poll_fn(|context| match poll(&mut self.drain, context) {
            Poll::Ready(()) => Poll::Ready(ForwardEnd::Due),
            Poll::Pending => self.poll_limit(context),
        })
        .await
    }

    /// Completes when the permit is taken back.
    pub(super) async fn reclaim(&mut self) {
        std::future::poll_fn(|context| poll(&mut self.reclaim, context)).await;
    }

    fn poll_limit(&mut self, context: &mut Context<'_>) -> Poll<ForwardEnd> {
        if poll(&mut self.reclaim, context).is_ready() {
            return Poll::Ready(ForwardEnd::Reclaimed);
        }
        poll(&mut self.limit, context).map(|()| ForwardEnd::Due)
    }
}

/// Polls the future. Without one it is pending forever.
fn poll(wait: &mut Option<Wait>, context: &mut Context<'_>) -> Poll<()> {
    match wait {
        Some(wait) => wait.as_mut().poll(context),
        None => Poll::Pending,
    }
}
