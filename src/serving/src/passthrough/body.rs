//! The body of a forwarded response: upstream's frames, trailers included, or a few bytes of the gateway's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::active::ActiveRequest;
use super::body_error::BodyError;
use super::guarded::{GuardedStream, StreamLimits};
use crate::upstream::client::ResponseBody;

/// The body that [`super::Passthrough::forward`] returns. After an error the client's connection or stream must be aborted, which hyper
/// does.
#[derive(Debug)]
pub struct PassthroughBody(BodyKind);

#[derive(Debug)]
enum BodyKind {
    Upstream(GuardedStream<ResponseBody>),
    Own(Bytes),
}

/// A body whose limits are not known yet: they depend on the whole response.
pub(super) enum UnguardedBody {
    Upstream(ResponseBody, ActiveRequest),
    Own(Bytes),
}

impl UnguardedBody {
    pub(super) fn within(self, limits: StreamLimits) -> PassthroughBody {
        match self {
            Self::Upstream(body, active) => {
                let stream = GuardedStream::new(body, active, limits);
                PassthroughBody(BodyKind::Upstream(stream))
            }
            Self::Own(bytes) => bytes.into(),
        }
    }
}

impl From<Bytes> for PassthroughBody {
    fn from(bytes: Bytes) -> Self {
        Self(BodyKind::Own(bytes))
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
            BodyKind::Upstream(stream) => stream.poll_frame(cx),
        };
        if let Poll::Ready(Some(Err(_))) = &polled {
            // Dropping the stream cancels the request upstream and releases its permit.
            *this = Bytes::new().into();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Own(bytes) => bytes.is_empty(),
            BodyKind::Upstream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Upstream(stream) => stream.size_hint(),
        }
    }
}
