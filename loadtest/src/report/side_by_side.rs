//! Two runs of one scenario side by side, directly at the API server and through a gateway: one self-contained page without scripts.

use anyhow::{Context, Result};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::chart::{self, NARROW_WIDTH, Series, WIDTH, lines_within, over_time_within};
use super::figure::Figure;
use super::number::{quantity, short, unit};
use super::{Column, Machine, Report, RunReport, ScenarioReport, histogram};

const TEMPLATE: &str = include_str!("side_by_side.html");
const STYLE: &str = include_str!("side_by_side.css");
/// Colours of the three lines: the API server alone, the API server behind the gateway, the gateway.
const ALONE: usize = 0;
const BEHIND: usize = 2;
const GATEWAY: usize = 1;
/// Figures that are shown as pairs of bars: what the API server saves, and what the clients notice.
const SAVED: [&str; 6] = [
    "watches at the API server",
    "requests at the API server a second",
    "MiB from the API server a second",
    "API server CPU, % of a core",
    "API server RSS, MiB",
    "start: API server CPU, s",
];
const NOTICED: [&str; 4] = [
    "latency p50, ms",
    "latency p99, ms",
    "latency max, ms",
    "all synced after, s",
];
/// The gateway's own part, which is not in the API server's figures.
const COSTS: [(&str, &str); 3] = [
    ("CPU", "gateway CPU, % of a core"),
    ("memory", "gateway RSS, MiB"),
    ("CPU when all clients start", "start: gateway CPU, s"),
];

/// The page of a scenario with two runs.
#[derive(Serialize)]
struct ComparisonView<'a> {
    style: &'a str,
    scenario: &'a ScenarioReport,
    report: &'a Report,
    machine: &'a Machine,
    summary: String,
    saved: Vec<Pair>,
    noticed: Vec<Pair>,
    costs: Vec<(String, String)>,
    charts: Vec<ChartView>,
    rows: Vec<Pair>,
    faults: Vec<String>,
    notes: Vec<String>,
}

/// A figure of both runs.
#[derive(Serialize)]
struct Pair {
    name: String,
    alone: String,
    through: String,
    /// `−93 %`, `1.2 ×`; empty if it says nothing.
    change: String,
    /// Lengths of the bars, % of the longer one.
    alone_percent: f64,
    through_percent: f64,
}

#[derive(Serialize)]
struct ChartView {
    title: String,
    about: &'static str,
    legend: Vec<(String, String)>,
    wide: String,
    narrow: String,
}

/// The page of the first scenario's first two runs: the API server alone, then the one behind a gateway.
pub fn page(report: &Report) -> Result<String> {
    let scenario = report
        .scenarios
        .first()
        .context("a report without a scenario")?;
    let [alone, through, ..] = scenario.runs.as_slice() else {
        anyhow::bail!("{}: two runs are needed", scenario.name);
    };
    let columns = alone.column(None).zip(through.column(None));
    let (before, after) = columns.with_context(|| errors(&scenario.runs))?;
    let pairs = |names: &[&str]| {
        let named = names
            .iter()
            .filter_map(|name| Pair::of(name, before, after));
        named.collect::<Vec<_>>()
    };
    let names: Vec<&str> = before.figures.keys().map(String::as_str).collect();
    let cost = |(title, name): &(&str, &str)| {
        let value = after.figures.get(*name)?.median()?;
        Some(((*title).to_owned(), with_unit(value, name)))
    };
    let view = ComparisonView {
        style: STYLE,
        scenario,
        report,
        machine: &report.machine,
        summary: summary(before, after),
        saved: pairs(&SAVED),
        noticed: pairs(&NOTICED),
        costs: COSTS.iter().filter_map(cost).collect(),
        charts: charts(before, after),
        rows: pairs(&names),
        faults: remarks(&scenario.runs, |run| {
            let error = run.error.iter();
            error
                .chain(&run.faults)
                .chain(&run.invalid)
                .cloned()
                .collect()
        }),
        notes: remarks(&scenario.runs, |run| run.notes.clone()),
    };
    let mut environment = Environment::new();
    environment.add_filter("short", short);
    let page = environment.render_named_str("side_by_side.html", TEMPLATE, Serde(&view));
    page.context("the page")
}

fn errors(runs: &[RunReport]) -> String {
    let errors = runs.iter().filter_map(|run| run.error.as_deref());
    let errors: Vec<&str> = errors.collect();
    format!("a run without figures: {}", errors.join("; "))
}

fn remarks(runs: &[RunReport], of: impl Fn(&RunReport) -> Vec<String>) -> Vec<String> {
    let with_label = |run: &RunReport| {
        let texts = of(run).into_iter();
        texts
            .map(|text| format!("{}: {text}", run.label))
            .collect::<Vec<_>>()
    };
    runs.iter().flat_map(with_label).collect()
}

