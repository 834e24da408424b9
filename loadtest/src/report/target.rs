//! Which figures are compared with which, and what they ought to reach. A target that is missed is told, it fails nothing.

use serde::{Deserialize, Serialize};

use super::figure::Figure;
use super::{Column, RunReport, ScenarioReport};

/// Stands between a server and a column where one of several columns is meant: `gateway / socket loop`.
const BETWEEN: &str = " / ";
/// Figures at different rates are not compared: what has less to do, or does it in fewer steps, is no yardstick.
const RATE: &str = "upstream events a second";
/// How far rates that count as equal lie apart at most.
pub const RATES_APART_MAX: f64 = 0.05;
/// In the place of a ratio between unequal rates.
pub const RATES_DIFFER: &str = "no ratio: rates differ";

/// A row of ratios: every column's figure to that of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The figure, name and unit as the player writes it.
    pub figure: String,
    /// What it is divided by: a server, or `SERVER / COLUMN`.
    pub to: String,
}

/// A figure and its bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FigureTarget {
    /// In words.
    pub what: String,
    /// The figure, name and unit as the player writes it.
    pub figure: String,
    /// Of which server, or `SERVER / COLUMN`.
    pub of: String,
    /// At which value of the swept flag.
    #[serde(default)]
    pub at: Option<String>,
    /// Divided by that of this one.
    #[serde(default)]
    pub to: Option<String>,
    /// The size of that one, if another.
    #[serde(default)]
    pub to_at: Option<String>,
    /// Less that of this one.
    #[serde(default)]
    pub less: Option<String>,
    /// Upper bound.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Lower bound.
    #[serde(default)]
    pub at_least: Option<f64>,
}

/// How a target came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetVerdict {
    /// Within its bound.
    Met,
    /// Beyond it.
    Short,
    /// Not measured in this run.
    Unknown,
    /// A run that it needs was not one of the scenario, or had faults.
    Invalid,
    /// It has no bound.
    Unbounded,
}

impl TargetVerdict {
    /// One word.
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

impl Comparison {
    /// The ratio of one column; none if either figure is missing, the divisor is nothing, or the rates differ.
    pub fn ratio(
        &self,
        played: &ScenarioReport,
        run: &RunReport,
        column: &Column,
    ) -> Option<Figure> {
        let value = ScenarioReport::figure(run, column, &self.figure)?;
        let to = played.place(&self.to, run.size.as_deref())?;
        let by = to.figure(&self.figure)?;
        let place = FigurePlace {
            run,
            column: Some(column),
            is_whole: false,
        };
        place
            .has_rate_of(&to)
            .then(|| value.with(by, divided))
            .filter(|ratio| ratio.runs() > 0)
    }
}

impl FigureTarget {
    /// The median of what was measured.
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
            Some(_) => divided(value, by),
            None => Some(value - by),
        };
        Some(figure.with(by, of)).filter(|_| place.has_rate_of(&other))
    }

    /// Whether it is not measured because the two were not measured at one rate.
    pub fn rates_differ(&self, played: &ScenarioReport) -> bool {
        let of = played.place(&self.of, self.at.as_deref());
        let other = self.other();
        let other = other.and_then(|other| played.place(other, self.other_at()));
        of.zip(other)
            .is_some_and(|(of, other)| !of.has_rate_of(&other))
    }

    /// What it is compared with.
    pub fn other(&self) -> Option<&str> {
        self.to.as_deref().or(self.less.as_deref())
    }

    fn other_at(&self) -> Option<&str> {
        self.to_at.as_deref().or(self.at.as_deref())
    }

    /// How it came out, by the median.
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

    /// Its bound in words.
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

    /// Its bound as a number.
    pub fn limit(&self) -> Option<String> {
        let (sign, bound) = match (self.at_most, self.at_least) {
            (Some(most), _) => ("≤", most),
            (None, Some(least)) => ("≥", least),
            (None, None) => return None,
        };
        Some(format!("{sign} {}", super::number::short(bound)))
    }
}

/// Where a figure stands.
struct FigurePlace<'a> {
    run: &'a RunReport,
    column: Option<&'a Column>,
    /// Whether figures of the run as a whole stand there too.
    is_whole: bool,
}

impl<'a> FigurePlace<'a> {
    fn figure(&self, name: &str) -> Option<&'a Figure> {
        let of_column = self.column.and_then(|column| column.figures.get(name));
        let whole = || self.run.whole.get(name).filter(|_| self.is_whole);
        of_column.or_else(whole)
    }

    /// Whether both had as many events a second to deal with; what has no events has any rate.
    fn has_rate_of(&self, other: &Self) -> bool {
        let rate = |place: &Self| place.figure(RATE).and_then(Figure::median);
        rate(self)
            .zip(rate(other))
            .is_none_or(|(a, b)| (a - b).abs() <= a.max(b) * RATES_APART_MAX)
    }
}

impl ScenarioReport {
    /// A server (or `SERVER / COLUMN`) and size; any size where none is asked for and there is but one.
    fn place(&self, place: &str, size: Option<&str>) -> Option<FigurePlace<'_>> {
        let run = self.run(place, size)?;
        let name = place.split_once(BETWEEN).map(|(_, name)| name);
        Some(FigurePlace {
            run,
            column: run.column(name),
            is_whole: name.is_none(),
        })
    }

    /// The run that such a place is in.
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

fn divided(value: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| value / by)
}
