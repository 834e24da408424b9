//! Quoting of strings as Go's `%q` does, which the API server's messages use. Not for JSON.

use std::fmt::Write as _;

/// The text in double quotes, with unprintable characters escaped (Go's `strconv.Quote`).
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        escape(c, &mut out);
    }
    out.push('"');
    out
}

fn escape(c: char, out: &mut String) {
    let short = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        _ => "",
    };
    let code = u32::from(c);
    let written = if !short.is_empty() {
        out.write_str(short)
    } else if code < 0x20 || code == 0x7f {
        write!(out, "\\x{code:02x}")
    } else if printable(c) {
        out.write_char(c)
    } else if code < 0x1_0000 {
        write!(out, "\\u{code:04x}")
    } else {
        write!(out, "\\U{code:08x}")
    };
    debug_assert!(written.is_ok(), "writing to a String failed");
}

/// Rust and Go agree on which characters are printable, except for grapheme extenders and newer Unicode versions.
fn printable(c: char) -> bool {
    c.is_ascii() || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_go_quotes_it() {
        for (text, expected) in [
            ("a\"\\\n", r#""a\"\\\n""#),
            ("\0\x07\x7f\u{a0}é", r#""\x00\a\x7f\u00a0é""#),
            ("'\u{1f600}\u{e000}", "\"'\u{1f600}\\ue000\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
