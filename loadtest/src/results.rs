//! Results of a scenario: a table for people, and the [`RunReport`] that the runner reads.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::report::markdown::{NONE, TableRow, table};
use crate::report::number::{quantity, short};
use crate::report::{Column, RunReport};
use crate::texts::Texts;

/// First bucket of a distribution, and the factor between buckets: about ninety buckets from 50 µs to five minutes.
const BUCKET_FIRST_US: u64 = 50;
const BUCKET_GROWTH: f64 = 1.2;
/// Number of different faults, and of different notes, that are kept; more tell nothing new.
const TEXTS_MAX: usize = 200;

/// Figures in columns; faults and notes.
#[derive(Debug)]
pub struct Results {
    title: String,
    columns: Vec<Column>,
    /// Names of the figures, in the order in which they came.
    rows: Vec<String>,
    faults: Texts,
    invalid: Texts,
    notes: Texts,
}

impl Results {
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            columns: Vec::new(),
            rows: Vec::new(),
            faults: Texts::new(TEXTS_MAX),
            invalid: Texts::new(TEXTS_MAX),
            notes: Texts::new(TEXTS_MAX),
        }
    }

    /// Starts a column; figures go to it until the next call.
    pub fn column(&mut self, name: &str) {
        self.columns.push(Column {
            name: name.to_owned(),
            ..Column::default()
        });
    }

    fn newest(&mut self) -> &mut Column {
        if self.columns.is_empty() {
            self.column("");
        }
        let last = self.columns.len() - 1;
        &mut self.columns[last]
    }

    /// Adds a figure to the newest column; the name carries the unit.
    pub fn figure(&mut self, name: &str, value: f64) {
        if !self.rows.iter().any(|row| row == name) {
            self.rows.push(name.to_owned());
        }
        self.newest().figures.insert(name.to_owned(), value.into());
    }

    /// Adds quantiles of microseconds to the newest column, in milliseconds: rows such as `latency p99, ms`.
    pub fn quantiles(&mut self, name: &str, microseconds: &Histogram<u64>, of: &[(&str, f64)]) {
        for (label, quantile) in of {
            let ms = microseconds.value_at_quantile(*quantile) as f64 / 1e3;
            self.figure(&format!("{name} {label}, ms"), ms);
        }
    }

    /// Adds a distribution of microseconds to the newest column, in milliseconds.
    pub fn distribution(&mut self, name: &str, microseconds: &Histogram<u64>) {
        let buckets: Vec<_> = microseconds
            .iter_log(BUCKET_FIRST_US, BUCKET_GROWTH)
            .filter(|bucket| bucket.count_since_last_iteration() > 0)
            .map(|bucket| {
                let bound_ms = bucket.value_iterated_to() as f64 / 1e3;
                (bound_ms, bucket.count_since_last_iteration())
            })
            .collect();
        if !buckets.is_empty() {
            self.newest().histograms.insert(name.to_owned(), buckets);
        }
    }

    /// Adds values over time, in seconds, to the newest column; the name carries the unit.
    pub fn series(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.newest().series.insert(name.to_owned(), points);
    }

    /// The figure of a row and a column.
    pub fn value(&self, name: &str, column: usize) -> Option<f64> {
        self.columns.get(column)?.figures.get(name)?.value(0)
    }

    /// Adds a row with the ratios of a figure to that of this column.
    pub fn ratios(&mut self, name: &str, to: usize) {
        let Some(by) = self.value(name, to).filter(|by| *by > 0.0) else {
            return;
        };
        let row = format!("{} / {}", quantity(name), self.columns[to].name);
        for column in &mut self.columns {
            if let Some(value) = column.figures.get(name).and_then(|figure| figure.value(0)) {
                column.figures.insert(row.clone(), (value / by).into());
            }
        }
        self.rows.push(row);
    }

    /// Adds a fault: the server's answers are wrong, and the test fails.
    pub fn fault(&mut self, text: String) {
        self.faults.add("", &text);
    }

    /// Adds a fault of one of many clients; equal faults become one.
    pub fn fault_of(&mut self, who: &str, what: &str) {
        self.faults.add(who, what);
    }

    /// Marks the figures as not those of the scenario, for a reason that is not a fault of the server.
    pub fn invalid(&mut self, text: String) {
        self.invalid.add("", &text);
    }

    /// Adds a remark that is not a failure.
    pub fn note(&mut self, text: String) {
        self.notes.add("", &text);
    }

    /// Whether there are no faults.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// Prints everything, and writes it to a file if one is given; true if there is no fault.
    pub fn publish(self, json: Option<&Path>) -> Result<bool> {
        println!("{self}");
        let is_clean = self.is_clean();
        if let Some(file) = json {
            std::fs::write(file, serde_json::to_vec_pretty(&self.into_report())?)
                .with_context(|| file.display().to_string())?;
        }
        Ok(is_clean)
    }

    fn into_report(self) -> RunReport {
        RunReport {
            label: self.title,
            repeats: 1,
            columns: self.columns,
            faults: self.faults.lines().collect(),
            invalid: self.invalid.lines().collect(),
            notes: self.notes.lines().collect(),
            ..RunReport::default()
        }
    }
}

/// Converts bytes to MiB.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The value at a share of the sorted values; 0 if there are none.
pub fn at_share(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(at.min(last)).copied().unwrap_or(0.0)
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<String> = self.columns.iter().map(|one| one.name.clone()).collect();
        let rows: Vec<TableRow> = self
            .rows
            .iter()
            .map(|name| {
                let cells = (0..self.columns.len()).map(|column| {
                    let value = self.value(name, column);
                    value.map_or_else(|| NONE.to_owned(), short)
                });
                (name.clone(), cells.collect())
            })
            .collect();
        writeln!(f, "\n{}\n", self.title)?;
        writeln!(f, "{}", table("", &headings, &rows))?;
        for note in self.notes.lines() {
            writeln!(f, "note: {note}")?;
        }
        for why in self.invalid.lines() {
            writeln!(f, "INVALID: {why}")?;
        }
        for fault in self.faults.lines() {
            writeln!(f, "FAULT: {fault}")?;
        }
        let verdict = match (self.is_clean(), self.invalid.is_empty()) {
            (false, _) => "FAILED",
            (true, false) => "passed, but the figures are not those of this scenario",
            (true, true) => "passed",
        };
        write!(f, "{verdict}")
    }
}
