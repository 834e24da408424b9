//! JSON as Go writes it: `<`, `>`, `&` and the two line separators of JavaScript escaped.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Compact JSON of a value that always serializes (string keys, plain numbers), without a final newline.
#[must_use]
pub fn go_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let done = value.serialize(&mut Serializer::with_formatter(&mut out, Escaping));
    debug_assert!(
        done.is_ok(),
        "writing to memory fails only for odd map keys"
    );
    out
}

/// serde_json's compact form, and what Go escapes beyond it.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            out.write_all(&rest.as_bytes()[..at])?;
            let mut tail = rest[at..].chars();
            if let Some(c) = tail.next() {
                write!(out, "\\u{:04x}", u32::from(c))?;
            }
            rest = tail.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}
