//! A cursor that walks through JSON bytes by their structure. It builds no tree, and validates only what is read.

use std::borrow::Cow;

use crate::resource::wire::WireError;
use crate::resource::{ByteSpan, InvalidResourceVersion, ResourceVersion};

use super::blocks::{BLOCK_LEN, BlockMasks, Carry, first_in_string};

/// Deepest nesting of an object's brackets. This is the limit of Go's JSON decoder, and therefore of the objects that the
/// API server stores. The depth counts from the object's own brace, wherever the object is.
pub const DEPTH_MAX: usize = 10_000;

/// Why bytes are not the JSON or protobuf that was expected. Offsets count from the start of the scanned bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Something else was found, or the bytes end.
    #[error("expected {what} at offset {offset}")]
    Expected {
        /// What belongs there, in the words of the error.
        what: &'static str,
        /// In bytes from the start of the scanned text.
        offset: usize,
    },
    /// The object ended without a field it must have.
    #[error("expected {what} before the end of its object at offset {offset}")]
    Missing {
        /// Path of the missing field.
        what: &'static str,
        /// Offset of the end of the object that lacks it.
        offset: usize,
    },
    /// More nested brackets than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} at offset {offset}")]
    TooDeep {
        /// Offset of the bracket that exceeds the limit.
        offset: usize,
    },
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8 at offset {offset}")]
    Utf8 {
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// A resource version that is not an unsigned decimal number.
    #[error("unusable resource version at offset {offset}")]
    Version {
        /// First byte of the digits.
        offset: usize,
        /// What is wrong with it.
        #[source]
        source: InvalidResourceVersion,
    },
    /// The bytes are not a protobuf message.
    #[error("malformed protobuf")]
    Wire(#[from] WireError),
    /// More bytes than a [`ByteSpan`] can address.
    #[error("longer than 4 GiB")]
    TooLong,
}

/// A string as it is written between its quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonText<'a> {
    pub(super) raw: &'a str,
    /// Offset of the first byte after the opening quote.
    pub(super) start: usize,
    escaped: bool,
}

impl<'a> JsonText<'a> {
    /// The string's value. Only strings with escapes need an allocation.
    pub(super) fn decode(self) -> Result<Cow<'a, str>, ScanError> {
        if !self.escaped {
            return Ok(Cow::Borrowed(self.raw));
        }
        serde_json::from_str(&format!("\"{}\"", self.raw))
            .map(Cow::Owned)
            .map_err(|_| ScanError::Expected {
                what: "a string with valid escapes",
                offset: self.start,
            })
    }
}

/// A position in JSON text. All methods leave it after what they have read.
#[derive(Debug)]
pub(super) struct Json<'a> {
    text: &'a str,
    at: usize,
    /// Number of open brackets that [`Self::object`] and [`Self::array`] have read.
    depth: usize,
}

