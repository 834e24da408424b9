//! The response body that hyper polls: every response over HTTP/2; over HTTP/1.1 every response except watches that leave hyper.
//!
//! Over HTTP/2 it sends the last byte before a pause, or before the end, as a frame of its own. hyper passes a frame to h2 as soon as the
//! client's window has room for its first byte, and then polls the body for the next one. What h2 has accepted waits for the window inside
//! h2, where the gateway cannot see it, and outlives a response that has ended. A following frame waits in hyper instead, where
//! [`StallExecutor`](crate::transport::stall::StallExecutor) notices it; hyper passes it on when the window has room for all earlier bytes.
//! This does not detect a client that shrinks a window again.
//!
//! The body of a watch over HTTP/2 gives its watch to a delivery worker when its client has caught up, and from then on only keeps h2's stream
//! open and reserves the client's window for the worker (decision 65).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

use super::adoption::StreamAdopter;
use crate::protocol::BufList;
use crate::serve::AnswerBody;
use crate::serve::resources::{BoxError, ForwardLifetime};
use crate::transport::abort_limit::InFlight;
use crate::transport::stall::{self, StallSignal, StreamEnd, WaitingSide};
use crate::transport::{AdoptedBody, BodyStep};

/// Bytes per stream that may remain in h2 unnoticed: a shorter body frame is not worth a second frame.
const UNSEEN_LEN_MAX: usize = 4 << 10;

/// What reserves window; h2 writes it, and the client does not get it.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// A response on its way to the client.
#[derive(Debug)]
pub(crate) struct ClientBody {
    answer: AnswerBody,
    split: SplitMode,
    /// The byte that was split from the last frame.
    last: Option<u8>,
    /// Makes the stream of a watch a delivery worker's.
    adopter: Option<StreamAdopter>,
    /// Once it is a worker's.
    adopted: Option<AdoptedBody>,
    /// Dropped with the body when that is completely written.
    _in_flight: Option<InFlight>,
}

/// Whether the last byte before a pause is a frame of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitMode {
    /// For HTTP/2 streams.
    Divided,
    /// For all others: frames are sent unchanged.
    AsItComes,
}

impl From<AnswerBody> for ClientBody {
    fn from(answer: AnswerBody) -> Self {
        Self {
            answer,
            split: SplitMode::AsItComes,
            last: None,
            adopter: None,
            adopted: None,
            _in_flight: None,
        }
    }
}

impl ClientBody {
    /// The body of a response over this version of HTTP. The guard counts the response as in flight.
    pub(super) fn new(answer: AnswerBody, version: Version, in_flight: InFlight) -> Self {
        Self {
            split: match version {
                Version::HTTP_2 => SplitMode::Divided,
                _ => SplitMode::AsItComes,
            },
            _in_flight: Some(in_flight),
            ..answer.into()
        }
    }

    /// Lets a delivery worker write the rest of a watch.
    pub(super) fn with_adopter(self, adopter: Option<StreamAdopter>) -> Self {
        Self { adopter, ..self }
    }

    /// Gives a watch whose client has caught up to a delivery worker, if that can be now. The empty frame tells which stream it is.
    fn adopt(&mut self, context: &Context<'_>) -> Option<Frame<BufList>> {
        let AnswerBody::Watch(watch) = &self.answer else {
            return None;
        };
        if !watch.pauses() {
            return None;
        }
        let end = StreamEnd::default();
        let (stream, body) = self.adopter.as_ref()?.begin(context, &end)?;
        stall::end_by(end);
        let adopter = self.adopter.take()?;
        if let AnswerBody::Watch(watch) =
            std::mem::replace(&mut self.answer, AnswerBody::Whole(None))
        {
            adopter.give(stream, watch);
        }
        self.adopted = Some(body);
        Some(Frame::data(BufList::default()))
    }

