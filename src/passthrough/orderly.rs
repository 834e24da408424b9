//! A forwarded watch that is ended between two events when the gateway drains, as the gateway's own watches are.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::resource::Encoding;

/// Where events end in a stream that passes through.
#[derive(Debug)]
pub(super) enum Boundary {
    /// At each newline; whether one came last.
    Newline(bool),
    /// After so many bytes, which each event says before itself.
    Length(Length),
}

/// How much of an event is still to come.
#[derive(Debug, Default)]
pub(super) struct Length {
    head: Vec<u8>,
    left: usize,
}

impl Boundary {
    /// For a stream of this content type; `None` if its events cannot be told apart.
    pub(super) fn of(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if media_type == Encoding::Json.media_type() {
            Some(Self::Newline(true))
        } else if content_type == Encoding::Protobuf.stream_type() {
            Some(Self::Length(Length::default()))
        } else {
            None
        }
    }

    /// These bytes have passed.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        match self {
            Self::Newline(last) => *last = bytes.last().map_or(*last, |byte| *byte == b'\n'),
            Self::Length(length) => length.pass(bytes),
        }
    }

    /// Whether the stream stands between two events.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Newline(last) => *last,
            Self::Length(length) => length.left == 0 && length.head.is_empty(),
        }
    }
}

impl Length {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (4 - self.head.len()).min(bytes.len());
            if self.left > 0 || wanted == 0 {
                continue;
            }
            self.head.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            if let [a, b, c, d] = *self.head {
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.head.clear();
            }
        }
    }
}

/// Ends a stream once the drain has begun and the stream stands between two events.
pub(super) struct OrderlyEnd {
    boundary: Boundary,
    /// Waits for the drain; `None` once it has begun.
    begun: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for OrderlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = self.begun.is_none();
        write!(f, "OrderlyEnd({:?}, begun: {begun})", self.boundary)
    }
}

impl OrderlyEnd {
    pub(super) fn new(
        boundary: Boundary,
        begun: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self {
            boundary,
            begun: Some(Box::pin(begun)),
        }
    }

    /// Whether the stream is to end here. Arranges to be woken when the drain begins.
    pub(super) fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(begun) = &mut self.begun
            && begun.as_mut().poll(context) == Poll::Ready(())
        {
            self.begun = None;
        }
        self.begun.is_none() && self.boundary.is_here()
    }

    pub(super) fn pass(&mut self, bytes: &[u8]) {
        self.boundary.pass(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_where_they_say_however_they_are_cut() {
        let lines = b"{\"a\":1}\n{\"b\":2}\n";
        let frames = b"\0\0\0\x02ab\0\0\0\0\0\0\0\x03abc";
        for (content_type, stream, ends) in [
            ("application/json", &lines[..], &[0, 8, 16][..]),
            ("application/json;stream=watch", &lines[..], &[0, 8, 16]),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                &frames[..],
                &[0, 6, 10, 17],
            ),
        ] {
            for step in 1..=stream.len() {
                let mut boundary = Boundary::of(content_type).unwrap();
                let mut passed = 0;
                assert!(boundary.is_here());
                for piece in stream.chunks(step) {
                    boundary.pass(piece);
                    passed += piece.len();
                    let here = ends.contains(&passed);
                    assert_eq!(boundary.is_here(), here, "{content_type} {step} {passed}");
                }
            }
        }
        assert!(Boundary::of("application/cbor-seq").is_none());
    }

    #[test]
    fn it_is_due_when_the_drain_has_begun_and_an_event_is_over() {
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let begun = async move {
            // Sent or given up, it has begun.
            let _ = begun.await;
        };
        let mut end = OrderlyEnd::new(Boundary::Newline(true), begun);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(!end.is_due(&mut context));
        end.pass(b"half");
        drop(begin);
        assert!(!end.is_due(&mut context));
        end.pass(b" and whole\n");
        assert!(end.is_due(&mut context));
    }
}