impl<'a> Json<'a> {
    /// Checks length and encoding once, so that no later step has to.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, ScanError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(ScanError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| ScanError::Utf8 {
            offset: error.valid_up_to(),
        })?;
        Ok(Self {
            text,
            at: 0,
            depth: 0,
        })
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Skips whitespace and returns the next byte without consuming it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// The bytes of a span of this text.
    pub(super) fn bytes_of(&self, span: ByteSpan) -> &'a [u8] {
        &self.text.as_bytes()[span.start as usize..span.end as usize]
    }

    pub(super) const fn expected<T>(&self, what: &'static str) -> Result<T, ScanError> {
        Err(ScanError::Expected {
            what,
            offset: self.at,
        })
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<(), ScanError> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        self.expected(what)
    }

    /// Reads a value whose depth counts from itself, although it is nested in other values.
    pub(super) fn with_own_depth<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ScanError>,
    ) -> Result<T, ScanError> {
        let outer_depth = std::mem::take(&mut self.depth);
        let value = read(self);
        self.depth = outer_depth;
        value
    }

    fn open(&mut self, bracket: u8, what: &'static str) -> Result<(), ScanError> {
        self.take(bracket, what)?;
        if self.depth == DEPTH_MAX {
            let offset = self.at - 1;
            return Err(ScanError::TooDeep { offset });
        }
        self.depth += 1;
        Ok(())
    }

    /// Reads the closing bracket at the current position.
    const fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Checks that only whitespace follows.
    pub(super) fn end(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.expected("nothing more"),
        }
    }

    /// Visits the keys of an object; `visit` must read or skip each value.
    pub(super) fn object(
        &mut self,
        what: &'static str,
        mut visit: impl FnMut(&mut Self, JsonText<'a>) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.open(b'{', what)?;
        if self.peek() == Some(b'}') {
            self.close();
            return Ok(());
        }
        loop {
            let key = self.string("a key")?;
            self.take(b':', "a colon")?;
            visit(self, key)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.close();
                    return Ok(());
                }
                _ => return self.expected("a comma or the end of an object"),
            }
        }
    }

    /// Visits the values of an array; `visit` must read or skip each.
    pub(super) fn array(
        &mut self,
        what: &'static str,
        mut visit: impl FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.open(b'[', what)?;
        if self.peek() == Some(b']') {
            self.close();
            return Ok(());
        }
        loop {
            visit(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.close();
                    return Ok(());
                }
                _ => return self.expected("a comma or the end of an array"),
            }
        }
    }

    pub(super) fn string(&mut self, what: &'static str) -> Result<JsonText<'a>, ScanError> {
        self.take(b'"', what)?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            // Most strings are short: looking at 16 bytes first is cheaper than calling memchr.
            let near = rest.first_chunk().and_then(first_in_string);
            let Some(found) = near.or_else(|| memchr::memchr2(b'"', b'\\', rest)) else {
                self.at = bytes.len();
                return self.expected("the end of a string");
            };
            self.at += found + 1;
            if rest[found] == b'"' {
                // Both ends are next to a quote, which is a single byte, so they are character boundaries.
                let raw = &self.text[start..self.at - 1];
                return Ok(JsonText {
                    raw,
                    start,
                    escaped,
                });
            }
            escaped = true;
            self.at += 1;
        }
    }

    /// Reads a string's value; `null` counts as absent.
    pub(super) fn string_or_null(
        &mut self,
        what: &'static str,
    ) -> Result<Option<Cow<'a, str>>, ScanError> {
        if self.peek() == Some(b'n') {
            return match self.word()? {
                "null" => Ok(None),
                _ => self.expected(what),
            };
        }
        self.string(what)?.decode().map(Some)
    }

    /// Reads a string by its value, or a number or boolean by its text; `null`, objects and arrays count as absent.
    pub(super) fn scalar(&mut self) -> Result<Option<Cow<'a, str>>, ScanError> {
        match self.peek() {
            Some(b'"') => self.string("a string")?.decode().map(Some),
            Some(b'{' | b'[') => self.skip().map(|_| None),
            _ => Ok(match self.word()? {
                "null" => None,
                word => Some(word.into()),
            }),
        }
    }

    /// Reads a resource version. Returns its number and the position of its digits.
    pub(super) fn version(
        &mut self,
        what: &'static str,
    ) -> Result<(ResourceVersion, ByteSpan), ScanError> {
        let text = self.string(what)?;
        let version = text.raw.parse().map_err(|source| ScanError::Version {
            offset: text.start,
            source,
        })?;
        Ok((version, span(text.start, text.start + text.raw.len())?))
    }

    /// Skips any value and returns its position.
    pub(super) fn skip(&mut self) -> Result<ByteSpan, ScanError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => self.string("a string").map(drop)?,
            Some(b'{' | b'[') => self.skip_container()?,
            _ => self.word().map(drop)?,
        }
        span(start, self.at)
    }

    /// Reads a number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<&'a str, ScanError> {
        let start = self.at;
        let rest = &self.text[start..];
        let len = rest
            .bytes()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-' | b'+' | b'.' | b'E'))
            .unwrap_or(rest.len());
        let word = &rest[..len];
        if matches!(word, "true" | "false" | "null")
            || word
                .bytes()
                .next()
                .is_some_and(|first| matches!(first, b'-' | b'0'..=b'9'))
        {
            self.at += len;
            return Ok(word);
        }
        self.expected("a value")
    }

    /// Skips an object or array block by block. Looks only at brackets and strings; what is between them is not validated.
    fn skip_container(&mut self) -> Result<(), ScanError> {
        let bytes = self.text.as_bytes();
        let mut open = Brackets::with_room(DEPTH_MAX - self.depth);
        let mut carry = Carry::default();
        while let Some(rest) = bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            let block = match rest.first_chunk() {
                Some(block) => BlockMasks::of(block),
                None => BlockMasks::of(&padded(rest)),
            };
            let outside = block.outside(&mut carry);
            let mut brackets = outside.brackets;
            while brackets != 0 {
                let at = brackets.trailing_zeros();
                brackets &= brackets - 1;
                let bracket = rest[at as usize];
                let offset = self.at + at as usize;
                if matches!(bracket, b'{' | b'[') {
                    open.push(bracket, offset)?;
                    continue;
                }
                if !open.pop(bracket) {
                    self.at = offset;
                    return self.expected("the other kind of closing bracket");
                }
                if open.count == 0 {
                    self.no_backslash(outside.backslashes, at)?;
                    self.at = offset + 1;
                    return Ok(());
                }
            }
            self.no_backslash(outside.backslashes, u64::BITS)?;
            self.at = (self.at + BLOCK_LEN).min(bytes.len());
        }
        self.expected("a closing bracket")
    }

    /// Refuses a backslash outside of strings among the next `before` bytes: it would hide the quote after it.
    fn no_backslash(&mut self, backslashes: u64, before: u32) -> Result<(), ScanError> {
        let at = backslashes.trailing_zeros();
        if at >= before {
            return Ok(());
        }
        self.at += at as usize;
        self.expected("no backslash outside of strings")
    }
}