    /// Whether the response ends by itself soon; `None` if its client may pause for any length of time, so that no timeout applies.
    const fn ends(&self) -> Option<bool> {
        match &self.answer {
            AnswerBody::Whole(_) | AnswerBody::Stream(_) | AnswerBody::List(_) => Some(true),
            AnswerBody::Watch(_) | AnswerBody::Forwarded(_, ForwardLifetime::Watch) => Some(false),
            AnswerBody::Forwarded(_, ForwardLifetime::Short) => Some(true),
            AnswerBody::Forwarded(_, ForwardLifetime::Long) => None,
        }
    }

    /// The next frame. None is empty over HTTP/2, where an empty frame is a mark.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        loop {
            let polled = self.answer.poll_frame(context);
            let is_empty = self.split == SplitMode::Divided
                && matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(BufList::is_empty));
            if !is_empty {
                return polled;
            }
        }
    }

    /// Whether the body has nothing more to send for now, or at all, after its last frame.
    fn pauses(&self) -> bool {
        match &self.answer {
            AnswerBody::Whole(pieces) | AnswerBody::Stream(pieces) => pieces.is_none(),
            AnswerBody::List(list) => list.is_end_stream(),
            AnswerBody::Watch(watch) => watch.pauses(),
            AnswerBody::Forwarded(body, ForwardLifetime::Short) => body.is_end_stream(),
            // The gateway cannot tell whether upstream will send more.
            AnswerBody::Forwarded(_, ForwardLifetime::Watch | ForwardLifetime::Long) => false,
        }
    }
}

impl Body for ClientBody {
    type Data = BufList;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        let this = self.get_mut();
        if let Some(adopted) = &this.adopted {
            return poll_adopted(adopted, context);
        }
        if let Some(last) = this.last.take() {
            stall::signal(StallSignal {
                waiting: WaitingSide::Server,
                ends: false,
            });
            let last = Bytes::copy_from_slice(&[last]);
            return Poll::Ready(Some(Ok(Frame::data(last.into()))));
        }
        let mut polled = this.poll_answer(context);
        if polled.is_pending()
            && let Some(mark) = this.adopt(context)
        {
            return Poll::Ready(Some(Ok(mark)));
        }
        if let Some(ends) = this.ends() {
            let waiting = match &polled {
                Poll::Ready(_) => WaitingSide::Server,
                Poll::Pending => WaitingSide::Client,
            };
            stall::signal(StallSignal { waiting, ends });
        }
        if this.split == SplitMode::Divided
            && let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(pieces) = frame.data_mut()
            && pieces.len() > UNSEEN_LEN_MAX
            && this.pauses()
        {
            this.last = pieces.split_last();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none()
            && self.adopted.is_none()
            && match &self.answer {
                AnswerBody::Whole(pieces) => pieces.is_none(),
                // An empty stream must be polled to its end; otherwise hyper would send a content length.
                AnswerBody::Stream(_) => false,
                AnswerBody::List(list) => list.is_end_stream(),
                AnswerBody::Watch(watch) => watch.is_end_stream(),
                AnswerBody::Forwarded(body, _) => body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        if self.adopted.is_some() {
            return SizeHint::default();
        }
        match &self.answer {
            AnswerBody::Whole(pieces) => {
                SizeHint::with_exact(pieces.as_ref().map_or(0, |pieces| pieces.len() as u64))
            }
            AnswerBody::Stream(_) | AnswerBody::List(_) | AnswerBody::Watch(_) => {
                SizeHint::default()
            }
            AnswerBody::Forwarded(body, _) => body.size_hint(),
        }
    }
}

/// The body of a stream that is a worker's.
fn poll_adopted(
    adopted: &AdoptedBody,
    context: &Context<'_>,
) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
    // The worker notices a client that does not read: it is the one that waits.
    stall::signal(StallSignal {
        waiting: WaitingSide::Client,
        ends: false,
    });
    let BodyStep::Reserve(len) = adopted.poll(context) else {
        return Poll::Pending;
    };
    let mut zeros = BufList::default();
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    while left > 0 {
        let len = left.min(ZEROS.len());
        zeros.push(Bytes::from_static(&ZEROS[..len]));
        left -= len;
    }
    Poll::Ready(Some(Ok(Frame::data(zeros))))
}

#[cfg(test)]
mod tests;
