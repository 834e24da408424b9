//! A watch of nothing but metadata: each event is cut as it leaves. Keeps nothing between frames.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};

use super::WatchBody;
use crate::downstream::Pieces;
use crate::view::Partial;

/// A [`WatchBody`] whose objects are cut down to `PartialObjectMetadata`.
///
/// They are cut for each client anew: what watchers of the same view share are whole objects.
#[derive(Debug)]
pub struct CutWatch {
    inner: WatchBody,
    partial: Partial,
    ended: bool,
}

impl CutWatch {
    /// Cuts what `inner` sends.
    #[must_use]
    pub const fn new(inner: WatchBody, partial: Partial) -> Self {
        Self {
            inner,
            partial,
            ended: false,
        }
    }

    /// Frames hold whole lines. One that cannot be cut ends the stream, as an event that fails to encode does it upstream.
    fn cut(&mut self, mut whole: Pieces) -> Vec<u8> {
        let lines = whole.copy_to_bytes(whole.len());
        let mut out = Vec::with_capacity(lines.len() / 2);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let Ok(mut line) = self.partial.event_line(line) else {
                self.ended = true;
                break;
            };
            out.append(&mut line);
        }
        out
    }
}

impl Body for CutWatch {
    type Data = Pieces;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        let Some(Ok(Ok(whole))) = frame.map(|frame| frame.map(Frame::into_data)) else {
            return Poll::Ready(None);
        };
        let cut = this.cut(whole);
        // The first line ended the stream: nothing is left to send.
        let cut = Some(cut).filter(|cut| !cut.is_empty());
        Poll::Ready(cut.map(|cut| Ok(Frame::data(Bytes::from(cut).into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }
}
