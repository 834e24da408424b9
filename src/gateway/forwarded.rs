//! The body of an answer that no cache gives: upstream's own, or a share of one.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::tables::TableBody;
use crate::passthrough::PassthroughBody;

/// See the module.
#[derive(Debug)]
pub(super) enum ForwardedBody {
    /// Upstream's answer to this request.
    Own(PassthroughBody),
    /// A watch of Tables that others have too. Boxed: it is much larger.
    Shared(Box<TableBody>),
}

impl From<PassthroughBody> for ForwardedBody {
    fn from(body: PassthroughBody) -> Self {
        Self::Own(body)
    }
}

impl From<TableBody> for ForwardedBody {
    fn from(body: TableBody) -> Self {
        Self::Shared(Box::new(body))
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(context),
            Self::Shared(body) => Pin::new(&mut **body)
                .poll_frame(context)
                .map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Shared(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Shared(body) => body.size_hint(),
        }
    }
}
