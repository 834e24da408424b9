//! The values of single fields, and the errors where a field has another type.

use crate::decode::json::ScanError;
use crate::resource::wire::{WireField, WireFields, WireValue};
use crate::resource::{ByteSpan, ResourceVersion};

/// Reads a message of two strings, numbers 1 and 2: a map entry, or an object's type.
pub(super) fn entry(bytes: &[u8], message: ByteSpan) -> Result<(&str, &str), ScanError> {
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

pub(super) fn text<'a>(bytes: &'a [u8], field: &WireField) -> Result<&'a str, ScanError> {
    let at = bytes_of(field, "a string")?;
    std::str::from_utf8(at.of(bytes)).map_err(|error| ScanError::Utf8 {
        offset: at.start as usize + error.valid_up_to(),
    })
}

pub(super) fn bytes_of(field: &WireField, what: &'static str) -> Result<ByteSpan, ScanError> {
    match field.bytes() {
        Some(at) => Ok(at),
        None => expected(what, field.span.start),
    }
}

/// Reads an integer. All integers that are read here are signed; negative ones occupy all 64 bits.
pub(super) fn integer(field: &WireField, what: &'static str) -> Result<i64, ScanError> {
    match field.value {
        WireValue::Varint(value) => Ok(value.cast_signed()),
        WireValue::Bytes(_) | WireValue::Fixed => expected(what, field.span.start),
    }
}

/// Reads a resource version. Returns its number and the position of its digits.
pub(super) fn version(
    bytes: &[u8],
    field: &WireField,
) -> Result<(ResourceVersion, ByteSpan), ScanError> {
    let at = bytes_of(field, "a resource version")?;
    let version = text(bytes, field)?
        .parse()
        .map_err(|source| ScanError::Version {
            offset: at.start as usize,
            source,
        })?;
    Ok((version, at))
}

pub(super) const fn expected<T>(what: &'static str, offset: u32) -> Result<T, ScanError> {
    Err(ScanError::Expected {
        what,
        offset: offset as usize,
    })
}