/// One sentence with the largest savings.
fn summary(before: &Column, after: &Column) -> String {
    let of = |column: &Column, name: &str| column.figures.get(name).and_then(Figure::median);
    let both = |name: &str| Some((of(before, name)?, of(after, name)?));
    let mut parts = Vec::new();
    if let Some((alone, through)) = both("watches at the API server") {
        parts.push(format!(
            "The API server holds {} watches instead of {}",
            grouped(through),
            grouped(alone)
        ));
    }
    if let Some((alone, through)) = both("API server CPU, % of a core") {
        parts.push(format!(
            "uses {} % of a core instead of {} %",
            short(through),
            short(alone)
        ));
    }
    if let Some((alone, through)) = both("latency p99, ms") {
        parts.push(format!(
            "the slowest hundredth of events arrives after {} ms instead of {} ms",
            short(through),
            short(alone)
        ));
    }
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => format!("{last}."),
        Some((last, others)) => format!("{}; {last}.", others.join(", ")),
    }
}

impl Pair {
    fn of(name: &str, before: &Column, after: &Column) -> Option<Self> {
        let alone = before.figures.get(name)?.median()?;
        let through = after.figures.get(name)?.median()?;
        let most = alone.max(through).max(f64::MIN_POSITIVE);
        let percent = |value: f64| (value.max(0.0) / most * 1_000.0).round() / 10.0;
        Some(Self {
            name: quantity(name).to_owned(),
            alone: with_unit(alone, name),
            through: with_unit(through, name),
            change: change(alone, through),
            alone_percent: percent(alone),
            through_percent: percent(through),
        })
    }
}

/// How the second value differs from the first.
fn change(alone: f64, through: f64) -> String {
    if alone <= 0.0 || through < 0.0 {
        return String::new();
    }
    let ratio = through / alone;
    match ratio {
        0.995..1.005 => "equal".to_owned(),
        2.0.. => format!("{} ×", short(ratio)),
        1.0.. => format!("+{} %", short(((ratio - 1.0) * 100.0).round())),
        0.01.. => format!("−{} %", short(((1.0 - ratio) * 100.0).round())),
        _ => format!("−{:.1} %", (1.0 - ratio) * 100.0),
    }
}

fn with_unit(value: f64, name: &str) -> String {
    let number = if value >= 1_000.0 {
        grouped(value)
    } else {
        short(value)
    };
    match unit(name) {
        "" => number,
        unit => format!("{number} {unit}"),
    }
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn charts(before: &Column, after: &Column) -> Vec<ChartView> {
    let over_time = |what: &str, unit: &'static str, about: &'static str| {
        let name = |who: &str| format!("{who} {what}, {unit}");
        let lines = [
            (
                "API server alone",
                before.series.get(&name("API server")),
                ALONE,
            ),
            (
                "API server behind the gateway",
                after.series.get(&name("API server")),
                BEHIND,
            ),
            ("gateway", after.series.get(&name("gateway")), GATEWAY),
        ];
        let title = match what {
            "RSS" => format!("Memory over time, {unit}"),
            what => format!("{what} over time, {unit}"),
        };
        let draw = |width, series: &[Series]| over_time_within(width, ("s", unit), series);
        chart_of(title, about, draw, &lines)
    };
    let slower = |column: &Column| {
        let counts = column.histograms.get("latency, ms")?;
        let points = histogram::slower(counts).into_iter();
        Some(points.filter(|point| point.0 > 0.0).collect::<Vec<_>>())
    };
    let (alone, through) = (slower(before), slower(after));
    let latency = [
        ("API server alone", alone.as_ref(), ALONE),
        ("through the gateway", through.as_ref(), GATEWAY),
    ];
    let charts = [
        chart_of(
            "Delivery of events: share that took longer".to_owned(),
            "From the writer's request until a client has decoded the event. Lower and further to the left is better.",
            |width, series| lines_within(width, ("ms", "share that took longer"), series),
            &latency,
        ),
        over_time(
            "CPU",
            "% of a core",
            "From before the clients start until all have everything.",
        ),
        over_time("RSS", "MiB", "Resident memory of each process."),
    ];
    charts.into_iter().flatten().collect()
}

/// Name of a line, its points if there are any, and the number of its colour.
type NamedPoints<'a> = (&'a str, Option<&'a Vec<(f64, f64)>>, usize);

/// A chart in both widths; none without any values.
fn chart_of(
    title: String,
    about: &'static str,
    draw: impl Fn(u32, &[Series]) -> String,
    named: &[NamedPoints<'_>],
) -> Option<ChartView> {
    let series = named.iter().filter_map(|(name, points, number)| {
        let points = points.filter(|points| !points.is_empty())?;
        Some(Series {
            name: (*name).to_owned(),
            number: *number,
            points: points.clone(),
        })
    });
    let series: Vec<Series> = series.collect();
    let key = |one: &Series| (one.name.clone(), chart::colour(one.number).0);
    (!series.is_empty()).then(|| ChartView {
        title,
        about,
        legend: series.iter().map(key).collect(),
        wide: draw(WIDTH, &series),
        narrow: draw(NARROW_WIDTH, &series),
    })
}

#[cfg(test)]
mod tests;
