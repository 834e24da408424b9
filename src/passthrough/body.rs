//! The body of a forwarded response: upstream's frames as they come, trailers included, or a few bytes of our own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::active::Active;
use super::ends::Ends;
use super::guarded::{Cut, Guarded};
use super::orderly::Boundary;
use crate::metrics::PassthroughError;
use crate::upstream::client::ResponseBody;

/// What [`super::Passthrough::forward`] answers with. After an error the connection or stream downstream must break off too, which
/// hyper does.
#[derive(Debug)]
pub struct PassthroughBody(Kind);

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
        Self(Kind::Own(Bytes::new()))
    }

    pub(super) const fn upstream(body: ResponseBody, active: Active) -> Self {
        Self(Kind::Upstream(Source {
            body,
            active,
            silence: None,
        }))
    }

    /// The same, given up when upstream says nothing for `limit`.
    pub(super) fn silent_for(self, limit: Duration) -> Self {
        match self.0 {
            Kind::Upstream(source) => Self(Kind::Upstream(Source {
                silence: Some(Silence { limit, timer: None }),
                ..source
            })),
            other @ (Kind::Guarded(_) | Kind::Own(_)) => Self(other),
        }
    }

    /// The same, ended as these say: with a boundary between two events, for which one that has begun has `grace`.
    pub(super) fn ending(self, ends: Ends, boundary: Option<Boundary>, grace: Duration) -> Self {
        match self.0 {
            Kind::Upstream(source) if ends.concern(boundary.is_some()) => {
                let metrics = Arc::clone(source.active.metrics());
                let cut = Cut { grace, metrics };
                Self(Kind::Guarded(Guarded::new(source, boundary, ends, cut)))
            }
            other @ (Kind::Upstream(_) | Kind::Guarded(_) | Kind::Own(_)) => Self(other),
        }
    }
}

impl From<Bytes> for PassthroughBody {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Own(bytes))
    }
}

#[derive(Debug)]
enum Kind {
    Upstream(Source),
    Guarded(Guarded<Source>),
    Own(Bytes),
}

/// What comes from upstream.
#[derive(Debug)]
struct Source {
    body: ResponseBody,
    active: Active,
    /// Of an answer that ends soon.
    silence: Option<Silence>,
}

/// How long upstream may say nothing, and since when it does.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
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

impl Body for Source {
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
            Kind::Own(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Kind::Own(bytes) => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
            }
            Kind::Upstream(source) => Pin::new(source).poll_frame(cx),
            Kind::Guarded(guarded) => guarded.poll_frame(cx),
        };
        if let Poll::Ready(Some(Err(_))) = &polled {
            // The request upstream is given up, and its place given back.
            *this = Self::empty();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Own(bytes) => bytes.is_empty(),
            Kind::Upstream(source) => source.is_end_stream(),
            Kind::Guarded(guarded) => guarded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Upstream(source) => source.size_hint(),
            Kind::Guarded(guarded) => guarded.size_hint(),
        }
    }
}
