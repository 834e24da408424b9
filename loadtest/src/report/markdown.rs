//! Tables in Markdown, which are also readable on a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::claim::{self, Claim};
use super::figure::Figure;
use super::number::short;
use super::{Column, RunReport, ScenarioReport};

/// Stands for a missing figure.
pub const NONE: &str = "–";

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
    // Read downwards: a table of two dozen columns fits no page.
    let shown: Vec<TableRow> = figures(played)
        .into_iter()
        .filter(|row| played.show.contains(&row.0))
        .collect();
    let names: Vec<String> = shown.iter().map(|(name, _)| name.clone()).collect();
    let rows = headings(played).into_iter().enumerate();
    let rows = rows.map(|(at, heading)| {
        let cells = shown.iter().map(|(_, cells)| cells[at].clone());
        (heading, cells.collect())
    });
    let rows: Vec<TableRow> = rows
        .filter(|(_, cells): &TableRow| cells.iter().any(|cell| cell != NONE))
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table("", &names, &rows));
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

/// The targets: measured value, bound, verdict.
pub fn targets(played: &ScenarioReport) -> Vec<TableRow> {
    let row = |claim: Claim| {
        (
            claim.what,
            vec![claim.measured, claim.target, claim.verdict],
        )
    };
    claim::of(played).into_iter().map(row).collect()
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

fn width(text: &str) -> usize {
    safe(text).chars().count()
}

/// A cell must not end its own column or row.
pub fn safe(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
