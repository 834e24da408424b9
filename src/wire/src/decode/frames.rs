//! Frames of a watch in JSON or protobuf: finds their boundaries, and reads their contents.

use super::envelope::{EventEnvelope, WatchLine, scan_event, scan_line};
use super::json::ScanError;
use super::protobuf::{is_canonical_frame, scan_frame, scan_protobuf_event};
use crate::resource::protobuf::type_meta_of;
use crate::resource::{ByteSpan, Encoding, FieldTable, Object, ObjectParts};

/// Largest capacity that an empty buffer keeps, bytes. Sixteen thousand idle streams then hold 1 GiB at worst, and events
/// of usual size fit without growing the buffer again.
const KEPT_LEN_MAX: usize = 64 * 1024;

/// Bytes of the length before each protobuf frame.
const LENGTH_LEN: usize = 4;

/// A frame is longer than accepted. The stream cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("watch frame is longer than {frame_len_max} bytes")]
pub struct FrameTooLong {
    /// The limit that was exceeded, in bytes.
    pub frame_len_max: usize,
}

/// Collects the chunks of a watch response and returns whole frames.
///
/// A JSON frame ends with a newline and contains no other; a protobuf frame is a length of four bytes, big-endian, and as
/// many bytes (docs/PROTOCOL.md §4.11). Chunk boundaries have no meaning. A caller that keeps a frame copies it, so that a
/// long-lived object does not pin a read buffer that many frames share.
///
/// The caller takes all frames after each push. The buffer then holds at most one unfinished frame, so its size is bounded
/// by `frame_len_max` plus one chunk. A length by itself, which a peer may make up, reserves no memory.
///
/// Invariant: `taken <= buffer.len()`.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` whose frames were returned.
    taken: usize,
    boundary: FrameBoundary,
    frame_len_max: usize,
}

/// How the end of a frame is found.
#[derive(Clone, Copy, Debug)]
enum FrameBoundary {
    /// At a newline. The first `searched` of the bytes held have none, so no byte is searched twice.
    AtNewline { searched: usize },
    /// By the length before the frame.
    ByLength,
}

impl Frames {
    /// Creates a buffer for streams in this encoding. Frames longer than `frame_len_max` bytes, newline or length not
    /// counted, are errors.
    #[must_use]
    pub const fn new(encoding: Encoding, frame_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            boundary: match encoding {
                Encoding::Json => FrameBoundary::AtNewline { searched: 0 },
                Encoding::Protobuf => FrameBoundary::ByLength,
            },
            frame_len_max,
        }
    }

    /// Adds a chunk from the socket.
    pub fn push(&mut self, chunk: &[u8]) {
        // At most as many bytes are moved as were taken before, so each byte is moved a bounded number of times.
        if self.taken > 0 && self.taken >= self.buffer.len() - self.taken {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next whole frame with its newline or length, which clients get as well; `None` if more bytes are needed.
    /// Empty lines are skipped.
    ///
    /// # Errors
    /// The current frame, complete or not, is longer than the limit. All further calls fail as well, because the next
    /// boundary is unknown.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameTooLong> {
        loop {
            let held = &self.buffer[self.taken..];
            let found = match &mut self.boundary {
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

    /// The bytes that are held.
    #[must_use]
    pub const fn held_len(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Whether bytes of an unfinished frame are held: a stream that ends now was cut.
    #[must_use]
    pub const fn is_mid_frame(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Capacity of the buffer, in bytes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Frees a large buffer once it is empty, so that one large object does not occupy memory for the life of a quiet
    /// stream.
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

/// Length of the line at the start of `held`, including its newline; `None` if it is incomplete. The first `searched` bytes
/// contain no newline.
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

/// Length of the frame at the start of `held`, including the length before it; `None` if it is incomplete.
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

/// Reads one frame in either encoding.
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

/// Copies the object of a frame that was read. A frame with the API server's own layout is copied as it is; any other is
/// converted to that layout.
///
/// # Errors
/// A protobuf frame has another layout, and its object's type cannot be read.
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
/// As [`scan_watch`], except for errors within the object.
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
