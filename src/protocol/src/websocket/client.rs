//! The frames that a client of a watch sends. Only pings and closes matter; data is skipped. Pure.
//!
//! The crate `tungstenite` is not used: it ends the connection for frames that the API server skips (decision 41).

use bytes::Bytes;

/// Maximum payload of a ping (RFC 6455 §5.5). Of a longer one only the beginning is sent back, as the API server does.
const PING_LEN_MAX: usize = 125;

const CLOSE: u8 = 8;
const PING: u8 = 9;
/// Two bytes, eight bytes of length and four of mask.
const HEAD_LEN_MAX: usize = 14;

/// A client's frame that the gateway has to react to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// A ping; its payload is to be sent back in a pong.
    Ping(Bytes),
    /// The client closes the connection; nothing after it is read.
    Close,
    /// A frame without a mask, which RFC 6455 §5.1 forbids; nothing after it is read.
    Unmasked,
}

/// Parses frames in pieces of any size. As lenient as the API server about reserved bits, unknown kinds of frames and fragments,
/// which are all skipped. Memory is bounded by one head and one ping.
#[derive(Debug, Default)]
pub struct ClientFrames {
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Number of payload bytes read, once the head is complete.
    read: u64,
    ping: Vec<u8>,
    /// After a close or an unmasked frame: everything else is ignored.
    is_done: bool,
}

impl ClientFrames {
    /// Consumes bytes up to the next frame to react to; `None` once all bytes are consumed.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<ControlRequest> {
        loop {
            if self.is_done {
                *bytes = &[];
                return None;
            }
            while self.head_len < self.head_len_expected() {
                let (first, rest) = bytes.split_first()?;
                *bytes = rest;
                self.head[self.head_len] = *first;
                self.head_len += 1;
                if self.head_len == 2 && !self.is_masked() {
                    self.is_done = true;
                    return Some(ControlRequest::Unmasked);
                }
            }
            if self.kind() == CLOSE {
                self.is_done = true;
                return Some(ControlRequest::Close);
            }
            self.take_payload(bytes);
            if self.read < self.payload_len() {
                return None;
            }
            let is_ping = self.kind() == PING;
            (self.head_len, self.read) = (0, 0);
            if is_ping {
                return Some(ControlRequest::Ping(std::mem::take(&mut self.ping).into()));
            }
        }
    }

    fn take_payload(&mut self, bytes: &mut &[u8]) {
        let remaining = self.payload_len() - self.read;
        let len =
            usize::try_from(remaining).map_or(bytes.len(), |remaining| remaining.min(bytes.len()));
        let (taken, rest) = bytes.split_at(len);
        *bytes = rest;
        self.read += len as u64;
        if self.kind() == PING {
            let room = PING_LEN_MAX - self.ping.len();
            let mask = &self.head[self.head_len - 4..self.head_len];
            // The first bytes are the ones kept, so their number is also the offset into the mask.
            let start = self.ping.len();
            let unmasked = taken.iter().take(room).enumerate();
            self.ping
                .extend(unmasked.map(|(at, byte)| byte ^ mask[(start + at) % 4]));
        }
    }

    fn kind(&self) -> u8 {
        self.head[0] & 0x0f
    }

    fn is_masked(&self) -> bool {
        self.head[1] & 0x80 != 0
    }

    fn short_len(&self) -> u8 {
        self.head[1] & 0x7f
    }

    /// Length of the head as far as the bytes read so far tell. An unmasked frame is rejected after two bytes.
    fn head_len_expected(&self) -> usize {
        match (self.head_len, self.short_len()) {
            (0 | 1, _) => 2,
            (_, 126) => 8,
            (_, 127) => HEAD_LEN_MAX,
            _ => 6,
        }
    }

    fn payload_len(&self) -> u64 {
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        match self.short_len() {
            126 => number(&self.head[2..4]),
            127 => number(&self.head[2..10]),
            short => short.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [7, 1, 255, 33];

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x80 | kind];
        match payload.len() {
            len @ 0..126 => bytes.push(0x80 | u8::try_from(len).unwrap()),
            len @ 126..65_536 => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            }
            len => {
                bytes.push(0x80 | 127);
                bytes.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&MASK);
        let masked = payload.iter().zip(MASK.iter().cycle());
        bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
        bytes
    }

    fn read(bytes: &[u8], chunk_len: usize) -> Vec<ControlRequest> {
        let mut frames = ClientFrames::default();
        let mut received = Vec::new();
        for mut chunk in bytes.chunks(chunk_len) {
            while let Some(request) = frames.next(&mut chunk) {
                received.push(request);
            }
            assert!(chunk.is_empty(), "all bytes are consumed");
        }
        received
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[ControlRequest]) {
        let bytes = frames.concat();
        for chunk_len in 1..=bytes.len() {
            assert_eq!(read(&bytes, chunk_len), expected, "chunks of {chunk_len}");
        }
    }

    fn ping(payload: &[u8]) -> ControlRequest {
        ControlRequest::Ping(Bytes::copy_from_slice(payload))
    }

    #[test]
    fn data_is_skipped_and_pings_are_returned_in_order() {
        check(
            &[
                frame(1, b"data"),
                frame(PING, b"one"),
                frame(2, &[0; 300]),
                frame(PING, b""),
                frame(10, b"pong"),
                frame(0, b"lone"),
                frame(3, b"reserved"),
                frame(PING, b"two"),
            ],
            &[ping(b"one"), ping(b""), ping(b"two")],
        );
    }

    #[test]
    fn long_frames_are_skipped_whole() {
        let frames = [frame(2, &vec![9; 70_000]), frame(PING, b"after")].concat();
        for chunk_len in [1, 1000, frames.len()] {
            assert_eq!(read(&frames, chunk_len), [ping(b"after")]);
        }
    }

    #[test]
    fn only_the_beginning_of_a_long_ping_is_sent_back() {
        let long: Vec<u8> = (0..200).collect();
        check(
            &[frame(PING, &long), frame(PING, b"x")],
            &[ping(&long[..PING_LEN_MAX]), ping(b"x")],
        );
    }

    #[test]
    fn nothing_is_read_after_a_close_or_an_unmasked_frame() {
        check(
            &[frame(CLOSE, b"\x03\xe8"), frame(PING, b"x")],
            &[ControlRequest::Close],
        );
        check(
            &[vec![0x81, 3, 0, 0, 0], frame(PING, b"x")],
            &[ControlRequest::Unmasked],
        );
        check(&[vec![0x88, 0]], &[ControlRequest::Unmasked]);
    }
}
