//! Lines of a file that others wrote, each of bounded length.

use std::fmt;
use std::io::{self, BufRead, Read as _};

/// Longer than any line of a scrape, or of an audit log of the level `Metadata`.
pub(super) const LINE_LEN_MAX: usize = 1 << 20;

/// Reads lines, and counts them.
pub(super) struct LineReader<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileLine<'a> {
    Whole(&'a [u8]),
    /// The file ends within it, because it was cut off or is being written.
    Cut(&'a [u8]),
    /// Longer than [`LINE_LEN_MAX`].
    TooLong,
}

impl<R: BufRead> LineReader<R> {
    pub(super) const fn new(source: R) -> Self {
        Self {
            source,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The number of the line that was read last; the first one has 1.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<FileLine<'_>>> {
        self.line.clear();
        let bound = LINE_LEN_MAX as u64 + 1;
        let len = (&mut self.source)
            .take(bound)
            .read_until(b'\n', &mut self.line)?;
        if len == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            return Ok(Some(FileLine::Whole(&self.line)));
        }
        if len <= LINE_LEN_MAX {
            return Ok(Some(FileLine::Cut(&self.line)));
        }
        self.source.skip_until(b'\n')?;
        Ok(Some(FileLine::TooLong))
    }
}

/// Lines that were left out: how many, and why the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineProblems {
    count: u64,
    first: Option<(u64, String)>,
}

impl LineProblems {
    pub(super) fn note(&mut self, number: u64, reason: impl fmt::Display) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some((number, reason.to_string()));
        }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for LineProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((number, reason)) = &self.first else {
            return f.write_str("no line was left out");
        };
        match self.count {
            1 => write!(f, "1 line was left out: line {number}: {reason}"),
            count => write!(
                f,
                "{count} lines were left out, first line {number}: {reason}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_passed_over_and_a_cut_one_is_told_apart() {
        let long = "x".repeat(LINE_LEN_MAX + 10);
        let exact = "y".repeat(LINE_LEN_MAX);
        let text = format!("a\n\n{long}\n{exact}\nb");
        let mut lines = LineReader::new(text.as_bytes());
        assert_eq!(lines.read().unwrap(), Some(FileLine::Whole(b"a")));
        assert_eq!(lines.read().unwrap(), Some(FileLine::Whole(b"")));
        assert_eq!(lines.read().unwrap(), Some(FileLine::TooLong));
        let whole = FileLine::Whole(exact.as_bytes());
        assert_eq!(lines.read().unwrap(), Some(whole));
        assert_eq!(lines.read().unwrap(), Some(FileLine::Cut(b"b")));
        assert_eq!(lines.read().unwrap(), None);
        assert_eq!(lines.number(), 5);
        // Whatever was read, no more than a line is kept.
        assert!(lines.line.capacity() <= 2 * (LINE_LEN_MAX + 1));
    }

    #[test]
    fn left_out_lines_are_counted_and_the_first_is_named() {
        let mut problems = LineProblems::default();
        problems.note(3, "not JSON");
        assert_eq!(
            problems.to_string(),
            "1 line was left out: line 3: not JSON"
        );
        problems.note(9, "no verb");
        assert_eq!(
            problems.to_string(),
            "2 lines were left out, first line 3: not JSON"
        );
    }
}
