//! The position of a part in the bytes that hold it.

/// A range of an object's bytes, `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl ByteSpan {
    /// The spanned bytes of the buffer that the span was measured in. Panics if `bytes` is shorter.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}
