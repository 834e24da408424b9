//! The body of a forwarded response: upstream's frames as they come, trailers included, or a few bytes of our own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::active::Active;
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
        Self(Kind::Upstream { body, active })
    }
}

impl From<Bytes> for PassthroughBody {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Own(bytes))
    }
}

#[derive(Debug)]
enum Kind {
    Upstream { body: ResponseBody, active: Active },
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
            Kind::Upstream { body, active } => {
                let polled = Pin::new(body).poll_frame(cx);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        let len = frame.data_ref().map_or(0, Bytes::len);
                        active.metrics().bytes_received.add(len as u64);
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
