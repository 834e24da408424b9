//! The body of a forwarded response: upstream's frames, trailers included, or a few bytes of the gateway's own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::active::ActiveRequest;
use super::body_error::BodyError;
use super::boundary::Boundary;
use super::deadlines::ForwardDeadlines;
use super::guarded::{AbortPolicy, GuardedBody};
use crate::metrics::PassthroughError;
use crate::upstream::client::ResponseBody;

/// The body that [`super::Passthrough::forward`] returns. After an error the client's connection or stream must be aborted, which hyper
/// does.
#[derive(Debug)]
pub struct PassthroughBody(BodyKind);

impl PassthroughBody {
    pub(super) const fn empty() -> Self {
        Self(BodyKind::Own(Bytes::new()))
    }

    pub(super) const fn upstream(body: ResponseBody, active: ActiveRequest) -> Self {
        Self(BodyKind::Upstream(UpstreamBody {
            body,
            active,
            silence: None,
        }))
    }

    /// Ends the response with an error when upstream sends nothing for `limit`.
    pub(super) fn silent_for(self, limit: Duration) -> Self {
        match self.0 {
            BodyKind::Upstream(source) => Self(BodyKind::Upstream(UpstreamBody {
                silence: Some(SilenceTimer { limit, timer: None }),
                ..source
            })),
            other @ (BodyKind::Guarded(_) | BodyKind::Own(_)) => Self(other),
        }
    }

    /// Ends the response at its deadlines. With a boundary it ends between two events, and an event in flight has `grace` to finish.
    pub(super) fn ending(
        self,
        deadlines: ForwardDeadlines,
        boundary: Option<Boundary>,
        grace: Duration,
    ) -> Self {
        match self.0 {
            BodyKind::Upstream(source) if deadlines.apply_to(boundary.is_some()) => {
                let metrics = Arc::clone(source.active.metrics());
                let policy = AbortPolicy { grace, metrics };
                let guarded = GuardedBody::new(source, boundary, deadlines, policy);
                Self(BodyKind::Guarded(guarded))
            }
            other @ (BodyKind::Upstream(_) | BodyKind::Guarded(_) | BodyKind::Own(_)) => {
                Self(other)
            }
        }
    }
}

impl From<Bytes> for PassthroughBody {
    fn from(bytes: Bytes) -> Self {
        Self(BodyKind::Own(bytes))
    }
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every body is upstream's: a box would cost each an allocation"
)]
enum BodyKind {
    Upstream(UpstreamBody),
    Guarded(GuardedBody<UpstreamBody>),
    Own(Bytes),
}

/// The body of upstream's response.
#[derive(Debug)]
struct UpstreamBody {
    body: ResponseBody,
    active: ActiveRequest,
    /// Set for responses that end soon.
    silence: Option<SilenceTimer>,
}

/// Bounds how long upstream may send nothing.
#[derive(Debug)]
struct SilenceTimer {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    /// Whether the silence has exceeded the limit; `is_silent` says whether it continues. Registers the task to be woken.
    fn has_expired(&mut self, is_silent: bool, context: &mut Context<'_>) -> bool {
        if !is_silent {
            self.timer = None;
            return false;
        }
        let limit = self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(context).is_ready()
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self {
            body,
            active,
            silence,
        } = self.get_mut();
        let polled = Pin::new(body).poll_frame(cx).map_err(BodyError::Broken);
        if let Some(silence) = silence
            && silence.has_expired(polled.is_pending(), cx)
        {
            active.metrics().errors.inc(PassthroughError::Timeout);
            return Poll::Ready(Some(Err(BodyError::Silent)));
        }
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                active.metrics().bytes_received.add(len as u64);
            }
            Poll::Ready(Some(Err(_))) => active.metrics().errors.inc(PassthroughError::Broken),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for PassthroughBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = match &mut this.0 {
            BodyKind::Own(bytes) if bytes.is_empty() => return Poll::Ready(None),
            BodyKind::Own(bytes) => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
            }
            BodyKind::Upstream(source) => Pin::new(source).poll_frame(cx),
            BodyKind::Guarded(guarded) => guarded.poll_frame(cx),
        };
        if let Poll::Ready(Some(Err(_))) = &polled {
            // Dropping the body cancels the request upstream and releases its permit.
            *this = Self::empty();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Own(bytes) => bytes.is_empty(),
            BodyKind::Upstream(source) => source.is_end_stream(),
            BodyKind::Guarded(guarded) => guarded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Upstream(source) => source.size_hint(),
            BodyKind::Guarded(guarded) => guarded.size_hint(),
        }
    }
}
