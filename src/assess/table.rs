//! The assessment as text.

use std::fmt::Write as _;

use super::columns::FigureBasis;
use super::document::AssessDocument;
use super::summary::{origin, totals};

/// More rows do not help a reader; the page and the JSON document have all.
const ROWS_MAX: usize = 60;

/// The table, with what it is made from above and the totals below.
pub(super) fn table(document: &AssessDocument) -> String {
    // The last column explains the one before it, and is as long as a line: only the page has it.
    let columns = &document.columns[..document.columns.len() - 1];
    let titles = columns.iter().map(|column| match column.basis {
        FigureBasis::Judged => column.title.to_owned(),
        FigureBasis::Measured | FigureBasis::Calculated | FigureBasis::Bound => {
            format!("{} ({})", column.title, &column.basis.as_str()[..1])
        }
    });
    let mut lines: Vec<Vec<String>> = vec![titles.collect()];
    let rows = document.rows.iter().take(ROWS_MAX);
    lines.extend(rows.map(|row| {
        let mut cells = row.cells();
        cells.truncate(columns.len());
        cells
    }));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| width(at).unwrap_or(0))
        .collect();
    let mut text = format!("{}\n\n", origin(document));
    for line in &lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let _ = match is_number {
                true => write!(row, "{cell:>width$}  "),
                false => write!(row, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    if let Some(more) = document.rows.len().checked_sub(ROWS_MAX + 1) {
        let _ = writeln!(text, "… {} more rows: --html or --json has them", more + 1);
    }
    let _ = writeln!(text, "\n(m) measured, (c) calculated, (b) a bound\n");
    for (name, value) in totals(document) {
        let _ = writeln!(text, "{name}: {value}");
    }
    for note in &document.notes {
        let _ = writeln!(text, "Note: {note}");
    }
    text
}
