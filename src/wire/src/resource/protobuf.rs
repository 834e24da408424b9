//! Protobuf objects: the frame of a watch event around an object's bytes, and an object at another version.
//!
//! A *raw* object is the message of its kind, such as `Pod`; its first field is the metadata (docs/PROTOCOL.md §4.11, §5.8).

use super::wire::{MAGIC, WireError, WireFields, field_len, put_bytes, put_head};
use super::{ByteSpan, EventKind, ResourceVersion};

/// The bytes that follow a raw object in its frame: the empty content encoding and content type of `Unknown`.
pub(super) const FRAME_END: &[u8] = &[0x1a, 0, 0x22, 0];
/// Capacity for what usually precedes an object in its frame: type, lengths, `apiVersion` and `kind`.
const HEAD_LEN: usize = 128;
/// Where the event's type starts: after the frame's length (4 bytes) and the type's tag and length (2 bytes).
const TYPE_AT: usize = 4 + 2;

const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;

/// The start of a frame, up to the tag of the event's object: the frame's length and the event's type. `rest_len` counts from that tag.
pub(super) fn frame_head(kind: EventKind, rest_len: usize) -> Vec<u8> {
    frame_head_of(kind.as_str(), rest_len)
}

fn frame_head_of(kind: &str, rest_len: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_LEN);
    // Frames are bounded far below 4 GiB where they are read.
    let len = u32::try_from(field_len(kind.len()) + rest_len).unwrap_or(u32::MAX);
    head.extend_from_slice(&len.to_be_bytes());
    put_bytes(&mut head, 1, kind.as_bytes());
    head
}

/// A whole frame of a watch, and where `raw` starts in it. `type_meta` is the message of `apiVersion` and `kind`.
#[must_use]
pub fn frame_around(kind: &str, type_meta: &[u8], raw: &[u8]) -> (Vec<u8>, usize) {
    let mut frame = frame_before(kind, type_meta, raw.len());
    let start = frame.len();
    frame.reserve_exact(raw.len() + FRAME_END.len());
    frame.extend_from_slice(raw);
    frame.extend_from_slice(FRAME_END);
    (frame, start)
}

/// The bytes before an object of `raw_len` bytes in its frame.
pub(super) fn frame_before(kind: &str, type_meta: &[u8], raw_len: usize) -> Vec<u8> {
    let unknown_len =
        MAGIC.len() + field_len(type_meta.len()) + field_len(raw_len) + FRAME_END.len();
    let object_len = field_len(unknown_len);
    let mut frame = frame_head_of(kind, field_len(object_len));
    put_head(&mut frame, 2, object_len);
    put_head(&mut frame, 1, unknown_len);
    frame.extend_from_slice(MAGIC);
    put_bytes(&mut frame, 1, type_meta);
    put_head(&mut frame, 2, raw_len);
    frame
}

/// The message of `apiVersion` and `kind`.
#[must_use]
pub fn type_meta(api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + api_version.len() + kind.len());
    put_bytes(&mut out, 1, api_version.as_bytes());
    put_bytes(&mut out, 2, kind.as_bytes());
    out
}

/// The head of a response: magic, type, and the tag and length of a message that the caller appends, followed by [`answer_end`].
#[must_use]
pub fn answer_head(type_meta: &[u8], raw_len: usize) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    put_bytes(&mut head, 1, type_meta);
    put_head(&mut head, 2, raw_len);
    head
}

/// The bytes that follow the message of a response.
#[must_use]
pub const fn answer_end() -> &'static [u8] {
    FRAME_END
}

/// Where the field of the event's object starts in a canonical frame.
pub(super) fn rest_at(frame: &[u8]) -> usize {
    TYPE_AT + usize::from(frame[TYPE_AT - 1])
}

/// The message of `apiVersion` and `kind` in a canonical frame.
///
/// # Errors
/// The frame does not have the layout that [`frame_around`] writes.
pub fn type_meta_of(frame: &[u8]) -> Result<&[u8], WireError> {
    let object = value_at(frame, rest_at(frame))?;
    let unknown = value_at(frame, object.start as usize)?;
    let inside = unknown.start as usize + MAGIC.len();
    if !unknown.of(frame).starts_with(MAGIC) {
        return Err(WireError {
            offset: unknown.start as usize,
        });
    }
    Ok(value_at(frame, inside)?.of(frame))
}

