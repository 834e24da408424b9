//! Results of a bench, per round, in the format of the load test's reports: `--json=FILE`. `kube-fanout-loadtest merge` reads the file.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};

use crate::rounds::Effort;

/// The values of all rounds, by figure, by column.
type Columns = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// The results of one bench.
#[derive(Debug)]
pub(crate) struct Record {
    name: &'static str,
    about: &'static str,
    effort: Effort,
    runs: Vec<(String, Columns)>,
    targets: Vec<Value>,
}

/// A figure that docs/PERFORMANCE.md lists, or a ratio of two figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) what: &'a str,
    /// Name and unit.
    pub(crate) figure: &'a str,
    /// `RUN / COLUMN`.
    pub(crate) of: &'a str,
    /// The divisor, also `RUN / COLUMN`; `None` for a plain figure.
    pub(crate) to: Option<&'a str>,
    pub(crate) at_most: Option<f64>,
}

impl Record {
    pub(crate) fn new(name: &'static str, about: &'static str, effort: Effort) -> Self {
        Self {
            name,
            about,
            effort,
            runs: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Adds the values of all rounds; `place` is `RUN / COLUMN`.
    pub(crate) fn rounds(&mut self, place: &str, figure: &str, values: &[f64]) {
        let (run, column) = place.split_once(" / ").unwrap_or((place, "target"));
        let at = self.runs.iter().position(|(name, _)| name == run);
        let at = at.unwrap_or_else(|| {
            self.runs.push((run.to_owned(), Columns::new()));
            self.runs.len() - 1
        });
        let figures = self.runs[at].1.entry(column.to_owned()).or_default();
        figures.insert(figure.to_owned(), values.to_vec());
    }

    pub(crate) fn claim(&mut self, claim: Claim<'_>) {
        let Claim {
            what,
            figure,
            of,
            to,
            at_most,
        } = claim;
        self.targets
            .push(json!({"what": what, "figure": figure, "of": of, "to": to, "at-most": at_most}));
    }

    /// Writes the file, if the command line names one.
    pub(crate) fn write(&self) -> io::Result<()> {
        let file = std::env::args().find_map(|word| {
            let file = word.strip_prefix("--json=")?;
            Some(file.to_owned())
        });
        let Some(file) = file else {
            return Ok(());
        };
        let figures = |figures: &BTreeMap<String, Vec<f64>>| -> Value {
            let named = figures
                .iter()
                .map(|(name, values)| (name.clone(), json!({"values": values})));
            Value::Object(named.collect())
        };
        let run = |(label, columns): &(String, Columns)| {
            let columns: Vec<Value> = columns
                .iter()
                .map(|(name, all)| json!({"name": name, "figures": figures(all)}))
                .collect();
            json!({"label": label, "repeats": 1, "columns": columns})
        };
        let document = json!({
            "name": format!("bench {}", self.name),
            "about": self.about,
            "command": format!("cargo bench --bench {}", self.name),
            // The figures of a quick run mean nothing; the scale shows that.
            "scale": self.effort.pick(1.0, 0.01),
            "swept": null,
            "show": [],
            "targets": self.targets,
            "runs": self.runs.iter().map(run).collect::<Vec<_>>(),
        });
        std::fs::write(file, serde_json::to_vec_pretty(&document)?)
    }
}
