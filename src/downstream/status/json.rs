//! JSON as Go writes it: `<`, `>`, `&` and the two line separators of JavaScript escaped.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Compact JSON of a value that always serializes (structs of strings and numbers), without a final newline.
#[must_use]
pub fn go_json(value: &impl Serialize) -> Vec<u8> {
    written(value, CompactFormatter)
}

/// The same, indented by two spaces.
pub(super) fn go_json_indented(value: &impl Serialize) -> Vec<u8> {
    written(value, PrettyFormatter::new())
}

fn written(value: &impl Serialize, formatter: impl Formatter) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let done = value.serialize(&mut Serializer::with_formatter(
        &mut out,
        Escaping(formatter),
    ));
    debug_assert!(
        done.is_ok(),
        "writing to memory fails only for odd map keys"
    );
    out
}

/// Escapes what Go escapes and serde does not; leaves all else to the inner formatter.
struct Escaping<F>(F);

impl<F: Formatter> Formatter for Escaping<F> {
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

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}
