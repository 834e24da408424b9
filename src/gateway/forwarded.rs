//! The body of an answer that no cache gives, with the permit under which its request was forwarded.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;

use super::tables::TableBody;
use crate::downstream::resources::ForwardPermit;
use crate::passthrough::PassthroughBody;

/// Upstream's own answer to this request, or a watch of Tables that others have too. The latter is boxed: it is much larger.
pub(super) type Source = Either<PassthroughBody, Box<TableBody>>;

/// An answer that is not from memory.
pub(super) struct ForwardedBody {
    source: Source,
    _permit: Option<ForwardPermit>,
}

impl ForwardedBody {
    pub(super) fn new(source: Source, permit: Option<ForwardPermit>) -> Self {
        Self {
            source,
            _permit: permit,
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = <Source as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().source).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
