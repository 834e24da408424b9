//! Tables in the width of the terminal.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::model::NO_NAME;
use super::words::{fit, width};

/// Terminals that are narrower have no room for all columns of a table of clients.
const TABLE_WIDTH_MIN: usize = 64;

/// A table of clients. A narrow one has neither addresses nor resources, and names a client by its user or else by its user agent.
pub(super) fn client_table(
    titles: [&str; 6],
    rows: &[[String; 6]],
    columns: usize,
) -> Vec<Line<'static>> {
    if columns >= TABLE_WIDTH_MIN {
        return table(titles, rows, columns);
    }
    let narrow = |[user, agent, _, _, one, other]: &[String; 6]| {
        let name = if user == NO_NAME { agent } else { user };
        [name, one, other].map(Clone::clone)
    };
    let rows: Vec<_> = rows.iter().map(narrow).collect();
    table(["client", titles[4], titles[5]], &rows, columns)
}

/// A table whose columns share the width: each gets what it needs, and the widest ones give.
pub(super) fn table<const N: usize>(
    titles: [&str; N],
    rows: &[[String; N]],
    columns: usize,
) -> Vec<Line<'static>> {
    let mut widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| width(&row[at]));
        cells.chain([width(titles[at])]).max().unwrap_or(0)
    });
    let gaps = 2 * N.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 4 => *widest -= 1,
            Some(_) | None => break,
        }
    }
    let line = |cells: [&str; N]| {
        let fitted: Vec<_> = cells
            .iter()
            .zip(widths)
            .map(|(cell, columns)| fit(cell, columns))
            .collect();
        fitted.join("  ")
    };
    let head = Line::styled(
        line(titles),
        Style::new().add_modifier(Modifier::UNDERLINED),
    );
    let body = rows
        .iter()
        .map(|row| Line::raw(line(std::array::from_fn(|at| row[at].as_str()))));
    std::iter::once(head).chain(body).collect()
}
