//! Which figures are compared with which, and what they ought to reach. A target that is missed is told, it fails nothing.

use serde::{Deserialize, Serialize};

use super::{Column, Played, Run};

/// Stands between a server and a column where one of several columns is meant: `gateway / socket loop`.
const BETWEEN: &str = " / ";

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
pub struct Target {
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
pub enum Verdict {
    /// Within its bound.
    Met,
    /// Beyond it.
    Short,
    /// Not measured in this run.
    Unknown,
    /// A run that it needs was not one of the scenario.
    Invalid,
}

impl Verdict {
    /// One word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Short => "short",
            Self::Unknown => "not measured",
            Self::Invalid => "invalid",
        }
    }
}

impl Comparison {
    /// The ratio of one column; none if either figure is missing, or the divisor is nothing.
    pub fn ratio(&self, played: &Played, run: &Run, column: &Column) -> Option<f64> {
        let value = Played::figure(run, column, &self.figure)?;
        divided(
            value,
            played.at(&self.to, run.size.as_deref(), &self.figure)?,
        )
    }
}

impl Target {
    /// The measured figure, or its ratio or difference.
    pub fn value(&self, played: &Played) -> Option<f64> {
        let value = played.at(&self.of, self.at.as_deref(), &self.figure)?;
        let other_at = self.to_at.as_deref().or(self.at.as_deref());
        if let Some(to) = &self.to {
            return divided(value, played.at(to, other_at, &self.figure)?);
        }
        match &self.less {
            Some(less) => Some(value - played.at(less, other_at, &self.figure)?),
            None => Some(value),
        }
    }

    /// How it came out.
    pub fn verdict(&self, played: &Played) -> Verdict {
        let Some(value) = self.value(played) else {
            return Verdict::Unknown;
        };
        let other_at = self.to_at.as_deref().or(self.at.as_deref());
        let others = [self.to.as_deref(), self.less.as_deref()]
            .into_iter()
            .flatten();
        let runs = others
            .filter_map(|other| played.run(other, other_at))
            .chain(played.run(&self.of, self.at.as_deref()));
        if runs.into_iter().any(|run| !run.invalid.is_empty()) {
            return Verdict::Invalid;
        }
        let met = self.at_most.is_none_or(|most| value <= most)
            && self.at_least.is_none_or(|least| value >= least);
        if met { Verdict::Met } else { Verdict::Short }
    }

    /// Its bound in words.
    pub fn bound(&self) -> String {
        let (sign, bound) = match (self.at_most, self.at_least) {
            (Some(most), _) => ("≤", most),
            (None, Some(least)) => ("≥", least),
            (None, None) => return String::new(),
        };
        let unit = super::number::unit(&self.figure);
        let rest = match &self.to {
            Some(to) => format!(" × {to}"),
            None if unit.is_empty() => String::new(),
            None => format!(" {unit}"),
        };
        format!("{sign} {}{rest}", super::number::short(bound))
    }
}

impl Played {
    /// A figure by server (or `SERVER / COLUMN`) and size; any size where none is asked for and there is but one.
    fn at(&self, place: &str, size: Option<&str>, figure: &str) -> Option<f64> {
        let run = self.run(place, size)?;
        let name = place.split_once(BETWEEN).map(|(_, name)| name);
        let whole = || run.whole.get(figure).filter(|_| name.is_none());
        let of_column = run
            .column(name)
            .and_then(|column| column.figures.get(figure));
        of_column.or_else(whole).copied()
    }

    /// The run that such a place is in.
    fn run(&self, place: &str, size: Option<&str>) -> Option<&Run> {
        let label = place.split_once(BETWEEN).map_or(place, |(label, _)| label);
        let fits = |run: &&Run| {
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
