//! Frames of a watch in either encoding: where they are cut, and what is in them.

use super::envelope::{EventEnvelope, WatchLine, scan_event, scan_line};
use super::json::ScanError;
use super::protobuf::{is_canonical_frame, scan_frame, scan_protobuf_event};
use crate::resource::protobuf::type_meta_of;
use crate::resource::{ByteSpan, Encoding, FieldTable, Object, ObjectParts};

/// Capacity that is kept while no frame is at hand. Sixteen thousand idle streams with this much hold 1 GiB at worst; events of
/// usual size fit without growing the buffer again.
const KEPT_LEN_MAX: usize = 64 * 1024;

/// Bytes of the length before each frame in protobuf.
const LENGTH_LEN: usize = 4;

/// A frame longer than what is accepted; the stream cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("watch frame is longer than {frame_len_max} bytes")]
pub struct FrameTooLong {
    /// The limit that was passed, in bytes.
    pub frame_len_max: usize,
}

/// Collects chunks of a watch response and lends out whole frames.
///
/// In JSON a frame ends with a newline and has none inside; in protobuf it is a length of four bytes, big end first, and as many
/// bytes (docs/PROTOCOL.md §4.11). Chunk boundaries mean nothing. Whoever keeps a frame copies it: what lives long must not pin a read
/// buffer that many frames share.
///
/// The caller takes all frames after each push; the buffer then holds at most one unfinished frame, so its size is bounded by
/// `frame_len_max` plus one chunk. A length alone, which a peer may make up, reserves nothing.
///
/// Invariant: `taken <= buffer.len()`.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    taken: usize,
    cut: FrameBoundary,
    frame_len_max: usize,
}

/// How the end of a frame is found.
#[derive(Clone, Copy, Debug)]
enum FrameBoundary {
    /// At a newline; the first `searched` bytes that are held have none, so no byte is searched twice.
    AtNewline { searched: usize },
    /// By the length before it.
    ByLength,
}

impl Frames {
    /// For streams in this encoding; refuses frames longer than `frame_len_max` bytes, newline or length not counted.
    #[must_use]
    pub const fn new(encoding: Encoding, frame_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            cut: match encoding {
                Encoding::Json => FrameBoundary::AtNewline { searched: 0 },
                Encoding::Protobuf => FrameBoundary::ByLength,
            },
            frame_len_max,
        }
    }

    /// Adds bytes as they came from the socket.
    pub fn push(&mut self, chunk: &[u8]) {
        // Moving what is left costs no more than what was taken before, so each byte moves a bounded number of times.
        if self.taken > 0 && self.taken >= self.buffer.len() - self.taken {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame with its newline or length, which watchers get as well; `None` when more bytes are needed. Empty
    /// lines are skipped.
    ///
    /// # Errors
    /// The frame at hand, finished or not, is longer than the limit. The error stays: a stream that lost its place is of no use.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameTooLong> {
        loop {
            let held = &self.buffer[self.taken..];
            let found = match &mut self.cut {
                FrameBoundary::AtNewline { searched } => {
                    line_len(held, searched, self.frame_len_max)?
                }
                FrameBoundary::ByLength => counted_len(held, self.frame_len_max)?,
            };
            let Some(len) = found else {
                self.release();
                return Ok(None);
            };
            let frame = self.taken..self.taken + len;
            self.taken = frame.end;
            if len > 1 {
                return Ok(Some(&self.buffer[frame]));
            }
        }
    }

    /// Whether bytes of an unfinished frame are held: a stream that ends now was cut.
    #[must_use]
    pub const fn is_mid_frame(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Bytes of memory that the buffer holds.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// One large object must not keep its buffer for the life of a quiet stream.
    fn release(&mut self) {
        if self.is_mid_frame() {
            return;
        }
        if self.buffer.capacity() > KEPT_LEN_MAX {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        self.taken = 0;
    }
}

/// Length of the line that `held` begins with, newline included, if it is whole; the first `searched` bytes have no newline.
fn line_len(
    held: &[u8],
    searched: &mut usize,
    frame_len_max: usize,
) -> Result<Option<usize>, FrameTooLong> {
    let found = memchr::memchr(b'\n', &held[*searched..]);
    let end = found.map_or(held.len(), |at| *searched + at);
    if end > frame_len_max {
        return Err(FrameTooLong { frame_len_max });
    }
    *searched = if found.is_some() { 0 } else { end };
    Ok(found.map(|_| end + 1))
}

/// Length of the frame that `held` begins with, the length before it included, if it is whole.
fn counted_len(held: &[u8], frame_len_max: usize) -> Result<Option<usize>, FrameTooLong> {
    let Some(length) = held.first_chunk::<LENGTH_LEN>() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes(*length) as usize;
    if len > frame_len_max {
        return Err(FrameTooLong { frame_len_max });
    }
    let len = LENGTH_LEN + len;
    Ok((held.len() >= len).then_some(len))
}

/// Reads one frame.
///
/// # Errors
/// See [`scan_line`] and [`scan_frame`].
pub fn scan_watch(
    encoding: Encoding,
    frame: &[u8],
    fields: FieldTable,
) -> Result<WatchLine<'_>, ScanError> {
    match encoding {
        Encoding::Json => scan_line(without_newline(frame), fields),
        Encoding::Protobuf => scan_frame(frame, fields),
    }
}

/// The object of a frame that was read: canonical frames are copied as they are, others brought into shape.
///
/// # Errors
/// A protobuf frame that is laid out otherwise than the API server does it, so that its type cannot be told.
pub fn object_in(
    encoding: Encoding,
    frame: &[u8],
    at: ByteSpan,
    parts: ObjectParts<'_>,
) -> Result<Object, ScanError> {
    let raw = at.of(frame);
    let is_canonical = match encoding {
        Encoding::Json => frame.len() == at.end as usize + 2 && frame.ends_with(b"}\n"),
        Encoding::Protobuf => is_canonical_frame(frame, at),
    };
    Ok(match encoding {
        _ if is_canonical => Object::in_frame(parts, encoding, frame, at.start),
        Encoding::Json => Object::new(parts, raw),
        Encoding::Protobuf => Object::in_protobuf(parts, type_meta_of(frame)?, raw),
    })
}

/// Reads the envelope alone.
///
/// # Errors
/// As [`scan_watch`], but for what is wrong within the object.
pub fn scan_envelope(encoding: Encoding, frame: &[u8]) -> Result<EventEnvelope, ScanError> {
    match encoding {
        Encoding::Json => scan_event(without_newline(frame)),
        Encoding::Protobuf => scan_protobuf_event(frame),
    }
}

fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

#[cfg(test)]
mod tests;