/// The last bytes of a text, padded with spaces to a block.
fn padded(rest: &[u8]) -> [u8; BLOCK_LEN] {
    let mut block = [b' '; BLOCK_LEN];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// The open brackets, one bit each: set for `{`. `near` holds the innermost ones, the last in its lowest bit. `far` holds a
/// word for each 64 before them, so objects of usual depth need no allocation.
struct Brackets {
    near: u64,
    far: Vec<u64>,
    count: usize,
    count_max: usize,
}

impl Brackets {
    const fn with_room(count_max: usize) -> Self {
        Self {
            near: 0,
            far: Vec::new(),
            count: 0,
            count_max,
        }
    }

    #[inline]
    fn push(&mut self, bracket: u8, offset: usize) -> Result<(), ScanError> {
        if self.count == self.count_max {
            return Err(ScanError::TooDeep { offset });
        }
        if self.count.is_multiple_of(64) && self.count > 0 {
            self.far.push(self.near);
        }
        self.near = self.near << 1 | u64::from(bracket == b'{');
        self.count += 1;
        Ok(())
    }

    /// Whether `bracket` closes the bracket that was opened last. The caller ensures that at least one is open.
    #[inline]
    fn pop(&mut self, bracket: u8) -> bool {
        self.count -= 1;
        let is_object = self.near & 1 == 1;
        self.near >>= 1;
        if self.count.is_multiple_of(64) {
            self.near = self.far.pop().unwrap_or_default();
        }
        is_object == (bracket == b'}')
    }
}

/// Builds a span. Fails if the offsets do not fit into 32 bits.
pub(super) fn span(start: usize, end: usize) -> Result<ByteSpan, ScanError> {
    match (u32::try_from(start), u32::try_from(end)) {
        (Ok(start), Ok(end)) => Ok(ByteSpan { start, end }),
        _ => Err(ScanError::TooLong),
    }
}
