//! Finds the heads of HTTP/2 frames (RFC 9113 §4.1), however their bytes are divided into reads or writes. Nothing is allocated.

pub(super) const HEAD_LEN: usize = 9;
/// Without the reserved bit.
const STREAM_MASK: u32 = u32::MAX >> 1;

/// Frame types (RFC 9113 §6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// A flag of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 1;
/// A flag of SETTINGS.
pub(super) const ACK: u8 = 1;
/// A flag of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 4;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Length of the payload, bytes.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// As it is sent.
    pub(super) fn encoded(&self) -> [u8; HEAD_LEN] {
        let [len_high, len_mid, len_low] = match u32::try_from(self.len).map(u32::to_be_bytes) {
            Ok([0, high, mid, low]) => [high, mid, low],
            // No frame is that long.
            Ok(_) | Err(_) => [u8::MAX; 3],
        };
        let [a, b, c, d] = self.stream.to_be_bytes();
        [
            len_high, len_mid, len_low, self.kind, self.flags, a, b, c, d,
        ]
    }
}

/// What comes next in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePart<'a> {
    /// The head of the next frame is complete.
    Head(FrameHead),
    /// Some of the payload of the last head, or bytes before the first one.
    Payload(&'a [u8]),
    /// The bytes end within a head.
    Unfinished,
}

#[derive(Clone, Debug)]
pub(super) struct HeadParser {
    /// Bytes until the head of the next frame.
    skipped: usize,
    head: [u8; HEAD_LEN],
    len: usize,
}

impl HeadParser {
    /// The first `skipped` bytes are not frames.
    pub(super) const fn new(skipped: usize) -> Self {
        Self {
            skipped,
            head: [0; HEAD_LEN],
            len: 0,
        }
    }

    /// Whether the next byte begins a frame.
    pub(super) const fn is_between_frames(&self) -> bool {
        self.skipped == 0 && self.len == 0
    }

    /// Removes one part from the front of the bytes.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> FramePart<'a> {
        if self.skipped > 0 {
            let (payload, rest) = bytes.split_at(self.skipped.min(bytes.len()));
            self.skipped -= payload.len();
            *bytes = rest;
            return FramePart::Payload(payload);
        }
        let copied = (HEAD_LEN - self.len).min(bytes.len());
        self.head[self.len..self.len + copied].copy_from_slice(&bytes[..copied]);
        self.len += copied;
        *bytes = &bytes[copied..];
        if self.len < HEAD_LEN {
            return FramePart::Unfinished;
        }
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.skipped = u32::from_be_bytes([0, a, b, c]) as usize;
        self.len = 0;
        FramePart::Head(FrameHead {
            len: self.skipped,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_MASK,
        })
    }

    /// Calls `frame` with each head that ends in these bytes.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut frame: impl FnMut(FrameHead)) {
        while !bytes.is_empty() {
            if let FramePart::Head(head) = self.next(&mut bytes) {
                frame(head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let kinds = [4, 8, HEADERS, DATA, 6, 0x42, CONTINUATION];
        let heads: Vec<_> = (0..)
            .zip(kinds)
            .map(|(index, kind)| FrameHead {
                len: index * 11,
                kind,
                flags: kind + 1,
                stream: 1,
            })
            .collect();
        let frames = heads
            .iter()
            .map(|head| [&head.encoded()[..], &vec![head.kind; head.len]].concat());
        let sent = [b"preface".to_vec(), frames.collect::<Vec<_>>().concat()].concat();
        for step in 1..=sent.len() {
            let mut parser = HeadParser::new(b"preface".len());
            assert!(!parser.is_between_frames());
            let mut found = Vec::new();
            for piece in sent.chunks(step) {
                parser.read(piece, |head| found.push(head));
            }
            assert_eq!(found, heads, "{step}");
            assert!(parser.is_between_frames());
        }
    }
}
