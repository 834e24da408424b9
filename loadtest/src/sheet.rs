//! Results as a table for people and as JSON for scripts.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// Rows of figures, one column per run.
#[derive(Debug)]
pub struct Sheet {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Option<f64>>)>,
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Sheet {
    /// An empty sheet.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            columns: Vec::new(),
            rows: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Begins a column; figures go to it until the next.
    pub fn column(&mut self, name: &str) {
        self.columns.push(name.to_owned());
    }

    /// Puts a figure into the newest column; the name carries the unit.
    pub fn figure(&mut self, name: &str, value: f64) {
        let column = self.columns.len().max(1) - 1;
        let at = self
            .rows
            .iter()
            .position(|(one, _)| one == name)
            .unwrap_or_else(|| {
                self.rows.push((name.to_owned(), Vec::new()));
                self.rows.len() - 1
            });
        let cells = &mut self.rows[at].1;
        cells.resize(column, None);
        cells.push(Some(value));
    }

    /// A figure as it was put in.
    pub fn value(&self, name: &str, column: usize) -> Option<f64> {
        let (_, cells) = self.rows.iter().find(|(one, _)| one == name)?;
        *cells.get(column)?
    }

    /// Adds a row with a figure's ratios to that of the first column.
    pub fn ratios(&mut self, name: &str) {
        let Some((_, cells)) = self.rows.iter().find(|(one, _)| one == name) else {
            return;
        };
        let first = cells.first().copied().flatten();
        let of_first = |cell: &Option<f64>| Some((*cell)? / first.filter(|first| *first > 0.0)?);
        let ratios = cells.iter().map(of_first).collect();
        let quantity = name
            .rsplit_once(", ")
            .map_or(name, |(quantity, _)| quantity);
        let row = format!("{quantity} / {}", self.columns[0]);
        self.rows.push((row, ratios));
    }

    /// Something was wrong with the server's answers: the test fails.
    pub fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// Something worth reading that is no failure.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    fn to_json(&self) -> Value {
        let mut runs = Map::new();
        for (column, name) in self.columns.iter().enumerate() {
            let figures: Map<String, Value> = self
                .rows
                .iter()
                .filter_map(|(row, cells)| Some((row.clone(), json!((*cells.get(column)?)?))))
                .collect();
            runs.insert(name.clone(), Value::Object(figures));
        }
        json!({"scenario": self.title, "runs": runs, "faults": self.faults, "notes": self.notes, "passed": self.is_clean()})
    }
}

/// Writes the figures of one sheet, or a list of several, to a file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(sheets: &[Sheet], file: &Path) -> Result<()> {
    let document = match sheets {
        [sheet] => sheet.to_json(),
        sheets => sheets.iter().map(Sheet::to_json).collect(),
    };
    std::fs::write(file, serde_json::to_vec_pretty(&document)?)
        .with_context(|| file.display().to_string())
}

fn cell(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value == value.trunc() && value.abs() < 1e15 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_len = self
            .rows
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        let cell_len = self
            .columns
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0)
            .max(14);
        writeln!(f, "\n{}", self.title)?;
        write!(f, "{:name_len$}", "")?;
        for name in &self.columns {
            write!(f, "  {name:>cell_len$}")?;
        }
        writeln!(f)?;
        for (name, cells) in &self.rows {
            write!(f, "{name:name_len$}")?;
            for column in 0..self.columns.len() {
                write!(
                    f,
                    "  {:>cell_len$}",
                    cell(cells.get(column).copied().flatten())
                )?;
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for fault in &self.faults {
            writeln!(f, "FAULT: {fault}")?;
        }
        write!(f, "{}", if self.is_clean() { "passed" } else { "FAILED" })
    }
}
