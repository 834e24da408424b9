//! Frames of a watch in either encoding: where they are cut, and what is in them.

use bytes::Bytes;

use super::envelope::{EventEnvelope, WatchLine, scan_event, scan_line};
use super::framer::{FrameTooLong, LineFramer};
use super::json::ScanError;
use super::protobuf::{LengthFramer, is_canonical_frame, scan_frame, scan_protobuf_event};
use crate::resource::protobuf::type_meta_of;
use crate::resource::{Encoding, FieldTable, Object, ObjectParts, Span};

/// Cuts a watch response into frames, each an allocation of its own.
#[derive(Debug)]
pub enum Frames {
    /// A line each.
    Json(LineFramer),
    /// A length before each.
    Protobuf(LengthFramer),
}

impl Frames {
    /// For streams in this encoding; refuses frames longer than `frame_len_max` bytes.
    #[must_use]
    pub const fn new(encoding: Encoding, frame_len_max: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(LineFramer::new(frame_len_max)),
            Encoding::Protobuf => Self::Protobuf(LengthFramer::new(frame_len_max)),
        }
    }

    /// Adds bytes as they came from the socket.
    pub fn push(&mut self, chunk: &[u8]) {
        match self {
            Self::Json(framer) => framer.push(chunk),
            Self::Protobuf(framer) => framer.push(chunk),
        }
    }

    /// The next whole frame, newline or length included; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The frame at hand is longer than the limit. The error stays.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        match self {
            Self::Json(framer) => framer.next_line(),
            Self::Protobuf(framer) => framer.next_frame(),
        }
    }

    /// Whether bytes of an unfinished frame are held: a stream that ends now was cut.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        match self {
            Self::Json(framer) => framer.is_mid_frame(),
            Self::Protobuf(framer) => framer.is_mid_frame(),
        }
    }
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
    at: Span,
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
