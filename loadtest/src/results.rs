//! Results of a scenario: a table for people, and JSON for scripts.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::report::markdown::{TableRow, table};
use crate::texts::Texts;

/// First bucket of a distribution, and the factor between buckets: about ninety buckets from 50 µs to five minutes.
const BUCKET_FIRST_US: u64 = 50;
const BUCKET_GROWTH: f64 = 1.2;
/// Number of different faults, and of different notes, that are kept; more tell nothing new.
const TEXTS_MAX: usize = 200;

/// Rows of figures, one column per run; faults and notes.
#[derive(Debug)]
pub struct Results {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Option<f64>>)>,
    distributions: Vec<Distribution>,
    series: Vec<TimeSeries>,
    faults: Texts,
    invalid: Texts,
    notes: Texts,
}

/// A histogram; in the JSON only, for charts.
#[derive(Debug)]
struct Distribution {
    column: usize,
    name: String,
    /// Upper bounds in ms, and the number of values between each bound and the one before.
    buckets: Vec<(f64, u64)>,
}

/// Values over time; in the JSON only, for charts.
#[derive(Debug)]
struct TimeSeries {
    column: usize,
    name: String,
    /// Seconds, and the value then.
    points: Vec<(f64, f64)>,
}

impl Results {
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            columns: Vec::new(),
            rows: Vec::new(),
            distributions: Vec::new(),
            series: Vec::new(),
            faults: Texts::new(TEXTS_MAX),
            invalid: Texts::new(TEXTS_MAX),
            notes: Texts::new(TEXTS_MAX),
        }
    }

    /// Starts a column; figures go to it until the next call.
    pub fn column(&mut self, name: &str) {
        self.columns.push(name.to_owned());
    }

    /// Adds a figure to the newest column; the name carries the unit.
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

    /// Adds quantiles of microseconds to the newest column, in milliseconds: rows such as `latency p99, ms`.
    pub fn quantiles(&mut self, name: &str, microseconds: &Histogram<u64>, of: &[(&str, f64)]) {
        for (label, quantile) in of {
            let ms = microseconds.value_at_quantile(*quantile) as f64 / 1e3;
            self.figure(&format!("{name} {label}, ms"), ms);
        }
    }

    /// Adds a distribution of microseconds to the newest column; in the JSON it is in milliseconds.
    pub fn distribution(&mut self, name: &str, microseconds: &Histogram<u64>) {
        let buckets = microseconds
            .iter_log(BUCKET_FIRST_US, BUCKET_GROWTH)
            .filter(|bucket| bucket.count_since_last_iteration() > 0)
            .map(|bucket| {
                let bound_ms = bucket.value_iterated_to() as f64 / 1e3;
                (bound_ms, bucket.count_since_last_iteration())
            })
            .collect();
        self.distributions.push(Distribution {
            column: self.columns.len().max(1) - 1,
            name: name.to_owned(),
            buckets,
        });
    }

    /// Adds values over time to the newest column; the name carries the unit.
    pub fn series(&mut self, name: &str, points: Vec<(f64, f64)>) {
        self.series.push(TimeSeries {
            column: self.columns.len().max(1) - 1,
            name: name.to_owned(),
            points,
        });
    }

    /// The figure of a row and a column.
    pub fn value(&self, name: &str, column: usize) -> Option<f64> {
        let (_, cells) = self.rows.iter().find(|(one, _)| one == name)?;
        *cells.get(column)?
    }

    /// Adds a row with the ratios of a figure to that of the first column.
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

    fn to_json(&self) -> Value {
        let (mut runs, mut histograms, mut series) = (Map::new(), Map::new(), Map::new());
        for (column, name) in self.columns.iter().enumerate() {
            let figures: Map<String, Value> = self
                .rows
                .iter()
                .filter_map(|(row, cells)| Some((row.clone(), json!((*cells.get(column)?)?))))
                .collect();
            runs.insert(name.clone(), Value::Object(figures));
            let of_column = |one: &&Distribution| one.column == column && !one.buckets.is_empty();
            let distributions: Map<String, Value> = self
                .distributions
                .iter()
                .filter(of_column)
                .map(|one| (one.name.clone(), json!(one.buckets)))
                .collect();
            histograms.insert(name.clone(), Value::Object(distributions));
            let over_time = self.series.iter().filter(|one| one.column == column);
            let over_time: Map<String, Value> = over_time
                .map(|one| (one.name.clone(), json!(one.points)))
                .collect();
            series.insert(name.clone(), Value::Object(over_time));
        }
        let lines = |texts: &Texts| texts.lines().collect::<Vec<_>>();
        json!({
            "scenario": self.title, "runs": runs, "histograms": histograms, "series": series, "faults": lines(&self.faults), "invalid": lines(&self.invalid), "notes": lines(&self.notes),
            "passed": self.is_clean(),
        })
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

/// Prints all results, and writes them to a file if one is given; true if none of them has a fault.
pub fn publish(all: &[Results], json: Option<&Path>) -> Result<bool> {
    for results in all {
        println!("{results}");
    }
    if let Some(file) = json {
        write_json(all, file)?;
    }
    Ok(all.iter().all(Results::is_clean))
}

/// Writes one object, or a list of several, to a file.
fn write_json(all_results: &[Results], file: &Path) -> Result<()> {
    let document = match all_results {
        [results] => results.to_json(),
        all_results => all_results.iter().map(Results::to_json).collect(),
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

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<TableRow> = self
            .rows
            .iter()
            .map(|(name, cells)| {
                let columns = 0..self.columns.len();
                let cells = columns.map(|column| cell(cells.get(column).copied().flatten()));
                (name.clone(), cells.collect())
            })
            .collect();
        writeln!(f, "\n{}\n", self.title)?;
        writeln!(f, "{}", table("", &self.columns, &rows))?;
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

#[cfg(test)]
mod tests {
    //! The JSON that scripts read.

    use super::*;

    #[test]
    fn the_json_has_figures_and_distributions_by_column() {
        let mut results = Results::new("steady");
        for (column, latencies) in [("target", vec![40, 60, 5_000]), ("floor", vec![40])] {
            results.column(column);
            results.figure("events", latencies.len() as f64);
            let mut histogram = Histogram::new(3).unwrap();
            latencies
                .iter()
                .for_each(|us| histogram.record(*us).unwrap());
            results.distribution("latency, ms", &histogram);
        }
        let json = results.to_json();
        assert_eq!(json["runs"]["target"]["events"], 3.0);
        let buckets = json["histograms"]["target"]["latency, ms"]
            .as_array()
            .unwrap();
        let counts: Vec<_> = buckets.iter().map(|one| one[1].as_u64().unwrap()).collect();
        assert_eq!(counts, [1, 1, 1]);
        let bounds: Vec<_> = buckets.iter().map(|one| one[0].as_f64().unwrap()).collect();
        assert!(bounds[0] >= 0.04 && bounds[0] < 0.06 && bounds[1] < 0.08 && bounds[2] >= 5.0);
        assert_eq!(
            json["histograms"]["floor"]["latency, ms"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        assert_eq!(json["passed"], true);
    }
}
