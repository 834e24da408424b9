//! The protobuf wire format, as far as Kubernetes uses it: reading fields one by one, writing nested messages.
//!
//! This module does not know the meaning of fields. It refuses groups, which no Kubernetes message has.

use super::ByteSpan;

/// The bytes that precede a Kubernetes object in protobuf.
pub const MAGIC: &[u8] = b"k8s\x00";

/// An error in bytes that should be a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid protobuf field at byte {offset}")]
pub struct WireError {
    /// Where the invalid field starts, from the start of the bytes that were read.
    pub offset: usize,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue {
    /// An integer or a boolean.
    Varint(u64),
    /// The span of a string, a message or bytes, without the length before it.
    Bytes(ByteSpan),
    /// Four or eight bytes, which the gateway only skips.
    Fixed,
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireField {
    /// The field's number in its message.
    pub number: u32,
    /// The whole field, tag included.
    pub span: ByteSpan,
    /// The value, or its span.
    pub value: WireValue,
}

impl WireField {
    /// The span of the value, if it is length-delimited.
    #[must_use]
    pub const fn bytes(&self) -> Option<ByteSpan> {
        match self.value {
            WireValue::Bytes(span) => Some(span),
            WireValue::Varint(_) | WireValue::Fixed => None,
        }
    }
}

/// The fields of a message, in wire order. Their spans count from the start of the slice, even if the message starts later in it. The
/// iterator ends after the first error.
#[derive(Clone, Debug)]
pub struct WireFields<'a> {
    /// The bytes up to the end of the message.
    bytes: &'a [u8],
    /// Where the next field starts; never beyond the end of `bytes`.
    at: usize,
}

impl<'a> WireFields<'a> {
    /// The fields of a whole message.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The fields of the message at `span` of `bytes`.
    ///
    /// # Panics
    /// If the span ends beyond the bytes. The span of a field that was read from them does not.
    #[must_use]
    pub fn within(bytes: &'a [u8], span: ByteSpan) -> Self {
        Self {
            bytes: &bytes[..span.end as usize],
            at: span.start as usize,
        }
    }

    // Fast path: nearly all tags and most lengths have one byte.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let byte = *self.bytes.get(self.at)?;
        if byte < 0x80 {
            self.at += 1;
            return Some(byte.into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn field(&mut self) -> Option<WireField> {
        let start = u32::try_from(self.at).ok()?;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => self.skip(8).map(|_| WireValue::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                WireValue::Bytes(self.skip(len)?)
            }
            5 => self.skip(4).map(|_| WireValue::Fixed)?,
            _ => return None,
        };
        let end = u32::try_from(self.at).ok()?;
        let span = ByteSpan { start, end };
        Some(WireField {
            number,
            span,
            value,
        })
    }

    /// Skips `len` bytes; `None` if there are fewer.
    #[inline]
    fn skip(&mut self, len: usize) -> Option<ByteSpan> {
        let end = self.at.checked_add(len)?;
        self.bytes.get(self.at..end)?;
        let span = ByteSpan {
            start: u32::try_from(self.at).ok()?,
            end: u32::try_from(end).ok()?,
        };
        self.at = end;
        Some(span)
    }
}

impl Iterator for WireFields<'_> {
    type Item = Result<WireField, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let offset = self.at;
        let field = self.field().ok_or(WireError { offset });
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// Length of a varint, in bytes.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Length of a length-delimited field, in bytes: tag, length and value. The field's number must be below 16.
#[must_use]
pub const fn field_len(value_len: usize) -> usize {
    1 + varint_len(value_len as u64) + value_len
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends the tag and the length of a length-delimited field. The caller appends the value.
pub fn put_head(out: &mut Vec<u8>, number: u32, value_len: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, value_len as u64);
}

/// Appends a length-delimited field.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_head(out, number, value.len());
    out.extend_from_slice(value);
}

/// Appends an integer field.
pub fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_come_in_order_with_their_spans() {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, b"ab");
        put_integer(&mut message, 300, 7);
        message.extend_from_slice(&[0x1d, 1, 2, 3, 4]);
        let fields: Vec<_> = WireFields::new(&message).map(Result::unwrap).collect();
        assert_eq!(
            fields.iter().map(|f| f.number).collect::<Vec<_>>(),
            [1, 300, 3]
        );
        assert_eq!(fields[0].bytes().unwrap().of(&message), b"ab");
        assert_eq!(fields[1].value, WireValue::Varint(7));
        assert_eq!(fields[2].value, WireValue::Fixed);
        assert_eq!(fields[0].span.end, fields[1].span.start);
    }

    #[test]
    fn a_truncated_or_invalid_field_is_one_error() {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, b"abc");
        for len in 1..message.len() {
            let fields: Vec<_> = WireFields::new(&message[..len]).collect();
            assert_eq!(fields, [Err(WireError { offset: 0 })], "{len}");
        }
        for bad in [
            &[0x0b][..],
            &[0x07],
            &[0x00, 0x00],
            &[0x80; 11],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert!(WireFields::new(bad).any(|field| field.is_err()), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn varints_are_as_long_as_they_say(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            put_integer(&mut out, 1, value);
            let field = WireFields::new(&out[varint_len(value)..]).next();
            prop_assert_eq!(field.unwrap().unwrap().value, WireValue::Varint(value));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            for field in WireFields::new(&bytes).flatten() {
                prop_assert!(field.span.end as usize <= bytes.len());
            }
        }
    }
}
