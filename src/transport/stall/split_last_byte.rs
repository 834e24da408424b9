//! Sends the last byte before a pause or the end of an HTTP/2 response as a frame of its own.
//!
//! hyper passes a frame to h2 as soon as the client's window has room for its first byte, and then polls the body for the next one. What h2
//! has accepted waits for the window inside h2, where the gateway cannot see it, and outlives a response that has ended. A following frame
//! waits in hyper instead, where [`StallExecutor`](super::StallExecutor) notices it; hyper passes it on when the window has room for all
//! earlier bytes. This does not detect a client that shrinks a window again.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

use super::{StallSignal, WaitingSide, signal};
use crate::protocol::BufList;
use crate::transport::abort_limit::InFlight;

/// Bytes per stream that may remain in h2 unnoticed: a shorter body frame is not worth a second frame.
const UNSEEN_LEN_MAX: usize = 4 << 10;

/// A body that knows whether more data follows at once.
pub(crate) trait PauseHint {
    /// Whether the body has nothing more to send for now, or at all, after its last frame.
    fn pauses(&self) -> bool;
}

/// A body whose last byte before a pause is a frame of its own.
#[derive(Debug)]
pub(crate) struct SplitLastByte<B> {
    body: B,
    mode: SplitMode,
    last: Option<u8>,
    /// Dropped with the body when that is completely written.
    _in_flight: Option<InFlight>,
}

/// Whether a body is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitMode {
    /// For HTTP/2 streams.
    Divided,
    /// For all others: frames are sent unchanged.
    AsItComes,
}

impl SplitMode {
    /// The mode for responses over this version of HTTP.
    pub(crate) fn of(version: Version) -> Self {
        match version {
            Version::HTTP_2 => Self::Divided,
            _ => Self::AsItComes,
        }
    }
}

impl<B> SplitLastByte<B> {
    pub(crate) fn new(body: B, mode: SplitMode) -> Self {
        Self {
            body,
            mode,
            last: None,
            _in_flight: None,
        }
    }

    /// Stores the guard that counts the response as in flight.
    pub(crate) fn counted(mut self, in_flight: InFlight) -> Self {
        self._in_flight = Some(in_flight);
        self
    }
}

impl<B> Body for SplitLastByte<B>
where
    B: Body<Data = BufList> + PauseHint + Unpin,
{
    type Data = BufList;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, B::Error>>> {
        let this = self.get_mut();
        if let Some(last) = this.last.take() {
            signal(StallSignal {
                waiting: WaitingSide::Server,
                ends: false,
            });
            return Poll::Ready(Some(Ok(Frame::data(
                Bytes::copy_from_slice(&[last]).into(),
            ))));
        }
        let mut frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let (SplitMode::Divided, Some(Ok(frame))) = (this.mode, &mut frame)
            && let Some(pieces) = frame.data_mut()
            && pieces.len() > UNSEEN_LEN_MAX
            && this.body.pauses()
        {
            this.last = pieces.split_last();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
