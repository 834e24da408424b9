//! The body of a forwarded response: upstream's frames as they come, trailers included, or a few bytes of our own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::active::ActiveRequest;
use super::boundary::Boundary;
use super::deadlines::ForwardDeadlines;
use super::guarded::{AbortPolicy, GuardedBody};
use crate::metrics::PassthroughError;
use crate::upstream::client::ResponseBody;

/// What [`super::Passthrough::forward`] answers with. After an error the connection or stream downstream must break off too, which
/// hyper does.
#[derive(Debug)]
pub struct PassthroughBody(BodyKind);

/// Why there is no more of an answer that has begun.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Upstream broke off.
    #[error("the API server broke its answer off")]
    Broken(#[from] hyper::Error),
    /// Nothing came from upstream for so long as its whole answer may take.
    #[error("the API server did not go on with its answer in time")]
    Silent,
    /// It was to end: whoever reads it may no longer do so.
    #[error("the answer was ended by the gateway")]
    Ended,
}

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

    /// The same, given up when upstream says nothing for `limit`.
    pub(super) fn silent_for(self, limit: Duration) -> Self {
        match self.0 {
            BodyKind::Upstream(source) => Self(BodyKind::Upstream(UpstreamBody {
                silence: Some(SilenceTimer { limit, timer: None }),
                ..source
            })),
            other @ (BodyKind::Guarded(_) | BodyKind::Own(_)) => Self(other),
        }
    }

    /// The same, ended as these say: with a boundary between two events, for which one that has begun has `grace`.
    pub(super) fn ending(
        self,
        ends: ForwardDeadlines,
        boundary: Option<Boundary>,
        grace: Duration,
    ) -> Self {
        match self.0 {
            BodyKind::Upstream(source) if ends.concern(boundary.is_some()) => {
                let metrics = Arc::clone(source.active.metrics());
                let cut = AbortPolicy { grace, metrics };
                Self(BodyKind::Guarded(GuardedBody::new(
                    source, boundary, ends, cut,
                )))
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
enum BodyKind {
    Upstream(UpstreamBody),
    Guarded(GuardedBody<UpstreamBody>),
    Own(Bytes),
}

/// What comes from upstream.
#[derive(Debug)]
struct UpstreamBody {
    body: ResponseBody,
    active: ActiveRequest,
    /// Of an answer that ends soon.
    silence: Option<SilenceTimer>,
}

/// How long upstream may say nothing, and since when it does.
#[derive(Debug)]
struct SilenceTimer {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    /// Whether it has lasted too long, if it lasts. Arranges to be asked again.
    fn is_over(&mut self, lasts: bool, context: &mut Context<'_>) -> bool {
        if !lasts {
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
            && silence.is_over(polled.is_pending(), cx)
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
            // The request upstream is given up, and its place given back.
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
