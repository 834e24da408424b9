//! Lines in the width of the terminal: wrapped between items, cut, or dimmed.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::words::{fit, width};

/// The items in as many lines as they need, divided by `·`.
pub(super) fn wrapped(items: &[String], columns: usize, indent: &str) -> Vec<Line<'static>> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for item in items {
        if !line.is_empty() && width(&line) + 3 + width(item) > columns {
            lines.push(Line::raw(std::mem::take(&mut line)));
        }
        line.push_str(if line.is_empty() { indent } else { " · " });
        line.push_str(item);
    }
    lines.push(Line::raw(line));
    lines
}

/// The line in at most so many columns. A longer one ends with an ellipsis.
pub(super) fn cut(line: Line<'static>, columns: usize) -> Line<'static> {
    if line.width() <= columns {
        return line;
    }
    let mut room = columns;
    let mut spans = Vec::new();
    for span in line.spans {
        let needed = span.width();
        if needed >= room {
            // Something follows, or this span alone is too long.
            spans.push(Span::styled(
                fit(&format!("{}…", span.content), room),
                span.style,
            ));
            break;
        }
        room -= needed;
        spans.push(span);
    }
    Line { spans, ..line }
}

/// The line without its colours, darker than others.
pub(super) fn dimmed(mut line: Line<'static>) -> Line<'static> {
    line.style = Style::new().add_modifier(Modifier::DIM);
    for span in &mut line.spans {
        span.style = Style::new();
    }
    line
}
