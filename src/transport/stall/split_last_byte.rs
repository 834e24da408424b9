//! The last byte of what an answer says over HTTP/2 before it pauses or ends, as a frame of its own.
//!
//! hyper hands a frame to h2 as soon as the client's window has room for its first byte, and asks the body for the next. What
//! is handed over waits for the window where nobody sees it, and outlives the answer if that has ended. A frame that
//! follows waits in hyper instead, where [`Streams`](super::Streams) sees it, and is handed over when the window has room for all
//! that came before. A client that takes back a window that it has opened is not caught so.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

use super::{StallSignal, WaitingSide, signal};
use crate::protocol::BufList;
use crate::transport::abort_limit::InFlight;

/// So much may be left with h2 unseen, of each stream: what is shorter is not worth a frame.
const UNSEEN_LEN_MAX: usize = 4 << 10;

/// A body that knows when nothing follows at once.
pub(crate) trait PauseHint {
    /// Whether it has nothing more to say for now, or for good, after its last frame.
    fn pauses(&self) -> bool;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SplitLastByte<B> {
    body: B,
    reach: SplitMode,
    last: Option<u8>,
    /// Dropped with the body, once that has left.
    _in_flight: Option<InFlight>,
}

/// Whose bodies are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitMode {
    /// Those of HTTP/2 streams.
    Divided,
    /// Others leave as they come.
    AsItComes,
}

impl SplitMode {
    /// That of answers in `version` of HTTP.
    pub(crate) fn of(version: Version) -> Self {
        match version {
            Version::HTTP_2 => Self::Divided,
            _ => Self::AsItComes,
        }
    }
}

impl<B> SplitLastByte<B> {
    pub(crate) fn new(body: B, reach: SplitMode) -> Self {
        Self {
            body,
            reach,
            last: None,
            _in_flight: None,
        }
    }

    /// The same, as the answer that `in_flight` counts.
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
                waits: WaitingSide::Server,
                ends: false,
            });
            return Poll::Ready(Some(Ok(Frame::data(
                Bytes::copy_from_slice(&[last]).into(),
            ))));
        }
        let mut frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let (SplitMode::Divided, Some(Ok(frame))) = (this.reach, &mut frame)
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
