//! The report as one self-contained page without scripts: a template, and the data that it shows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::chart::{self, Series, bars, lines};
use super::figure::Figure;
use super::markdown::{
    TableRow, figures, headings, name, ratios, remarks, targets, without_empty_columns,
};
use super::number::{short, unit};
use super::{Report, RunReport, ScenarioReport, histogram};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// Verdicts of targets, which are classes of the page's style.
const VERDICTS: [&str; 4] = ["met", "short", "not measured", "invalid"];

#[derive(Serialize)]
struct PageView<'a> {
    report: &'a Report,
    scenarios: Vec<ScenarioView<'a>>,
    style: &'a str,
    verdicts: [&'a str; 4],
}

#[derive(Serialize)]
struct ScenarioView<'a> {
    name: &'a str,
    about: &'a str,
    passed: bool,
    scale: f64,
    remarks: Vec<Remark<'a>>,
    targets: Vec<TableRow>,
    charts: Vec<Chart>,
    ratios: Option<Table>,
    figures: Option<Table>,
    /// Each with its title.
    runs: Vec<(String, &'a RunReport)>,
}

#[derive(Serialize)]
struct Remark<'a> {
    class: &'static str,
    kind: &'static str,
    run: String,
    text: &'a str,
}

#[derive(Serialize)]
struct Table {
    headings: Vec<String>,
    rows: Vec<TableRow>,
}

#[derive(Serialize)]
struct Chart {
    title: String,
    legend: Vec<Key>,
    svg: String,
    table: Option<Table>,
}

/// An entry of a legend.
#[derive(Serialize)]
struct Key {
    name: String,
    colour: String,
    is_dashed: bool,
}

pub fn page(report: &Report) -> Result<String> {
    let scenarios = report.scenarios.iter().map(ScenarioView::of).collect();
    let view = PageView {
        report,
        scenarios,
        style: STYLE,
        verdicts: VERDICTS,
    };
    let mut environment = Environment::new();
    environment.add_filter("short", short);
    // The name's ending turns on the escaping of texts.
    let page = environment.render_named_str("page.html", TEMPLATE, Serde(&view));
    page.context("the report's page")
}

impl<'a> ScenarioView<'a> {
    fn of(scenario: &'a ScenarioReport) -> Self {
        let headings = headings(scenario);
        let table = |(headings, rows): (Vec<String>, Vec<TableRow>)| {
            let is_filled = !headings.is_empty() && !rows.is_empty();
            is_filled.then_some(Table { headings, rows })
        };
        // Faults come first: they make the figures worthless.
        let of_run = |run: &'a RunReport| {
            remarks(run).map(|(kind, text)| Remark {
                class: if kind == "note" { "note" } else { "fault" },
                kind,
                run: name(run),
                text,
            })
        };
        Self {
            name: &scenario.name,
            about: scenario.about.trim(),
            passed: scenario.runs.iter().all(RunReport::passed),
            scale: scenario.scale,
            remarks: scenario.runs.iter().flat_map(of_run).collect(),
            targets: targets(scenario),
            charts: charts(scenario),
            ratios: table(without_empty_columns(&headings, &ratios(scenario))),
            figures: table((headings, figures(scenario))),
            runs: scenario.runs.iter().map(|run| (name(run), run)).collect(),
        }
    }
}

/// Figures over the swept flag if there is one, else as bars; then the latencies.
fn charts(scenario: &ScenarioReport) -> Vec<Chart> {
    let shown = scenario
        .show
        .iter()
        .filter_map(|figure| match &scenario.swept {
            Some(flag) => over_sweep(scenario, figure, flag),
            None => side_by_side(scenario, figure),
        });
    let histograms =
        |(_, column): (_, &'_ super::Column)| column.histograms.keys().cloned().collect();
    let mut names: Vec<String> = scenario
        .columns()
        .flat_map::<Vec<_>, _>(histograms)
        .collect();
    names.sort();
    names.dedup();
    let latencies = names.iter().map(|name| latencies(scenario, name));
    shown.chain(latencies).collect()
}

fn side_by_side(scenario: &ScenarioReport, figure: &str) -> Option<Chart> {
    let columns = scenario.columns().enumerate();
    let rows: Vec<chart::Bar> = columns
        .filter_map(|(number, (run, column))| {
            let value = ScenarioReport::figure(run, column, figure)?.median()?;
            Some((run.heading(column), value, number))
        })
        .collect();
    (!rows.is_empty()).then(|| Chart {
        title: figure.to_owned(),
        legend: Vec::new(),
        svg: bars(&rows),
        table: None,
    })
}

fn over_sweep(scenario: &ScenarioReport, figure: &str, flag: &str) -> Option<Chart> {
    let mut points_by_name: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (run, column) in scenario.columns() {
        let size = run.size.as_deref().and_then(number_in);
        let value = ScenarioReport::figure(run, column, figure).and_then(Figure::median);
        if let Some(point) = size.zip(value) {
            let sizeless = RunReport {
                size: None,
                ..run.clone()
            };
            let points = points_by_name.entry(sizeless.heading(column)).or_default();
            points.push(point);
        }
    }
    let with_number = points_by_name.into_iter().enumerate();
    let series: Vec<Series> = with_number
        .map(|(number, (name, mut points))| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series {
                name,
                number,
                points,
            }
        })
        .collect();
    (!series.is_empty()).then(|| Chart {
        title: figure.to_owned(),
        legend: legend(&series),
        svg: lines((flag, unit(figure)), &series),
        table: None,
    })
}

fn latencies(scenario: &ScenarioReport, name: &str) -> Chart {
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for (number, (run, column)) in scenario.columns().enumerate() {
        let Some(counts) = column.histograms.get(name) else {
            continue;
        };
        let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0]
            .map(|share| histogram::quantile(counts, share).map_or("–".to_owned(), short));
        rows.push((run.heading(column), quantiles.to_vec()));
        let points = histogram::slower(counts).into_iter();
        series.push(Series {
            name: run.heading(column),
            number,
            // A logarithmic axis has no place for 0.
            points: points.filter(|point| point.0 > 0.0).collect(),
        });
    }
    let headings = ["p50, ms", "p90, ms", "p99, ms", "p99.9, ms", "max, ms"].map(str::to_owned);
    Chart {
        title: format!("{name}: share of events that took longer"),
        legend: legend(&series),
        svg: lines(("ms", "share that took longer"), &series),
        table: Some(Table {
            headings: headings.to_vec(),
            rows,
        }),
    }
}

fn legend(series: &[Series]) -> Vec<Key> {
    let key = |one: &Series| {
        let (colour, is_dashed) = chart::colour(one.number);
        Key {
            name: one.name.clone(),
            colour,
            is_dashed,
        }
    };
    series.iter().map(key).collect()
}

/// The number that ends a flag's value: 1,000 in `pods=1000`.
fn number_in(size: &str) -> Option<f64> {
    let is_other = |letter: char| !letter.is_ascii_digit() && letter != '.';
    let begin = size.rfind(is_other).map_or(0, |at| at + 1);
    size[begin..].parse().ok()
}
