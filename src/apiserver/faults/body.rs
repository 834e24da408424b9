//! A watch body with ordered faults: it is aborted, or contains an injected frame. Without faults the frames pass unchanged.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};

use super::{InjectedFrame, StreamFate};
use crate::protocol::BufList;

/// A body to which the faults of a stream are applied.
pub struct FaultyBody<B> {
    inner: B,
    /// Bytes that may still be sent before the abort; `None` if the stream is not to be aborted.
    bytes_before_cut: Option<u64>,
    inject: Injection,
    /// Whether the connection had a chance to flush the bytes before the abort.
    flushed: bool,
    ended: bool,
}

/// The state of the frame to inject.
enum Injection {
    None,
    /// It follows the first frame, which has not been sent.
    AfterFirst(InjectedFrame),
    /// It is the next frame.
    Next(InjectedFrame),
}

impl<B> FaultyBody<B> {
    /// Applies `fate` to `inner`.
    pub fn new(inner: B, fate: &StreamFate) -> Self {
        Self {
            inner,
            bytes_before_cut: fate.cut_after,
            inject: fate.inject.map_or(Injection::None, Injection::AfterFirst),
            flushed: false,
            ended: false,
        }
    }

    /// Truncates a frame at the byte where the stream is aborted.
    fn truncated(&mut self, mut data: impl Buf) -> Bytes {
        let len = data.remaining();
        let Some(budget) = &mut self.bytes_before_cut else {
            return data.copy_to_bytes(len);
        };
        let kept = usize::try_from(*budget).map_or(len, |budget| budget.min(len));
        *budget -= kept as u64;
        data.copy_to_bytes(kept)
    }
}

impl<B> Body for FaultyBody<B>
where
    B: Body<Data = BufList> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if this.bytes_before_cut == Some(0) {
            if !std::mem::replace(&mut this.flushed, true) {
                // hyper flushes the connection while the body is pending, so the bytes before the cut are sent first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.ended = true;
            return Poll::Ready(Some(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "watch aborted by an ordered fault",
            ))));
        }
        if let Injection::Next(frame) = this.inject {
            this.inject = Injection::None;
            let data = this.truncated(injected(frame));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
            this.ended = true;
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match frame.map_err(io::Error::other)?.into_data() {
            Ok(data) => {
                if let Injection::AfterFirst(frame) = this.inject {
                    this.inject = Injection::Next(frame);
                }
                Ok(Frame::data(this.truncated(data)))
            }
            Err(trailers) => Ok(trailers.map_data(|mut data| data.copy_to_bytes(data.len()))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// The bytes of an injected frame, newline included.
fn injected(frame: InjectedFrame) -> Bytes {
    match frame {
        InjectedFrame::Garbage => Bytes::from_static(b"\x00{]\xff garbage as ordered\n"),
        InjectedFrame::Oversized(len) => {
            let (head, tail) = (r#"{"type":"MODIFIED","object":""#, "\"}\n");
            let mut line = Vec::with_capacity(len);
            line.extend_from_slice(head.as_bytes());
            line.resize(len.saturating_sub(tail.len()).max(head.len()), b'x');
            line.extend_from_slice(tail.as_bytes());
            line.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http_body_util::BodyExt;

    use super::*;

    /// A body whose frames are all ready.
    struct Frames(VecDeque<Bytes>);

    impl Body for Frames {
        type Data = BufList;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data.into()))))
        }
    }

    async fn outcome(fate: StreamFate) -> (Vec<u8>, bool) {
        let frames = ["one\n", "two\n"].map(Bytes::from).into();
        let mut body = FaultyBody::new(Frames(frames), &fate);
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    received.extend_from_slice(&frame.into_data().unwrap());
                }
                Err(_) => return (received, true),
            }
        }
        (received, false)
    }

    #[tokio::test]
    async fn a_stream_without_a_fate_passes() {
        let (received, broken) = outcome(StreamFate::default()).await;
        assert_eq!(
            (received.as_slice(), broken),
            (b"one\ntwo\n".as_slice(), false)
        );
    }

    #[tokio::test]
    async fn a_cut_stream_breaks_after_its_bytes_in_the_middle_of_a_frame() {
        for (cut_after, expected) in [
            (0, "".as_bytes()),
            (2, b"on"),
            (4, b"one\n"),
            (6, b"one\ntw"),
        ] {
            let fate = StreamFate {
                cut_after: Some(cut_after),
                inject: None,
            };
            let (received, broken) = outcome(fate).await;
            assert_eq!(
                (received.as_slice(), broken),
                (expected, true),
                "{cut_after}"
            );
        }
    }

    #[tokio::test]
    async fn a_foreign_frame_stands_behind_the_first() {
        for (frame, len) in [
            (
                InjectedFrame::Garbage,
                injected(InjectedFrame::Garbage).len(),
            ),
            (InjectedFrame::Oversized(5000), 5000),
        ] {
            let fate = StreamFate {
                cut_after: None,
                inject: Some(frame),
            };
            let (received, broken) = outcome(fate).await;
            assert!(received.starts_with(b"one\n") && received.ends_with(b"two\n"));
            assert_eq!((received.len(), broken), (8 + len, false));
        }
    }
}
