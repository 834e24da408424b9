//! Finds the boundaries between events in a forwarded watch, so that the watch can end between two of them, as the gateway's own do.

use crate::resource::Encoding;

/// Tracks where the events of a stream end.
#[derive(Debug)]
pub(super) enum Boundary {
    /// Events end with a newline; true if the last byte was one.
    Newline(bool),
    /// Events start with their length.
    Length(Length),
}

/// The rest of the current event.
#[derive(Debug, Default)]
pub(super) struct Length {
    head: Vec<u8>,
    remaining: usize,
}

impl Boundary {
    /// For a stream of this content type; `None` if its events cannot be separated.
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

    /// Records bytes of the stream.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        match self {
            Self::Newline(last) => *last = bytes.last().map_or(*last, |byte| *byte == b'\n'),
            Self::Length(length) => length.pass(bytes),
        }
    }

    /// Whether the stream is between two events.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Newline(last) => *last,
            Self::Length(length) => length.remaining == 0 && length.head.is_empty(),
        }
    }
}

impl Length {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.remaining.min(bytes.len());
            self.remaining -= skipped;
            bytes = &bytes[skipped..];
            let head_len = (4 - self.head.len()).min(bytes.len());
            if self.remaining > 0 || head_len == 0 {
                continue;
            }
            self.head.extend_from_slice(&bytes[..head_len]);
            bytes = &bytes[head_len..];
            if let [a, b, c, d] = *self.head {
                self.remaining = u32::from_be_bytes([a, b, c, d]) as usize;
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
                for chunk in stream.chunks(step) {
                    boundary.pass(chunk);
                    passed += chunk.len();
                    let here = ends.contains(&passed);
                    assert_eq!(boundary.is_here(), here, "{content_type} {step} {passed}");
                }
            }
        }
        assert!(Boundary::of("application/cbor-seq").is_none());
    }
}
