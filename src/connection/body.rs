//! The response body that hyper polls: every response over HTTP/2; over HTTP/1.1 every response except watches that leave hyper.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::protocol::BufList;
use crate::serve::resources::ForwardLifetime;
use crate::serve::{AnswerBody, MeasuredList};
use crate::transport::stall::{self, PauseHint, StallSignal, WaitingSide};
use crate::watch::WatchBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body; `F` is the body of a forwarded response.
#[derive(Debug)]
pub(crate) enum ClientBody<F> {
    /// A body of known length, in memory.
    Whole(Option<BufList>),
    /// A stream of one chunk or none, sent without a length.
    Stream(Option<BufList>),
    List(Box<MeasuredList>),
    Watch(Box<WatchBody>),
    Forwarded(F, ForwardLifetime),
}

impl<F> From<AnswerBody<F>> for ClientBody<F> {
    fn from(body: AnswerBody<F>) -> Self {
        match body {
            AnswerBody::Whole(buffers) => Self::Whole(buffers),
            AnswerBody::Stream(buffers) => Self::Stream(buffers),
            AnswerBody::List(list) => Self::List(list),
            AnswerBody::Watch(watch) => Self::Watch(Box::new((*watch).into())),
            AnswerBody::Forwarded(body, lifetime) => Self::Forwarded(body, lifetime),
        }
    }
}

impl<F> ClientBody<F> {
    /// Whether the response ends by itself soon; `None` if its client may pause for any length of time, so that no timeout applies.
    const fn ends(&self) -> Option<bool> {
        match self {
            Self::Whole(_) | Self::Stream(_) | Self::List(_) => Some(true),
            Self::Watch(_) | Self::Forwarded(_, ForwardLifetime::Watch) => Some(false),
            Self::Forwarded(_, ForwardLifetime::Short) => Some(true),
            Self::Forwarded(_, ForwardLifetime::Long) => None,
        }
    }
}

impl<F> ClientBody<F>
where
    F: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    fn poll_any(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => {
                Poll::Ready(pieces.take().map(|pieces| Ok(Frame::data(pieces))))
            }
            Self::List(list) => Pin::new(&mut **list).poll_frame(context),
            Self::Watch(watch) => Pin::new(&mut **watch)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Self::Forwarded(body, _) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| {
                    frame
                        .map(|frame| frame.map_data(BufList::from))
                        .map_err(Into::into)
                }))
            }
        }
    }
}

impl<F> Body for ClientBody<F>
where
    F: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = BufList;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        let this = self.get_mut();
        let polled = this.poll_any(context);
        if let Some(ends) = this.ends() {
            let waiting = match &polled {
                Poll::Ready(_) => WaitingSide::Server,
                Poll::Pending => WaitingSide::Client,
            };
            stall::signal(StallSignal { waiting, ends });
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(pieces) => pieces.is_none(),
            // An empty stream must be polled to its end; otherwise hyper would send a content length.
            Self::Stream(_) => false,
            Self::List(list) => list.is_end_stream(),
            Self::Watch(watch) => watch.is_end_stream(),
            Self::Forwarded(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(pieces) => {
                SizeHint::with_exact(pieces.as_ref().map_or(0, |pieces| pieces.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
            Self::List(_) => SizeHint::default(),
            Self::Watch(watch) => watch.size_hint(),
            Self::Forwarded(body, _) => body.size_hint(),
        }
    }
}

impl<F: Body> PauseHint for ClientBody<F> {
    fn pauses(&self) -> bool {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => pieces.is_none(),
            Self::List(list) => list.is_end_stream(),
            Self::Watch(watch) => watch.pauses(),
            Self::Forwarded(body, ForwardLifetime::Short) => body.is_end_stream(),
            // The gateway cannot tell whether upstream will send more.
            Self::Forwarded(_, ForwardLifetime::Watch | ForwardLifetime::Long) => false,
        }
    }
}