fn value_at(bytes: &[u8], at: usize) -> Result<ByteSpan, WireError> {
    let offset = at;
    let start = u32::try_from(at).map_err(|_| WireError { offset })?;
    let end = u32::try_from(bytes.len()).map_err(|_| WireError { offset })?;
    let field = WireFields::within(bytes, ByteSpan { start, end })
        .next()
        .ok_or(WireError { offset })??;
    field.bytes().ok_or(WireError { offset })
}

/// A raw object with another resource version, and where the version's digits are in it.
///
/// # Errors
/// The bytes are not an object with metadata.
pub fn at_version(raw: &[u8], version: ResourceVersion) -> Result<(Vec<u8>, ByteSpan), WireError> {
    let digits = version.to_string();
    let mut metadata = None;
    for field in WireFields::new(raw) {
        let field = field?;
        if field.number == METADATA {
            metadata = Some((field.span, field.bytes().ok_or(WireError { offset: 0 })?));
            break;
        }
    }
    let (field, value) = metadata.ok_or(WireError { offset: raw.len() })?;
    let mut old = None;
    for inner in WireFields::within(raw, value) {
        let inner = inner?;
        if inner.number == RESOURCE_VERSION {
            old = Some(inner.span);
        }
    }
    // Upstream always writes the version; the scanner refuses an object without one.
    let old = old.ok_or(WireError {
        offset: value.start as usize,
    })?;
    let (before, after) = (
        &raw[value.start as usize..old.start as usize],
        &raw[old.end as usize..value.end as usize],
    );
    let new_len = before.len() + field_len(digits.len()) + after.len();
    let mut out = Vec::with_capacity(raw.len() + 24);
    out.extend_from_slice(&raw[..field.start as usize]);
    put_head(&mut out, METADATA, new_len);
    out.extend_from_slice(before);
    put_bytes(&mut out, RESOURCE_VERSION, digits.as_bytes());
    let offset = out.len();
    let span = (|| {
        Some(ByteSpan {
            start: u32::try_from(offset - digits.len()).ok()?,
            end: u32::try_from(offset).ok()?,
        })
    })();
    out.extend_from_slice(after);
    out.extend_from_slice(&raw[field.end as usize..]);
    Ok((out, span.ok_or(WireError { offset })?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str) -> Vec<u8> {
        let mut metadata = Vec::new();
        put_bytes(&mut metadata, 1, b"name");
        put_bytes(&mut metadata, RESOURCE_VERSION, version.as_bytes());
        put_bytes(&mut metadata, 11, b"label");
        let mut raw = Vec::new();
        put_bytes(&mut raw, METADATA, &metadata);
        put_bytes(&mut raw, 2, &[7; 200]);
        raw
    }

    #[test]
    fn a_frame_is_laid_out_as_upstream_does_it() {
        // The example of docs/PROTOCOL.md §12, with a smaller object.
        let meta = type_meta("v1", "ConfigMap");
        let (frame, start) = frame_around("ADDED", &meta, b"raw");
        let expected = b"\0\0\0\x29\x0a\x05ADDED\x12\x20\x0a\x1ek8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x03raw\x1a\0\"\0";
        assert_eq!(frame, expected);
        assert_eq!(&frame[start..start + 3], b"raw");
        assert_eq!(type_meta_of(&frame), Ok(&*meta));
    }

    #[test]
    fn a_version_may_grow_over_the_length_of_a_length() {
        for version in ["9", "99999", "18446744073709551615"] {
            let (raw, span) =
                at_version(&object("1"), ResourceVersion(version.parse().unwrap())).unwrap();
            assert_eq!(raw, object(version));
            assert_eq!(span.of(&raw), version.as_bytes());
        }
        assert!(at_version(b"", ResourceVersion(1)).is_err());
        assert!(at_version(b"\x0a\x00", ResourceVersion(1)).is_err());
    }

    #[test]
    fn bytes_that_are_not_a_frame_have_no_type_meta() {
        let (frame, _) = frame_around("ADDED", &type_meta("v1", "Pod"), b"raw");
        for len in 7..30 {
            assert!(type_meta_of(&frame[..len]).is_err(), "{len}");
        }
    }
}
