//! Where the events of a forwarded watch end, so that it can be ended between two of them as the gateway's own watches are.

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
}
