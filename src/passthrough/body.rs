//! The body of a forwarded response: upstream's frames as they come, trailers included, or a few bytes of our own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::active::Active;
use super::orderly::OrderlyEnd;
use crate::metrics::PassthroughError;
use crate::upstream::client::ResponseBody;

/// What [`super::Passthrough::forward`] answers with. An error means that upstream broke off: the connection or stream
/// downstream must break off too, which hyper does.
#[derive(Debug)]
pub struct PassthroughBody(Kind);

impl PassthroughBody {
    pub(super) const fn empty() -> Self {
        Self(Kind::Own(Bytes::new()))
    }

    pub(super) const fn upstream(body: ResponseBody, active: Active) -> Self {
        Self(Kind::Upstream {
            body,
            active,
            end: None,
        })
    }

    /// The same, ended between two events once `end` is due.
    pub(super) fn ending(self, orderly: OrderlyEnd) -> Self {
        match self.0 {
            Kind::Upstream { body, active, .. } => Self(Kind::Upstream {
                body,
                active,
                end: Some(Box::new(orderly)),
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
    },
    Own(Bytes),
}

impl Body for PassthroughBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().0 {
            Kind::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Upstream { body, active, end } => {
                if end.as_mut().is_some_and(|end| end.is_due(cx)) {
                    return Poll::Ready(None);
                }
                let polled = Pin::new(body).poll_frame(cx);
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
