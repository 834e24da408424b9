//! Writes the figures: a table that is redrawn in place on a terminal, one line per second elsewhere.

use std::io::{self, Write};

use super::figures::IntervalFigures;

/// The kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenKind {
    /// A terminal, on which the table is redrawn in place.
    Terminal,
    /// A file or a pipe.
    Plain,
}

/// The output of the figures.
pub(super) struct Screen<W> {
    out: W,
    kind: ScreenKind,
    /// Number of lines of the last table, which the next one overwrites.
    drawn: usize,
    /// The current line is progress, which the next line overwrites.
    is_progress: bool,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, kind: ScreenKind) -> Self {
        Self {
            out,
            kind,
            drawn: 0,
            is_progress: false,
        }
    }

    /// Shows how far something has come that takes a while: a line that the next one overwrites. A file or a pipe does not get it.
    pub(super) fn progress(&mut self, line: &str) -> io::Result<()> {
        if self.kind == ScreenKind::Plain {
            return Ok(());
        }
        self.is_progress = true;
        write!(self.out, "\r\x1b[2K{line}")?;
        self.out.flush()
    }

    /// Shows the figures of the last second.
    pub(super) fn show(&mut self, figures: &IntervalFigures) -> io::Result<()> {
        match self.kind {
            ScreenKind::Plain => self.say(&figures.line()),
            ScreenKind::Terminal => {
                let table = figures.table();
                if self.drawn > 0 {
                    write!(self.out, "\x1b[{}A", self.drawn)?;
                }
                for line in &table {
                    writeln!(self.out, "\r\x1b[2K{line}")?;
                }
                self.drawn = table.len();
                self.out.flush()
            }
        }
    }

    /// Writes a line that is not overwritten.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        if std::mem::take(&mut self.is_progress) {
            write!(self.out, "\r\x1b[2K")?;
        }
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::CounterSample;
    use super::*;

    #[test]
    fn progress_is_overwritten_on_a_terminal_and_not_in_a_pipe() {
        for (kind, expected) in [
            (ScreenKind::Terminal, "\r\x1b[2K1 of 2\r\x1b[2Kdone\nmore\n"),
            (ScreenKind::Plain, "done\nmore\n"),
        ] {
            let mut screen = Screen::new(Vec::new(), kind);
            screen.progress("1 of 2").unwrap();
            screen.say("done").unwrap();
            screen.say("more").unwrap();
            assert_eq!(String::from_utf8(screen.out).unwrap(), expected);
        }
    }

    fn shown_twice(kind: ScreenKind) -> String {
        let mut screen = Screen::new(Vec::new(), kind);
        let counted = CounterSample::default();
        let figures = IntervalFigures::between(&counted, &counted);
        screen.show(&figures).unwrap();
        screen.show(&figures).unwrap();
        String::from_utf8(screen.out).unwrap()
    }

    #[test]
    fn a_terminal_is_drawn_over_and_a_pipe_is_not() {
        let terminal = shown_twice(ScreenKind::Terminal);
        assert_eq!(terminal.matches("\x1b[8A").count(), 1, "{terminal:?}");
        let plain = shown_twice(ScreenKind::Plain);
        assert!(!plain.contains('\x1b'));
        assert_eq!(plain.lines().count(), 2);
    }
}
