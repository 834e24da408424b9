//! Statements about the figures: each target of each scenario with its measured value and verdict.

use serde::{Deserialize, Serialize};

use super::ScenarioReport;
use super::markdown::NONE;
use super::number::unit;
use super::target::{FigureTarget, RATES_DIFFER};

/// A row of docs/PERFORMANCE.md, which README may quote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub scenario: String,
    /// Name of the target, unique in its scenario.
    pub what: String,
    /// The median with its unit, and behind it the lowest and the highest of several runs.
    pub measured: String,
    pub runs: usize,
    pub median: Option<f64>,
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    /// The bound, if there is one.
    pub target: String,
    /// met, short, invalid or not measured; empty without a bound.
    pub verdict: String,
    /// What the figure is divided by, or what is subtracted from it.
    pub reference: String,
    /// The command that measures it.
    pub command: String,
    /// README's text: the measured value and the verdict.
    pub quote: String,
}

pub fn all(scenarios: &[ScenarioReport]) -> Vec<Claim> {
    scenarios.iter().flat_map(of).collect()
}

/// The claims of one scenario.
pub fn of(played: &ScenarioReport) -> Vec<Claim> {
    let targets = played.targets.iter();
    targets.map(|target| claim(played, target)).collect()
}

fn claim(played: &ScenarioReport, target: &FigureTarget) -> Claim {
    let figure = target.measured(played);
    let unit = match target.to {
        Some(_) => "×",
        None => unit(&target.figure),
    };
    let text = figure.as_ref().and_then(|figure| figure.text(unit));
    let measured = text.unwrap_or_else(|| match target.rates_differ(played) {
        true => RATES_DIFFER.to_owned(),
        false => NONE.to_owned(),
    });
    let (bound, verdict) = (target.bound(), target.verdict(played).word());
    let quote = match (target.limit(), verdict.is_empty()) {
        (Some(limit), _) => format!("{measured} [{limit}: {verdict}]"),
        (None, false) => format!("{measured} [{verdict}]"),
        (None, true) => measured.clone(),
    };
    Claim {
        scenario: played.name.clone(),
        what: target.what.clone(),
        measured,
        runs: figure.as_ref().map_or(0, |figure| figure.runs()),
        median: figure.as_ref().and_then(|figure| figure.median()),
        lowest: figure.as_ref().and_then(|figure| figure.lowest()),
        highest: figure.as_ref().and_then(|figure| figure.highest()),
        target: bound,
        verdict: verdict.to_owned(),
        reference: match (&target.to, &target.less) {
            (Some(to), _) => format!("ratio to {to}"),
            (None, Some(less)) => format!("beyond {less}"),
            (None, None) => String::new(),
        },
        command: played.command.clone(),
        quote,
    }
}
