//! Tables in Markdown, which are also readable on a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::figure::Figure;
use super::number::{quantity, short};
use super::target::RATES_DIFFER;
use super::{Column, RunReport, ScenarioReport};

/// Stands for a missing figure.
const NONE: &str = "–";

const COLUMNS_MAX: usize = 6;

/// A table's row: a name and one cell per column.
pub type TableRow = (String, Vec<String>);

/// One scenario: its description, targets and remarks.
pub fn summary(played: &ScenarioReport) -> String {
    let mut text = format!("## {}\n\n{}\n", played.name, played.about.trim());
    if played.scale != 1.0 {
        let factor = short(played.scale);
        let _ = writeln!(
            text,
            "\nCounts and times × {factor}: only figures at scale 1 can be compared."
        );
    }
    let shown = figures(played)
        .into_iter()
        .filter(|row| played.show.contains(&row.0));
    let rows: Vec<TableRow> = shown.chain(ratios(played)).collect();
    if !rows.is_empty() {
        let (headings, rows) = without_empty_columns(&headings(played), &rows);
        text.push('\n');
        // Many runs are listed downwards: a table of two dozen columns fits no page.
        text.push_str(&if headings.len() > COLUMNS_MAX {
            transpose(&headings, &rows)
        } else {
            table("", &headings, &rows)
        });
    }
    if !played.targets.is_empty() {
        let headings = ["measured", "target", ""].map(str::to_owned);
        text.push('\n');
        text.push_str(&table("target", &headings, &targets(played)));
    }
    for run in &played.runs {
        for (kind, what) in remarks(run) {
            let _ = writeln!(text, "\n{kind} ({}): {what}", name(run));
        }
    }
    text
}

/// Drops the columns without a value in these rows.
pub fn without_empty_columns(
    headings: &[String],
    rows: &[TableRow],
) -> (Vec<String>, Vec<TableRow>) {
    let says = |at: &usize| rows.iter().any(|(_, cells)| cells[*at] != NONE);
    let kept: Vec<usize> = (0..headings.len()).filter(says).collect();
    let of = |cells: &[String]| kept.iter().map(|at| cells[*at].clone()).collect();
    (
        of(headings),
        rows.iter()
            .map(|(name, cells)| (name.clone(), of(cells)))
            .collect(),
    )
}

pub fn headings(played: &ScenarioReport) -> Vec<String> {
    played
        .columns()
        .map(|(run, column)| run.heading(column))
        .collect()
}

pub fn name(run: &RunReport) -> String {
    run.heading(&Column {
        name: super::TARGET_COLUMN.to_owned(),
        ..Column::default()
    })
}

/// Errors, faults and other remarks of a run.
pub fn remarks(run: &RunReport) -> impl Iterator<Item = (&'static str, &str)> {
    let not_played = run.error.iter().map(|error| ("NOT PLAYED", error.as_str()));
    let faults = run.faults.iter().map(|fault| ("FAULT", fault.as_str()));
    let notes = run.notes.iter().map(|note| ("note", note.as_str()));
    let invalid = run.invalid.iter().map(|why| ("INVALID", why.as_str()));
    not_played.chain(faults).chain(invalid).chain(notes)
}

/// All figures: first those to be shown, then the others by name.
pub fn figures(played: &ScenarioReport) -> Vec<TableRow> {
    let mut names: Vec<&str> = played.show.iter().map(String::as_str).collect();
    let shown: BTreeSet<&str> = names.iter().copied().collect();
    let all: BTreeSet<&str> = played
        .columns()
        .flat_map(|(run, column)| column.figures.keys().chain(run.whole.keys()))
        .map(String::as_str)
        .collect();
    names.retain(|name| all.contains(name));
    names.extend(all.difference(&shown));
    names
        .into_iter()
        .map(|name| {
            (
                name.to_owned(),
                cells(played, |run, column| {
                    ScenarioReport::figure(run, column, name).cloned()
                }),
            )
        })
        .collect()
}

/// The ratios that the scenario asks for, if they could be computed.
pub fn ratios(played: &ScenarioReport) -> Vec<TableRow> {
    let row = |comparison: &super::target::Comparison| {
        let name = format!("{} × {}", quantity(&comparison.figure), comparison.to);
        (
            name,
            cells(played, |run, column| comparison.ratio(played, run, column)),
        )
    };
    let rows = played.compare.iter().map(row);
    rows.filter(|(_, cells)| cells.iter().any(|cell| cell != NONE))
        .collect()
}

/// The targets: measured value, bound, verdict.
pub fn targets(played: &ScenarioReport) -> Vec<TableRow> {
    let row = |target: &super::target::FigureTarget| {
        (
            target.what.clone(),
            vec![
                measurement(played, target),
                target.bound(),
                target.verdict(played).word().to_owned(),
            ],
        )
    };
    played.targets.iter().map(row).collect()
}

/// The measured value of a target, or why there is none.
pub fn measurement(played: &ScenarioReport, target: &super::target::FigureTarget) -> String {
    let figure = target.measured(played);
    let text = figure.and_then(|figure| figure.text(""));
    text.unwrap_or_else(|| match target.rates_differ(played) {
        true => RATES_DIFFER.to_owned(),
        false => NONE.to_owned(),
    })
}

fn cells(
    played: &ScenarioReport,
    value: impl Fn(&RunReport, &Column) -> Option<Figure>,
) -> Vec<String> {
    played
        .columns()
        .map(|(run, column)| {
            let figure: Option<Figure> = value(run, column);
            figure
                .and_then(|figure| figure.text(""))
                .unwrap_or(NONE.to_owned())
        })
        .collect()
}

/// A Markdown table with aligned cells.
pub fn table(corner: &str, headings: &[String], rows: &[TableRow]) -> String {
    let first = rows
        .iter()
        .map(|(name, _)| width(name))
        .chain([width(corner)])
        .max()
        .unwrap_or(0);
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            rows.iter()
                .map(|(_, cells)| width(&cells[at]))
                .chain([width(heading), 3])
                .max()
                .unwrap_or(3)
        })
        .collect();
    let line = |name: &str, cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, wide)| {
            format!(
                " {}{} |",
                " ".repeat(wide.saturating_sub(width(cell))),
                safe(cell)
            )
        });
        format!(
            "| {}{} |{}\n",
            safe(name),
            " ".repeat(first.saturating_sub(width(name))),
            cells.collect::<String>()
        )
    };
    let mut text = line(corner, headings);
    let rules: String = widths
        .iter()
        .map(|wide| format!("{}:|", "-".repeat(wide + 1)))
        .collect();
    let _ = writeln!(text, "|{}|{rules}", "-".repeat(first + 2));
    for (name, cells) in rows {
        text.push_str(&line(name, cells));
    }
    text
}

/// The same table with rows and columns exchanged.
fn transpose(headings: &[String], rows: &[TableRow]) -> String {
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let lines: Vec<TableRow> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            (
                heading.clone(),
                rows.iter().map(|(_, cells)| cells[at].clone()).collect(),
            )
        })
        .collect();
    table("", &names, &lines)
}

fn width(text: &str) -> usize {
    safe(text).chars().count()
}

/// A cell must not end its own column or row.
pub fn safe(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
