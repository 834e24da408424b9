//! `runtime.Unknown`, the message that wraps every object.

use crate::decode::json::{ScanError, span};
use crate::resource::wire::{MAGIC, WireFields};
use crate::resource::{ByteSpan, Encoding};

use super::fields::{bytes_of, entry, expected};

/// Positions of the parts of a `runtime.Unknown`, which wraps every object.
pub(super) struct Unknown {
    type_meta: ByteSpan,
    pub(super) raw: ByteSpan,
}

impl Unknown {
    /// Reads the magic and the message after it; together they are `whole`.
    pub(super) fn read(bytes: &[u8], whole: ByteSpan) -> Result<Self, ScanError> {
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
    pub(super) fn read_body(bytes: &[u8]) -> Result<Self, ScanError> {
        Self::read(bytes, span(0, bytes.len())?)
    }

    /// `apiVersion` and `kind`.
    pub(super) fn types<'a>(&self, bytes: &'a [u8]) -> Result<(&'a str, &'a str), ScanError> {
        entry(bytes, self.type_meta)
    }
}

/// Position of the bytes after the magic; `None` if `whole` does not begin with it.
pub(super) fn after_magic(bytes: &[u8], whole: ByteSpan) -> Option<ByteSpan> {
    const MAGIC_LEN: u32 = 4;
    const { assert!(MAGIC.len() == MAGIC_LEN as usize) };
    whole.of(bytes).starts_with(MAGIC).then_some(ByteSpan {
        start: whole.start + MAGIC_LEN,
        end: whole.end,
    })
}

/// Checks a content type. The API server leaves it empty.
fn is_protobuf(content_type: &[u8]) -> bool {
    content_type.is_empty() || content_type == Encoding::Protobuf.media_type().as_bytes()
}
