//! Kubernetes' protobuf: watch frames, objects, lists and statuses (docs/PROTOCOL.md §4.11, §5.8). Knows the numbers of the
//! few fields that the gateway reads, and skips all others.
//!
//! If a scalar field occurs twice, the last one counts. Messages that occur twice, which the API server never writes, are
//! read one after the other into the same parts. The only recursion is along the paths of a field table.

mod envelope;
mod list;
mod object;
mod status;

pub use envelope::{is_canonical_frame, scan_frame, scan_protobuf_event};
pub use list::scan_protobuf_list;
pub use object::scan_protobuf_object;
pub use status::scan_protobuf_status;

use crate::resource::wire::{MAGIC, WireField, WireFields, WireValue};
use crate::resource::{ByteSpan, ResourceVersion};

use super::json::{ScanError, span};

/// Positions of the parts of a `runtime.Unknown`, which wraps every object.
struct Unknown {
    type_meta: ByteSpan,
    raw: ByteSpan,
}

impl Unknown {
    /// Reads the magic and the message after it; together they are `whole`.
    fn read(bytes: &[u8], whole: ByteSpan) -> Result<Self, ScanError> {
        let Some(message) = after_magic(bytes, whole) else {
            return expected("an object in protobuf", whole.start);
        };
        let (mut type_meta, mut raw) = (ByteSpan::default(), None);
        for field in WireFields::within(bytes, message) {
            let field = field?;
            match field.number {
                1 => type_meta = bytes_of(&field, "an object's type")?,
                2 => raw = Some(bytes_of(&field, "an object's bytes")?),
                3 if !bytes_of(&field, "a content encoding")?.of(bytes).is_empty() => {
                    return expected("an object that is not compressed", field.span.start);
                }
                4 if !is_protobuf(bytes_of(&field, "a content type")?.of(bytes)) => {
                    return expected("an object in protobuf", field.span.start);
                }
                _ => {}
            }
        }
        let raw = raw.ok_or(ScanError::Missing {
            what: "raw",
            offset: whole.end as usize,
        })?;
        Ok(Self { type_meta, raw })
    }

    /// Reads a whole response body.
    fn read_body(bytes: &[u8]) -> Result<Self, ScanError> {
        Self::read(bytes, span(0, bytes.len())?)
    }

    /// `apiVersion` and `kind`.
    fn types<'a>(&self, bytes: &'a [u8]) -> Result<(&'a str, &'a str), ScanError> {
        entry(bytes, self.type_meta)
    }
}

/// Position of the bytes after the magic; `None` if `whole` does not begin with it.
fn after_magic(bytes: &[u8], whole: ByteSpan) -> Option<ByteSpan> {
    const MAGIC_LEN: u32 = 4;
    const { assert!(MAGIC.len() == MAGIC_LEN as usize) };
    whole.of(bytes).starts_with(MAGIC).then_some(ByteSpan {
        start: whole.start + MAGIC_LEN,
        end: whole.end,
    })
}

/// Checks a content type. The API server leaves it empty.
fn is_protobuf(content_type: &[u8]) -> bool {
    content_type.is_empty()
        || content_type == crate::resource::Encoding::Protobuf.media_type().as_bytes()
}

/// Reads a message of two strings, numbers 1 and 2: a map entry, or an object's type.
fn entry(bytes: &[u8], message: ByteSpan) -> Result<(&str, &str), ScanError> {
    let mut pair = ("", "");
    for field in WireFields::within(bytes, message) {
        let field = field?;
        match field.number {
            1 => pair.0 = text(bytes, &field)?,
            2 => pair.1 = text(bytes, &field)?,
            _ => {}
        }
    }
    Ok(pair)
}

fn text<'a>(bytes: &'a [u8], field: &WireField) -> Result<&'a str, ScanError> {
    let at = bytes_of(field, "a string")?;
    std::str::from_utf8(at.of(bytes)).map_err(|error| ScanError::Utf8 {
        offset: at.start as usize + error.valid_up_to(),
    })
}

fn bytes_of(field: &WireField, what: &'static str) -> Result<ByteSpan, ScanError> {
    match field.bytes() {
        Some(at) => Ok(at),
        None => expected(what, field.span.start),
    }
}

/// Reads an integer. All integers that are read here are signed; negative ones occupy all 64 bits.
fn integer(field: &WireField, what: &'static str) -> Result<i64, ScanError> {
    match field.value {
        WireValue::Varint(value) => Ok(value.cast_signed()),
        WireValue::Bytes(_) | WireValue::Fixed => expected(what, field.span.start),
    }
}

/// Reads a resource version. Returns its number and the position of its digits.
fn version(bytes: &[u8], field: &WireField) -> Result<(ResourceVersion, ByteSpan), ScanError> {
    let at = bytes_of(field, "a resource version")?;
    let version = text(bytes, field)?
        .parse()
        .map_err(|source| ScanError::Version {
            offset: at.start as usize,
            source,
        })?;
    Ok((version, at))
}

const fn expected<T>(what: &'static str, offset: u32) -> Result<T, ScanError> {
    Err(ScanError::Expected {
        what,
        offset: offset as usize,
    })
}

#[cfg(test)]
mod tests;
