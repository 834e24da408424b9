//! Bodies of requests to the API server and of its responses. They stream; nothing is collected here.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::metrics::ShardedCounter;

/// What a request carries.
#[derive(Debug)]
pub enum RequestBody {
    /// Nothing.
    Empty,
    /// Bytes at hand; empty once they are sent.
    Full(Bytes),
    /// A caller's body as it arrives, trailers included.
    Stream {
        /// The body.
        body: Incoming,
        /// Where its bytes are counted.
        sent: Option<ShardedCounter>,
        /// Done when the request is given up.
        given_up: Option<oneshot::Receiver<()>>,
    },
}

/// Why there is no more of a caller's body.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The caller broke off.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// Nobody wants the answer any more.
    #[error("the request was given up")]
    GivenUp,
}

/// Whoever wants the answer to a request. Once this is dropped, nothing more of the request's body is sent.
#[derive(Debug)]
pub struct BodySendGuard {
    _sender: oneshot::Sender<()>,
}

impl RequestBody {
    /// A caller's body whose bytes are counted as they are sent.
    #[must_use]
    pub fn counted(body: Incoming, counter: &ShardedCounter) -> Self {
        match Self::from(body) {
            Self::Stream { body, given_up, .. } => Self::Stream {
                body,
                sent: Some(counter.clone()),
                given_up,
            },
            ended @ (Self::Empty | Self::Full(_)) => ended,
        }
    }

    /// The same, sent while somebody wants the answer; `None` if all of it is at hand. Over HTTP/2 a body goes on by itself otherwise,
    /// for as long as its caller likes.
    #[must_use]
    pub fn while_wanted(self) -> (Self, Option<BodySendGuard>) {
        match self {
            Self::Stream { body, sent, .. } => {
                let (sender, given_up) = oneshot::channel();
                let body = Self::Stream {
                    body,
                    sent,
                    given_up: Some(given_up),
                };
                (body, Some(BodySendGuard { _sender: sender }))
            }
            ended @ (Self::Empty | Self::Full(_)) => (ended, None),
        }
    }

    /// The same body once more, unless it is a stream.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(bytes) => Some(Self::Full(bytes.clone())),
            Self::Stream { .. } => None,
        }
    }
}

impl From<()> for RequestBody {
    fn from((): ()) -> Self {
        Self::Empty
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::Full(bytes)
    }
}

impl From<Incoming> for RequestBody {
    /// A body that has ended already becomes [`RequestBody::Empty`], which may be sent twice.
    fn from(body: Incoming) -> Self {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Stream {
                body,
                sent: None,
                given_up: None,
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream {
                body,
                sent,
                given_up,
            } => {
                if let Some(given_up) = given_up
                    && Pin::new(given_up).poll(cx).is_ready()
                {
                    return Poll::Ready(Some(Err(RequestBodyError::GivenUp)));
                }
                let polled = Pin::new(body).poll_frame(cx).map_err(Into::into);
                if let (Poll::Ready(Some(Ok(frame))), Some(sent)) = (&polled, sent) {
                    sent.add(frame.data_ref().map_or(0, Bytes::len) as u64);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream { body, .. } => body.size_hint(),
        }
    }
}

/// A response's body. It holds its place on the connection until it is dropped or has ended.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    place: Option<OwnedSemaphorePermit>,
}

impl ResponseBody {
    pub(super) const fn new(incoming: Incoming, place: OwnedSemaphorePermit) -> Self {
        Self {
            incoming,
            place: Some(place),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.incoming).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            this.place = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
