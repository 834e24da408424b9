//! The frame of a watch event: a length, a `WatchEvent`, and in it the object's own envelope. Reads one frame; `frames.rs`
//! splits a stream into frames.

use crate::decode::envelope::{EventEnvelope, WatchLine, WireKind};
use crate::decode::json::{ScanError, span};
use crate::resource::wire::{WireFields, field_len};
use crate::resource::{ByteSpan, FieldTable};

use super::fields::{bytes_of, expected, text};
use super::object::{scan_protobuf_bookmark, scan_protobuf_object};
use super::status::scan_protobuf_status;
use super::unknown::{Unknown, after_magic};

/// Bytes of the length before each frame.
const LENGTH_LEN: usize = 4;

/// Reads one frame, including its length. The object's span covers its message without the envelope. The spans of its
/// parts, and the offsets of errors within it, count from there.
///
/// # Errors
/// The frame does not have the length that it states, `type` is missing or unknown, the object is missing or its wrapper is
/// not Kubernetes' protobuf, or as `scan_protobuf_object`.
pub fn scan_frame(frame: &[u8], fields: FieldTable) -> Result<WatchLine<'_>, ScanError> {
    let EventEnvelope { kind, object } = scan_protobuf_event(frame)?;
    let raw = object.of(frame);
    Ok(match (kind, kind.event_kind()) {
        (_, Some(kind)) => WatchLine::Event {
            kind,
            object,
            parts: scan_protobuf_object(raw, fields)?,
        },
        (WireKind::Bookmark, None) => WatchLine::Bookmark(scan_protobuf_bookmark(raw)?),
        (_, None) => WatchLine::Error(scan_protobuf_status(raw)),
    })
}

/// Reads the envelope alone: the event's type, and the position of its object's message.
///
/// # Errors
/// As [`scan_frame`], except for errors within the object.
pub fn scan_protobuf_event(frame: &[u8]) -> Result<EventEnvelope, ScanError> {
    let event = event_span(frame)?;
    let (mut kind, mut wrapped) = (None, None);
    for field in WireFields::within(frame, event) {
        let field = field?;
        match field.number {
            1 => kind = Some(text(frame, &field)?),
            2 => wrapped = Some(bytes_of(&field, "an event's object")?),
            _ => {}
        }
    }
    let kind = kind
        .and_then(WireKind::of)
        .ok_or_else(|| missing("type", event))?;
    let wrapped = wrapped.ok_or_else(|| missing("object", event))?;
    let mut object = None;
    for field in WireFields::within(frame, wrapped) {
        let field = field?;
        if field.number == 1 {
            object = Some(bytes_of(&field, "an event's object")?);
        }
    }
    let object = object.ok_or_else(|| missing("object", wrapped))?;
    let object = Unknown::read(frame, object)?.raw;
    Ok(EventEnvelope { kind, object })
}

fn event_span(frame: &[u8]) -> Result<ByteSpan, ScanError> {
    let whole = span(LENGTH_LEN.min(frame.len()), frame.len())?;
    match frame.first_chunk::<LENGTH_LEN>() {
        Some(length) if u32::from_be_bytes(*length) == whole.end - whole.start => Ok(whole),
        _ => expected("a frame of the length that it states", 0),
    }
}

const fn missing(what: &'static str, within: ByteSpan) -> ScanError {
    ScanError::Missing {
        what,
        offset: within.end as usize,
    }
}

/// Whether a frame is laid out as kube-apiserver lays frames out, with `raw` as its object: all fields in order, no others,
/// and every length as short as possible. Such a frame can be rebuilt from its parts.
#[must_use]
pub fn is_canonical_frame(frame: &[u8], raw: ByteSpan) -> bool {
    canonical_object(frame) == Some(raw)
}

fn canonical_object(frame: &[u8]) -> Option<ByteSpan> {
    let [_, wrapped] = exactly(frame, event_span(frame).ok()?, [1, 2])?;
    let [object] = exactly(frame, wrapped, [1])?;
    let unknown = after_magic(frame, object)?;
    let [type_meta, raw, encoding, content_type] = exactly(frame, unknown, [1, 2, 3, 4])?;
    exactly(frame, type_meta, [1, 2])?;
    (encoding.of(frame).is_empty() && content_type.of(frame).is_empty()).then_some(raw)
}

/// The values of a message that has exactly these fields, in this order, all of type bytes; otherwise `None`.
fn exactly<const COUNT: usize>(
    bytes: &[u8],
    message: ByteSpan,
    numbers: [u32; COUNT],
) -> Option<[ByteSpan; COUNT]> {
    let mut fields = WireFields::within(bytes, message);
    let mut values = [ByteSpan::default(); COUNT];
    for (value, number) in values.iter_mut().zip(numbers) {
        let field = fields.next()?.ok()?;
        *value = field.bytes().filter(|_| field.number == number)?;
        let len = (field.span.end - field.span.start) as usize;
        if len != field_len((value.end - value.start) as usize) {
            return None;
        }
    }
    fields.next().is_none().then_some(values)
}

#[cfg(test)]
mod tests;
