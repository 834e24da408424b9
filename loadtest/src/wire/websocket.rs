//! The payload of the messages on a WebSocket (RFC 6455), fed in pieces of any length. A watch sends there what it sends in a body, an
//! event a message.

use anyhow::{Result, bail};

/// Headers of the handshake, behind the request line; the API server demands the origin.
pub const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://127.0.0.1\r\n";
/// The status of a successful handshake.
pub const SWITCHING: u16 = 101;
/// Longest head of a frame: two bytes, and eight of length.
const HEAD_LEN_MAX: usize = 10;
/// Longest frame that is accepted.
const FRAME_LEN_MAX: u64 = 64 << 20;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

#[derive(Debug, Default)]
pub struct WebSocketFrames {
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Bytes of the frame's payload that have not arrived yet; none between frames.
    left: Option<u64>,
    /// Whether the close frame has arrived.
    are_over: bool,
}

impl WebSocketFrames {
    /// Passes on the payload of data frames.
    pub fn feed(&mut self, mut piece: &[u8], mut data: impl FnMut(&[u8])) -> Result<()> {
        while !piece.is_empty() {
            let Some(left) = self.left else {
                self.head[self.head_len] = piece[0];
                self.head_len += 1;
                piece = &piece[1..];
                self.left = self.len()?;
                self.end_frame();
                continue;
            };
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let (now, rest) = piece.split_at(take);
            if matches!(self.head[0] & 0x0f, CONTINUATION | TEXT | BINARY) {
                data(now);
            }
            piece = rest;
            self.left = Some(left - take as u64);
            self.end_frame();
        }
        Ok(())
    }

    /// Whether the server has sent its close frame.
    pub const fn are_over(&self) -> bool {
        self.are_over
    }

    fn end_frame(&mut self) {
        if self.left == Some(0) {
            self.are_over |= self.head[0] & 0x0f == CLOSE;
            (self.left, self.head_len) = (None, 0);
        }
    }

    /// The length of the payload, once its head is complete.
    fn len(&self) -> Result<Option<u64>> {
        let (head, short) = (&self.head[..self.head_len], self.head[1] & 0x7f);
        let rest = match (head.len(), short) {
            (0 | 1, _) => return Ok(None),
            (_, 126) => 2,
            (_, 127) => 8,
            _ => 0,
        };
        if head[1] & 0x80 != 0 {
            bail!("a frame that the server has masked");
        }
        if head.len() < 2 + rest {
            return Ok(None);
        }
        let long = head[2..]
            .iter()
            .fold(0, |len, byte| len << 8 | u64::from(*byte));
        let len = if rest == 0 { u64::from(short) } else { long };
        if len > FRAME_LEN_MAX {
            bail!("a frame of {len} bytes");
        }
        Ok(Some(len))
    }
}

#[cfg(test)]
mod tests {
    //! Frames of every length, in pieces of every length.

    use super::*;

    #[test]
    fn payloads_come_in_order_however_the_pieces_are_cut() {
        let long = "x".repeat(300);
        let mut bytes = b"\x81\x03one\x89\x02pi\x01\x02tw\x80\x01o\x81\x00".to_vec();
        bytes.extend(b"\x82\x7e\x01\x2c");
        bytes.extend(long.as_bytes());
        bytes.extend(b"\x81\x7f\0\0\0\0\0\0\0\x03end\x88\x02\x03\xe8");
        for len in 1..bytes.len() {
            let (mut frames, mut got) = (WebSocketFrames::default(), Vec::new());
            for piece in bytes.chunks(len) {
                frames
                    .feed(piece, |data| got.extend_from_slice(data))
                    .unwrap();
            }
            assert_eq!(String::from_utf8(got).unwrap(), format!("onetwo{long}end"));
            assert!(frames.are_over());
        }
    }

    #[test]
    fn only_a_whole_close_frame_is_the_end() {
        for (bytes, are_over) in [
            (&b"\x88\x00"[..], true),
            (b"\x81\x01x\x88\x02\x03\xe8", true),
            (b"\x88\x02\x03", false),
            (b"\x81\x01\x88\x89\x00", false),
        ] {
            let mut frames = WebSocketFrames::default();
            frames.feed(bytes, |_| {}).unwrap();
            assert_eq!(frames.are_over(), are_over, "{bytes:?}");
        }
    }

    #[test]
    fn masked_and_huge_frames_are_errors() {
        for head in [&b"\x81\x83mask"[..], b"\x81\x7f\x01\0\0\0\0\0\0\0"] {
            assert!(WebSocketFrames::default().feed(head, |_| {}).is_err());
        }
    }
}
