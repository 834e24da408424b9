//! Splits a watch's body into events, in either encoding.

use anyhow::Result;
use kube_fanout::decode;
use kube_fanout::resource::Encoding;

use super::lines::{LINE_LEN_MAX, Lines};

/// Length of the prefix before each event in protobuf.
const LENGTH_LEN: usize = 4;

/// The unfinished event of one stream.
#[derive(Debug)]
pub enum Frames {
    Json(Lines),
    /// Events have a length prefix.
    Protobuf(decode::Frames),
}

impl Frames {
    /// For streams in this encoding. `head_len_max` limits the bytes that are kept of long lines; in protobuf all are kept, because the
    /// lengths in an event reach to its end.
    pub fn new(encoding: Encoding, head_len_max: Option<usize>) -> Self {
        match encoding {
            Encoding::Json => Self::Json(head_len_max.map_or_else(Lines::default, Lines::heads)),
            Encoding::Protobuf => Self::Protobuf(decode::Frames::new(encoding, LINE_LEN_MAX)),
        }
    }

    /// Passes every complete event to `event`, in order, without its newline or prefix.
    pub fn feed(&mut self, piece: &[u8], mut event: impl FnMut(&[u8])) -> Result<()> {
        match self {
            Self::Json(lines) => lines.feed(piece, event),
            Self::Protobuf(frames) => {
                frames.push(piece);
                while let Some(frame) = frames.next_frame()? {
                    event(frame.get(LENGTH_LEN..).unwrap_or_default());
                }
                Ok(())
            }
        }
    }

    /// Whether the stream is between two events.
    pub const fn is_between(&self) -> bool {
        match self {
            Self::Json(lines) => lines.is_between(),
            Self::Protobuf(frames) => !frames.is_mid_frame(),
        }
    }

    /// Drops an unfinished event after the connection broke.
    pub fn clear(&mut self) {
        match self {
            Self::Json(lines) => lines.clear(),
            Self::Protobuf(frames) => {
                *frames = decode::Frames::new(Encoding::Protobuf, LINE_LEN_MAX);
            }
        }
    }
}
