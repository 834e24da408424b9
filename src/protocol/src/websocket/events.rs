//! Splits a watch's stream into WebSocket frames, one per event (docs/PROTOCOL.md §4.11). Pure; payloads are shared, not copied.

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderValue;
use smallvec::SmallVec;

use crate::BufList;

const FIN_TEXT: u8 = 0x81;
const FIN_BINARY: u8 = 0x82;
const FIN_CLOSE: u8 = 0x88;
const FIN_PONG: u8 = 0x8a;
/// Two bytes and eight bytes of length.
const HEAD_LEN_MAX: usize = 10;
/// Length of the length prefix of a protobuf event. It is not part of the WebSocket frame, which has a length of its own.
const PREFIX_LEN: usize = 4;

/// How events are delimited in the stream, and which kind of frame they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// JSON lines, which become text frames with their newline.
    Lines,
    /// Length-prefixed messages, which become binary frames without the prefix.
    Messages,
}

impl Framing {
    /// The framing of a stream with this content type.
    #[must_use]
    pub fn of(content_type: Option<&HeaderValue>) -> Self {
        let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
        if content_type.is_none_or(is_json) {
            Self::Lines
        } else {
            Self::Messages
        }
    }
}

/// The status code of a close frame (RFC 6455 §7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// The stream has ended.
    Normal = 1000,
    /// The client broke the protocol.
    ProtocolError = 1002,
}

/// A close frame, the last one of a connection.
pub fn close(code: CloseCode) -> BufList {
    let [high, low] = (code as u16).to_be_bytes();
    Bytes::copy_from_slice(&[FIN_CLOSE, 2, high, low]).into()
}

/// The pong frame that answers a ping.
pub fn pong(payload: Bytes) -> BufList {
    let mut frame = BufList::default();
    frame.push(head(FIN_PONG, payload.len()).freeze());
    frame.push(payload);
    frame
}

/// Converts events to frames. The input may be split anywhere; an incomplete event waits for its end.
#[derive(Debug)]
pub struct EventFrames {
    framing: Framing,
    /// For [`Framing::Lines`]: the beginning of an incomplete line.
    held: SmallVec<[Bytes; 2]>,
    /// For [`Framing::Messages`]: the length prefix as far as it was read, and the number of bytes of the message still to come.
    prefix: [u8; PREFIX_LEN],
    prefix_len: usize,
    remaining: usize,
}

impl EventFrames {
    /// Starts at the beginning of a stream.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            held: SmallVec::new(),
            prefix: [0; PREFIX_LEN],
            prefix_len: 0,
            remaining: 0,
        }
    }

    /// Returns the events in `pieces` as frames.
    #[must_use]
    pub fn framed(&mut self, pieces: BufList) -> BufList {
        let mut frames = BufList::default();
        for part in pieces.into_parts() {
            match self.framing {
                Framing::Lines => self.add_lines(part, &mut frames),
                Framing::Messages => self.add_messages(part, &mut frames),
            }
        }
        frames
    }

    fn add_lines(&mut self, mut part: Bytes, frames: &mut BufList) {
        while let Some(at) = memchr::memchr(b'\n', &part) {
            let end = part.split_to(at + 1);
            let len = self.held.iter().map(Bytes::len).sum::<usize>() + end.len();
            frames.push(head(FIN_TEXT, len).freeze());
            self.held.drain(..).for_each(|begin| frames.push(begin));
            frames.push(end);
        }
        if !part.is_empty() {
            self.held.push(part);
        }
    }

    fn add_messages(&mut self, mut part: Bytes, frames: &mut BufList) {
        loop {
            if self.remaining > 0 {
                let len = self.remaining.min(part.len());
                self.remaining -= len;
                frames.push(part.split_to(len));
            }
            if part.is_empty() {
                return;
            }
            let len = (PREFIX_LEN - self.prefix_len).min(part.len());
            let prefix = part.split_to(len);
            self.prefix[self.prefix_len..self.prefix_len + len].copy_from_slice(&prefix);
            self.prefix_len += len;
            if self.prefix_len == PREFIX_LEN {
                self.prefix_len = 0;
                self.remaining = u32::from_be_bytes(self.prefix) as usize;
                frames.push(head(FIN_BINARY, self.remaining).freeze());
            }
        }
    }
}

/// The head of a frame, unmasked as a server's frames are.
fn head(kind: u8, len: usize) -> BytesMut {
    let mut head = BytesMut::with_capacity(HEAD_LEN_MAX);
    head.put_u8(kind);
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ 0..126), _) => head.put_u8(len),
        (_, Ok(len)) => {
            head.put_u8(126);
            head.put_u16(len);
        }
        _ => {
            head.put_u8(127);
            head.put_u64(len as u64);
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    fn framed(framing: Framing, stream: &[u8], cut: usize) -> Vec<u8> {
        let mut frames = EventFrames::new(framing);
        let mut out = Vec::new();
        // Two pieces at a time, so that cuts are both between pieces and between calls.
        for pair in stream.chunks(cut * 2) {
            let mut pieces = BufList::default();
            pair.chunks(cut)
                .for_each(|part| pieces.push(Bytes::copy_from_slice(part)));
            let mut framed = frames.framed(pieces);
            out.extend_from_slice(&framed.copy_to_bytes(framed.remaining()));
        }
        out
    }

    #[track_caller]
    fn check(framing: Framing, stream: &[u8], expected: &[u8]) {
        for cut in 1..=stream.len() {
            assert_eq!(framed(framing, stream, cut), expected, "cuts of {cut}");
        }
    }

    #[test]
    fn each_line_is_a_text_frame_with_its_newline() {
        check(
            Framing::Lines,
            b"{\"a\":1}\n{}\nunfinished",
            b"\x81\x08{\"a\":1}\n\x81\x03{}\n",
        );
    }

    #[test]
    fn each_message_is_a_binary_frame_without_its_length() {
        check(
            Framing::Messages,
            b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01x\0\0",
            b"\x82\x03abc\x82\x00\x82\x01x",
        );
    }

    #[test]
    fn lengths_are_written_the_shortest_way() {
        for (len, expected) in [
            (0, &[0x82, 0][..]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (65_535, &[0x82, 126, 255, 255]),
            (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            assert_eq!(head(FIN_BINARY, len), expected, "{len}");
        }
    }

    #[test]
    fn payloads_are_shared() {
        let line = Bytes::from_static(b"{\"type\":\"ADDED\"}\n");
        let frames = EventFrames::new(Framing::Lines).framed(line.clone().into());
        let parts: Vec<Bytes> = frames.into_parts().collect();
        assert_eq!(parts[1].as_ptr(), line.as_ptr());
    }

    #[test]
    fn the_content_type_tells_the_framing() {
        let of = |text| Framing::of(Some(&HeaderValue::from_static(text)));
        assert_eq!(of("application/json"), Framing::Lines);
        assert_eq!(
            of("application/vnd.kubernetes.protobuf;stream=watch"),
            Framing::Messages
        );
    }
}
