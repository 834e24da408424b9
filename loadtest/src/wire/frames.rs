//! Splits a watch's body into events, in either encoding.

use anyhow::{Result, ensure};
use kube_fanout::resource::Encoding;

use super::lines::{LINE_LEN_MAX, Lines};

/// The unfinished event of one stream.
#[derive(Debug)]
pub enum Frames {
    Json(Lines),
    /// Events have a length prefix; bytes of an unfinished one.
    Protobuf(Vec<u8>),
}

impl Frames {
    /// For streams in this encoding. `head_len_max` limits the bytes that are kept of long lines; in protobuf all are kept, because the
    /// lengths in an event reach to its end.
    pub fn new(encoding: Encoding, head_len_max: Option<usize>) -> Self {
        match encoding {
            Encoding::Json => Self::Json(head_len_max.map_or_else(Lines::default, Lines::heads)),
            Encoding::Protobuf => Self::Protobuf(Vec::new()),
        }
    }

    /// Passes every complete event to `event`, in order, without its newline or prefix.
    pub fn feed(&mut self, piece: &[u8], mut event: impl FnMut(&[u8])) -> Result<()> {
        match self {
            Self::Json(lines) => lines.feed(piece, event),
            Self::Protobuf(held) => {
                held.extend_from_slice(piece);
                let mut rest = &held[..];
                while let Some((length, behind)) = rest.split_first_chunk() {
                    let len = u32::from_be_bytes(*length) as usize;
                    ensure!(len <= LINE_LEN_MAX, "an event of {len} bytes");
                    let Some((frame, behind)) = behind.split_at_checked(len) else {
                        break;
                    };
                    event(frame);
                    rest = behind;
                }
                let read = held.len() - rest.len();
                held.drain(..read);
                // Idle streams keep no buffer: there are thousands of them.
                if held.is_empty() {
                    *held = Vec::new();
                }
                Ok(())
            }
        }
    }

    /// Whether the stream is between two events.
    pub const fn is_between(&self) -> bool {
        match self {
            Self::Json(lines) => lines.is_between(),
            Self::Protobuf(held) => held.is_empty(),
        }
    }

    /// Drops an unfinished event after the connection broke.
    pub fn clear(&mut self) {
        match self {
            Self::Json(lines) => lines.clear(),
            Self::Protobuf(held) => held.clear(),
        }
    }
}
