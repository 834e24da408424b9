//! One line of the Prometheus text format.

use std::borrow::Cow;

/// A line is neither a sample, a comment nor empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSample {
    #[error("not UTF-8")]
    Encoding,
    #[error("no name of a metric")]
    Name,
    #[error("labels are not of the form {{name=\"value\"}}")]
    Labels,
    #[error("no number after the name")]
    Value,
}

/// A sample of a metric.
#[derive(Debug, PartialEq)]
pub(super) struct SeriesSample<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(super) value: f64,
}

impl SeriesSample<'_> {
    /// The value of a label; one that is absent is the same as an empty one.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| &**value)
    }
}

/// Reads a line; `None` for an empty one and for comments. A timestamp or an exemplar behind the value is ignored.
pub(super) fn sample(line: &[u8]) -> Result<Option<SeriesSample<'_>>, InvalidSample> {
    let line = std::str::from_utf8(line).map_err(|_| InvalidSample::Encoding)?;
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (name, rest) = identifier(line).ok_or(InvalidSample::Name)?;
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest).ok_or(InvalidSample::Labels)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next();
    let value = value.and_then(|value| value.parse().ok());
    Ok(Some(SeriesSample {
        name,
        labels,
        value: value.ok_or(InvalidSample::Value)?,
    }))
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let is_name = end > 0 && !text.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| text.split_at(end))
}

/// What one label, or all of them, leave of a line.
type Parsed<'a, T> = Option<(T, &'a str)>;

/// The labels up to the closing brace, after which the rest begins.
fn labels(mut text: &str) -> Parsed<'_, Vec<(&str, Cow<'_, str>)>> {
    let mut found = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, rest) = identifier(text)?;
        let rest = rest.trim_start().strip_prefix('=')?;
        let rest = rest.trim_start().strip_prefix('"')?;
        let (value, rest) = quoted(rest)?;
        found.push((name, value));
        let rest = rest.trim_start();
        text = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// A label's value up to the closing quote. The format has three escapes; another backslash stands for itself.
fn quoted(text: &str) -> Parsed<'_, Cow<'_, str>> {
    let end = text.find(['"', '\\'])?;
    if text[end..].starts_with('"') {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((Cow::Owned(value), &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('"' | '\\') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, name: &str, value: f64, labels: &[(&str, &str)]) {
        let sample = sample(line.as_bytes()).unwrap().unwrap();
        assert_eq!((sample.name, sample.value), (name, value));
        for (label, value) in labels {
            assert_eq!(sample.label(label), *value, "{label}");
        }
    }

    #[test]
    fn samples_are_read_with_labels_and_escapes() {
        check("a 1", "a", 1.0, &[("x", "")]);
        check("a{} 1.5e+03 1795941677000", "a", 1_500.0, &[]);
        check(r#"a:b_c{x="1",y="",} -2"#, "a:b_c", -2.0, &[("x", "1")]);
        check(r#"a { x = "1" , y="2" } 3"#, "a", 3.0, &[("y", "2")]);
        check(
            r#"a{x="q\"b\\n\n\d}, 7"} +Inf"#,
            "a",
            f64::INFINITY,
            &[("x", "q\"b\\n\n\\d}, 7")],
        );
        check(r#"a{x="ä"} 1 # {trace="1"} 2"#, "a", 1.0, &[("x", "ä")]);
        let not_a_number = sample(b"a NaN").unwrap().unwrap();
        assert!(not_a_number.value.is_nan());
        for line in ["", "  ", "# HELP a b", "#"] {
            assert_eq!(sample(line.as_bytes()), Ok(None), "{line}");
        }
    }

    #[test]
    fn what_is_no_sample_is_named() {
        for (line, error) in [
            (&b"\xff\xfe 1"[..], InvalidSample::Encoding),
            (b"1a 1", InvalidSample::Name),
            (b"{x=\"1\"} 1", InvalidSample::Name),
            (b"a{x=\"1\" 1", InvalidSample::Labels),
            (b"a{x=\"1", InvalidSample::Labels),
            (b"a{x=\"1\\", InvalidSample::Labels),
            (b"a{x=1} 1", InvalidSample::Labels),
            (b"a{x=\"1\"y=\"2\"} 1", InvalidSample::Labels),
            (b"a{", InvalidSample::Labels),
            (b"a", InvalidSample::Value),
            (b"a x", InvalidSample::Value),
            (b"<html>", InvalidSample::Name),
        ] {
            assert_eq!(
                sample(line),
                Err(error),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }
}
