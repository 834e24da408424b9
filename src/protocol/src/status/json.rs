//! JSON as Go writes it: `<`, `>`, `&`, U+2028 and U+2029 are escaped.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Compact JSON of a value that cannot fail to serialize (string keys, plain numbers), without a final newline.
#[must_use]
pub fn go_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let done = value.serialize(&mut Serializer::with_formatter(&mut out, Escaping));
    debug_assert!(
        done.is_ok(),
        "serializing to memory fails only for map keys that are not strings"
    );
    out
}

/// serde_json's compact form with Go's additional escapes.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let bytes = text.as_bytes();
        let mut written = 0;
        for at in escaped(bytes) {
            out.write_all(&bytes[written..at])?;
            written = at;
            if let Some(c) = text[at..].chars().next() {
                write!(out, "\\u{:04x}", u32::from(c))?;
                written += c.len_utf8();
            }
        }
        out.write_all(&bytes[written..])
    }
}

/// The positions of the characters to escape, in order. Searches bytes, not characters: texts may be long, and the tests' API
/// server serializes all its objects with this in debug builds.
fn escaped(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut marks = memchr::memchr3_iter(b'<', b'>', b'&', bytes).peekable();
    let mut separators = memchr::memchr_iter(0xE2, bytes)
        .filter(|&at| matches!(bytes[at..], [0xE2, 0x80, 0xA8 | 0xA9, ..]))
        .peekable();
    std::iter::from_fn(move || match (marks.peek(), separators.peek()) {
        (Some(mark), Some(separator)) if separator < mark => separators.next(),
        (None, _) => separators.next(),
        (Some(_), _) => marks.next(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::go_json;

    proptest! {
        #[test]
        fn every_text_is_escaped_as_one_character_after_another_is(
            text in "[<>&\u{2027}-\u{202a}a\"é\u{10000}]{0,40}",
        ) {
            let one_by_one: Vec<u8> = text
                .chars()
                .flat_map(|c| match c {
                    '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                        format!("\\u{:04x}", u32::from(c)).into_bytes()
                    }
                    '"' => b"\\\"".to_vec(),
                    _ => c.to_string().into_bytes(),
                })
                .collect();
            prop_assert_eq!(go_json(&text), [b"\"", &*one_by_one, b"\""].concat());
        }
    }
}
