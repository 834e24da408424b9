//! Where the figures go: drawn over themselves in a terminal, one line a second elsewhere.

use std::io::{self, Write};

use super::figures::IntervalFigures;

/// What is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenKind {
    /// A terminal, in which lines can be drawn over.
    Terminal,
    /// A file or a pipe.
    Plain,
}

/// Writes figures.
pub(super) struct Screen<W> {
    out: W,
    surface: ScreenKind,
    /// Lines of the last table, which the next one covers.
    drawn: usize,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, surface: ScreenKind) -> Self {
        Self {
            out,
            surface,
            drawn: 0,
        }
    }

    /// Shows the figures of the last second.
    pub(super) fn show(&mut self, figures: &IntervalFigures) -> io::Result<()> {
        match self.surface {
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

    /// Writes a line that stays.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::CounterSample;
    use super::*;

    fn shown_twice(surface: ScreenKind) -> String {
        let mut screen = Screen::new(Vec::new(), surface);
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
