//! Targets of figures, and of ratios and differences of two. A missed target is reported; it fails nothing.

use serde::{Deserialize, Serialize};

use super::figure::Figure;
use super::{Column, RunReport, ScenarioReport};

/// Separates a server from one of its columns: `gateway / socket loop`.
pub const BETWEEN: &str = " / ";
/// Figures at different rates are not compared: a server with less work, or with larger batches, is no reference.
const RATE: &str = "upstream events a second";
/// Largest relative difference of rates that count as equal.
pub const RATES_APART_MAX: f64 = 0.05;
/// Stands for a ratio between unequal rates.
pub const RATES_DIFFER: &str = "no ratio: rates differ";

/// A figure and its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FigureTarget {
    pub what: String,
    /// The figure's name with its unit, as the scenario writes it.
    pub figure: String,
    /// A server, or `SERVER / COLUMN`.
    pub of: String,
    /// The value of the swept flag.
    #[serde(default)]
    pub at: Option<String>,
    /// Divide by the figure of this server or column.
    #[serde(default)]
    pub to: Option<String>,
    /// The value of the swept flag for the divisor, if it differs.
    #[serde(default)]
    pub to_at: Option<String>,
    /// Subtract the figure of this server or column.
    #[serde(default)]
    pub less: Option<String>,
    #[serde(default)]
    pub at_most: Option<f64>,
    #[serde(default)]
    pub at_least: Option<f64>,
}

/// The verdict about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetVerdict {
    Met,
    Short,
    /// Not measured in these runs.
    Unknown,
    /// A run that it needs was not one of the scenario, or had faults.
    Invalid,
    Unbounded,
}

impl TargetVerdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Short => "short",
            Self::Unknown => "not measured",
            Self::Invalid => "invalid",
            Self::Unbounded => "",
        }
    }
}

impl FigureTarget {
    /// The median of the measured values.
    pub fn value(&self, played: &ScenarioReport) -> Option<f64> {
        self.measured(played)?.median()
    }

    /// The measured figure, or its ratio or difference, run by run.
    pub fn measured(&self, played: &ScenarioReport) -> Option<Figure> {
        let place = played.place(&self.of, self.at.as_deref())?;
        let figure = place.figure(&self.figure)?;
        let Some(other) = self.other() else {
            return Some(figure.clone());
        };
        let other = played.place(other, self.other_at())?;
        let by = other.figure(&self.figure)?;
        let of = |value: f64, by: f64| match self.to {
            Some(_) => quotient(value, by),
            None => Some(value - by),
        };
        Some(figure.with(by, of)).filter(|_| place.has_rate_of(&other))
    }

    /// Whether there is no value because the rates differ.
    pub fn rates_differ(&self, played: &ScenarioReport) -> bool {
        let of = played.place(&self.of, self.at.as_deref());
        let other = self.other();
        let other = other.and_then(|other| played.place(other, self.other_at()));
        of.zip(other)
            .is_some_and(|(of, other)| !of.has_rate_of(&other))
    }

    /// The server or column that it is compared with.
    pub fn other(&self) -> Option<&str> {
        self.to.as_deref().or(self.less.as_deref())
    }

    fn other_at(&self) -> Option<&str> {
        self.to_at.as_deref().or(self.at.as_deref())
    }

    /// The verdict, by the median.
    pub fn verdict(&self, played: &ScenarioReport) -> TargetVerdict {
        let Some(value) = self.value(played) else {
            return TargetVerdict::Unknown;
        };
        let other = self.other();
        let runs = other
            .and_then(|other| played.run(other, self.other_at()))
            .into_iter()
            .chain(played.run(&self.of, self.at.as_deref()));
        let is_of_scenario = |run: &RunReport| run.passed() && run.invalid.is_empty();
        if played.scale != 1.0 || !runs.into_iter().all(is_of_scenario) {
            return TargetVerdict::Invalid;
        }
        if self.at_most.is_none() && self.at_least.is_none() {
            return TargetVerdict::Unbounded;
        }
        let met = self.at_most.is_none_or(|most| value <= most)
            && self.at_least.is_none_or(|least| value >= least);
        if met {
            TargetVerdict::Met
        } else {
            TargetVerdict::Short
        }
    }

    /// Its bound with divisor or unit.
    pub fn bound(&self) -> String {
        let Some(limit) = self.limit() else {
            return String::new();
        };
        let unit = super::number::unit(&self.figure);
        let rest = match &self.to {
            Some(to) => format!(" × {to}"),
            None if unit.is_empty() => String::new(),
            None => format!(" {unit}"),
        };
        format!("{limit}{rest}")
    }

    /// Its bound as a number with its sign.
    pub fn limit(&self) -> Option<String> {
        let (sign, bound) = match (self.at_most, self.at_least) {
            (Some(most), _) => ("≤", most),
            (None, Some(least)) => ("≥", least),
            (None, None) => return None,
        };
        Some(format!("{sign} {}", super::number::short(bound)))
    }
}

/// A run, and the column in it.
struct FigurePlace<'a> {
    run: &'a RunReport,
    column: Option<&'a Column>,
    /// Whether figures of the whole run belong to it too.
    is_whole: bool,
}

impl<'a> FigurePlace<'a> {
    fn figure(&self, name: &str) -> Option<&'a Figure> {
        let of_column = self.column.and_then(|column| column.figures.get(name));
        let whole = || self.run.whole.get(name).filter(|_| self.is_whole);
        of_column.or_else(whole)
    }

    /// Whether both had equally many events a second; without events every rate is equal.
    fn has_rate_of(&self, other: &Self) -> bool {
        let rate = |place: &Self| place.figure(RATE).and_then(Figure::median);
        rate(self)
            .zip(rate(other))
            .is_none_or(|(a, b)| (a - b).abs() <= a.max(b) * RATES_APART_MAX)
    }
}

impl ScenarioReport {
    /// The place of a server (or `SERVER / COLUMN`) at a size; without a size there must be only one.
    fn place(&self, place: &str, size: Option<&str>) -> Option<FigurePlace<'_>> {
        let run = self.run(place, size)?;
        let name = place.split_once(BETWEEN).map(|(_, name)| name);
        Some(FigurePlace {
            run,
            column: run.column(name),
            is_whole: name.is_none(),
        })
    }

    /// The run of such a place.
    fn run(&self, place: &str, size: Option<&str>) -> Option<&RunReport> {
        let label = place.split_once(BETWEEN).map_or(place, |(label, _)| label);
        let fits = |run: &&RunReport| {
            run.label == label && size.is_none_or(|size| run.size.as_deref() == Some(size))
        };
        let mut runs = self.runs.iter().filter(fits);
        let (run, None) = (runs.next()?, runs.next()) else {
            return None;
        };
        Some(run)
    }
}

fn quotient(value: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| value / by)
}
