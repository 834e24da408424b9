//! A watch's body with ordered faults: a line in between, and a break.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::InjectedLine;

/// A body that has faults.
pub(crate) struct FaultyBody<B> {
    inner: B,
    /// Bytes before the break.
    left: Option<u64>,
    injected: Option<InjectedLine>,
    /// Whether the first line was sent, so that the injected one is next.
    has_started: bool,
    /// Whether the connection could send what precedes the break.
    is_flushed: bool,
}

impl<B> FaultyBody<B> {
    pub(crate) fn new(inner: B, cut_after: Option<u64>, injected: Option<InjectedLine>) -> Self {
        Self {
            inner,
            left: cut_after,
            injected,
            has_started: false,
            is_flushed: false,
        }
    }

    /// The part of a line before the break.
    fn cut(&mut self, line: Bytes) -> Bytes {
        let Some(left) = &mut self.left else {
            return line;
        };
        let kept = usize::try_from(*left).map_or(line.len(), |left| left.min(line.len()));
        *left -= kept as u64;
        line.slice(..kept)
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for FaultyBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.left == Some(0) {
            if !std::mem::replace(&mut this.is_flushed, true) {
                // hyper sends what it has while a body is pending.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, "broken as ordered");
            return Poll::Ready(Some(Err(error)));
        }
        if this.has_started
            && let Some(line) = this.injected.take()
        {
            let line = this.cut(injected(line));
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        this.has_started = true;
        Poll::Ready(Some(
            frame.map(|frame| frame.map_data(|line| this.cut(line))),
        ))
    }
}

fn injected(line: InjectedLine) -> Bytes {
    let len = match line {
        InjectedLine::Garbage => return Bytes::from_static(b"\x00{]\xff garbage as ordered\n"),
        InjectedLine::Oversized(len) => len,
    };
    let (head, tail) = (br#"{"type":"MODIFIED","object":""#, b"\"}\n");
    let mut line = head.to_vec();
    line.resize(len.saturating_sub(tail.len()).max(head.len()), b'x');
    line.extend_from_slice(tail);
    line.into()
}
