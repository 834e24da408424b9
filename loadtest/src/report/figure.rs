//! A figure of one or several runs: every value is kept; the median decides, the lowest and the highest are shown beside it.

use serde::{Deserialize, Serialize};

use super::number::short;

/// One value per run, in the order of the runs; none for a run without one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Values", into = "Summary")]
pub struct Figure {
    values: Vec<Option<f64>>,
}

/// The part of the JSON that is read; the rest follows from it.
#[derive(Deserialize)]
struct Values {
    values: Vec<Option<f64>>,
}

/// The JSON that is written.
#[derive(Serialize)]
struct Summary {
    runs: usize,
    median: Option<f64>,
    lowest: Option<f64>,
    highest: Option<f64>,
    values: Vec<Option<f64>>,
}

impl From<Values> for Figure {
    fn from(Values { values }: Values) -> Self {
        Self { values }
    }
}

impl From<Figure> for Summary {
    fn from(figure: Figure) -> Self {
        Self {
            runs: figure.runs(),
            median: figure.median(),
            lowest: figure.lowest(),
            highest: figure.highest(),
            values: figure.values,
        }
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self {
            values: vec![Some(value)],
        }
    }
}

impl Figure {
    /// Sets the value of a run, counted from 0.
    pub fn set(&mut self, run: usize, value: Option<f64>) {
        if self.values.len() <= run {
            self.values.resize(run + 1, None);
        }
        self.values[run] = value;
    }

    pub fn value(&self, run: usize) -> Option<f64> {
        self.values.get(run).copied().flatten()
    }

    /// Number of runs with a value.
    pub fn runs(&self) -> usize {
        self.sorted().len()
    }

    /// The middle value, or the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        if sorted.len() % 2 == 1 {
            return Some(upper);
        }
        Some(f64::midpoint(sorted[middle - 1], upper))
    }

    pub fn lowest(&self) -> Option<f64> {
        self.sorted().first().copied()
    }

    pub fn highest(&self) -> Option<f64> {
        self.sorted().last().copied()
    }

    /// Combines this figure with another, run by run: runs of one number were made one after the other.
    pub fn with(&self, other: &Self, of: impl Fn(f64, f64) -> Option<f64>) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self {
            values: pairs.map(|(a, b)| of((*a)?, (*b)?)).collect(),
        }
    }

    /// The median with its unit; if there were several runs, the lowest and the highest behind it.
    pub fn text(&self, unit: &str) -> Option<String> {
        let (median, lowest, highest) = (self.median()?, self.lowest()?, self.highest()?);
        let blank = if unit.is_empty() { "" } else { " " };
        let mut text = format!("{}{blank}{unit}", short(median));
        if self.runs() > 1 {
            text += &format!(" ({} to {})", short(lowest), short(highest));
        }
        Some(text)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.values.iter().copied().flatten().collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

#[cfg(test)]
mod tests {
    //! The median of few runs, runs without a value, and the JSON.

    use super::*;

    fn figure(values: &[Option<f64>]) -> Figure {
        Figure {
            values: values.to_vec(),
        }
    }

    #[test]
    fn ratios_are_of_runs_of_one_number() {
        let ratio = figure(&[Some(6.0), None, Some(8.0)])
            .with(&figure(&[Some(2.0), Some(1.0), Some(2.0)]), |value, by| {
                Some(value / by)
            });
        assert_eq!(ratio, figure(&[Some(3.0), None, Some(4.0)]));
    }

    #[test]
    fn figures_are_read_by_their_values() {
        let made = figure(&[Some(1.0), None, Some(4.0)]);
        let mut json = serde_json::to_value(&made).unwrap();
        assert_eq!(
            (json["runs"].as_u64(), json["median"].as_f64()),
            (Some(2), Some(2.5))
        );
        json["median"] = 0.1.into();
        assert_eq!(serde_json::from_value::<Figure>(json).unwrap(), made);
    }
}
