//! Bodies of requests to the API server and of its responses. Both are streamed, never collected here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Is told how a caller's body is sent.
pub trait BodyObserver: Send + Sync + std::fmt::Debug {
    /// `count` more bytes were handed to the connection.
    fn sent(&self, count: u64);
    /// The connection would take more bytes; the caller has sent none.
    fn awaited(&self);
}

/// The body of a request to the API server.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// A body in memory; empty once it has been sent.
    Full(Bytes),
    /// A caller's body as it arrives, trailers included.
    Stream {
        /// The body.
        body: Incoming,
        /// Is told how the body is sent. Dropped with it.
        observer: Option<Arc<dyn BodyObserver>>,
        /// Resolves when the response is no longer wanted.
        given_up: Option<oneshot::Receiver<()>>,
    },
}

/// Why a caller's body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The caller's connection broke, or the caller cancelled the request.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The response is no longer wanted.
    #[error("the request was given up")]
    GivenUp,
}

/// Held while the response to a request is wanted. Once it is dropped, no more of the request's body is sent.
#[derive(Debug)]
pub struct BodySendGuard {
    _sender: oneshot::Sender<()>,
}

impl RequestBody {
    /// A caller's body whose observer is told how it is sent.
    #[must_use]
    pub fn observed(body: Incoming, observer: Arc<dyn BodyObserver>) -> Self {
        match Self::from(body) {
            Self::Stream { body, given_up, .. } => Self::Stream {
                body,
                observer: Some(observer),
                given_up,
            },
            in_memory @ (Self::Empty | Self::Full(_)) => in_memory,
        }
    }

    /// Returns the body and a guard: once the guard is dropped, no more of the body is sent. There is no guard if the whole
    /// body is in memory. Without a guard, a body over HTTP/2 is sent for as long as its caller provides data, even if
    /// nobody waits for the response.
    #[must_use]
    pub fn while_wanted(self) -> (Self, Option<BodySendGuard>) {
        match self {
            Self::Stream { body, observer, .. } => {
                let (sender, given_up) = oneshot::channel();
                let body = Self::Stream {
                    body,
                    observer,
                    given_up: Some(given_up),
                };
                (body, Some(BodySendGuard { _sender: sender }))
            }
            in_memory @ (Self::Empty | Self::Full(_)) => (in_memory, None),
        }
    }

    /// Copies the body; `None` if it is a stream.
    pub(super) fn try_clone(&self) -> Option<Self> {
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
                observer: None,
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
                observer,
                given_up,
            } => {
                if let Some(given_up) = given_up
                    && Pin::new(given_up).poll(cx).is_ready()
                {
                    return Poll::Ready(Some(Err(RequestBodyError::GivenUp)));
                }
                let polled = Pin::new(body).poll_frame(cx).map_err(Into::into);
                if let Some(observer) = observer {
                    match &polled {
                        Poll::Ready(Some(Ok(frame))) => {
                            observer.sent(frame.data_ref().map_or(0, Bytes::len) as u64);
                        }
                        Poll::Ready(_) => {}
                        Poll::Pending => observer.awaited(),
                    }
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

/// Why the body of a response ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum ResponseBodyError {
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The API server was found to be gone, and another one is ready.
    #[error("the API server was given up")]
    Abandoned,
}

/// The body of a response. It holds its permit of the connection pool until it has ended or is dropped.
pub struct ResponseBody {
    incoming: Incoming,
    permit: Option<OwnedSemaphorePermit>,
    abandoned: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl ResponseBody {
    pub(super) const fn new(incoming: Incoming, permit: OwnedSemaphorePermit) -> Self {
        Self {
            incoming,
            permit: Some(permit),
            abandoned: None,
        }
    }

    /// The body ends with an error once the future has completed.
    pub(super) fn ending_with(
        self,
        abandoned: impl Future<Output = ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            abandoned: Some(Box::pin(abandoned)),
            ..self
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody")
            .field("incoming", &self.incoming)
            .finish_non_exhaustive()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.incoming)
            .poll_frame(cx)
            .map_err(Into::into);
        match polled {
            Poll::Ready(None | Some(Err(_))) => this.permit = None,
            Poll::Ready(Some(Ok(_))) => {}
            // What has arrived is read first.
            Poll::Pending => {
                if let Some(abandoned) = &mut this.abandoned
                    && abandoned.as_mut().poll(cx).is_ready()
                {
                    this.abandoned = None;
                    return Poll::Ready(Some(Err(ResponseBodyError::Abandoned)));
                }
            }
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
