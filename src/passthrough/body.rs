//! The body of a forwarded response: upstream's frames as they come, trailers included, or a few bytes of our own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::active::Active;
use super::orderly::OrderlyEnd;
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
}

impl PassthroughBody {
    pub(super) const fn empty() -> Self {
        Self(Kind::Own(Bytes::new()))
    }

    pub(super) const fn upstream(body: ResponseBody, active: Active) -> Self {
        Self(Kind::Upstream {
            body,
            active,
            end: None,
            silence: None,
        })
    }

    /// The same, given up when upstream says nothing for `limit`.
    pub(super) fn silent_for(self, limit: Duration) -> Self {
        match self.0 {
            Kind::Upstream {
                body, active, end, ..
            } => Self(Kind::Upstream {
                body,
                active,
                end,
                silence: Some(Silence { limit, timer: None }),
            }),
            own @ Kind::Own(_) => Self(own),
        }
    }

    /// The same, ended between two events once `end` is due.
    pub(super) fn ending(self, orderly: OrderlyEnd) -> Self {
        match self.0 {
            Kind::Upstream {
                body,
                active,
                silence,
                ..
            } => Self(Kind::Upstream {
                body,
                active,
                end: Some(Box::new(orderly)),
                silence,
            }),
            own @ Kind::Own(_) => Self(own),
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
    Upstream {
        body: ResponseBody,
        active: Active,
        end: Option<Box<OrderlyEnd>>,
        /// Of an answer that ends soon.
        silence: Option<Silence>,
    },
    Own(Bytes),
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

impl Body for PassthroughBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.0 {
            Kind::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Upstream {
                body,
                active,
                end,
                silence,
            } => {
                if end.as_mut().is_some_and(|end| end.is_due(cx)) {
                    return Poll::Ready(None);
                }
                let polled = Pin::new(body).poll_frame(cx).map_err(BodyError::Broken);
                if silence
                    .as_mut()
                    .is_some_and(|silence| silence.is_over(polled.is_pending(), cx))
                {
                    active.metrics().errors.inc(PassthroughError::Timeout);
                    // The request upstream is given up, and its place given back.
                    *this = Self::empty();
                    return Poll::Ready(Some(Err(BodyError::Silent)));
                }
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        let data = frame.data_ref().map_or(&[][..], |data| data);
                        active.metrics().bytes_received.add(data.len() as u64);
                        if let Some(end) = end {
                            end.pass(data);
                        }
                    }
                    Poll::Ready(Some(Err(_))) => {
                        active.metrics().errors.inc(PassthroughError::Broken);
                    }
                    Poll::Ready(None) | Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Own(bytes) => bytes.is_empty(),
            Kind::Upstream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Upstream { body, .. } => body.size_hint(),
        }
    }
}
