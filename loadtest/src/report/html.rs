//! The report as one page that needs nothing else: style and plots are in it, scripts are not.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::axis::{self, AxisKind};
use super::chart::{Bar, Series, Side, bars, class, escape, lines};
use super::figure::Figure;
use super::markdown::{TableRow, figures, filled, headings, name, ratios, remarks, targets};
use super::number::{short, unit};
use super::{Report, RunReport, ScenarioReport, histogram};

/// The page's style, with the colours of the charts.
const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn page(report: &Report) -> String {
    let machine = &report.machine;
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Load test of {0}</title><style>{STYLE}</style></head><body><main><h1>Load test of {0}</h1><p>{1} processors ({2}), {3} MiB, Linux {4}</p>",
        escape(&report.begun_at),
        machine.cores,
        escape(&machine.processor),
        machine.memory_mib,
        escape(&machine.kernel),
    );
    let _ = write!(html, "<pre>{}</pre><p>", escape(&report.command));
    for (program, version) in &report.versions {
        let _ = write!(html, "{} {}<br>", escape(program), escape(version));
    }
    let _ = write!(
        html,
        "load before {}, {} % busy",
        escape(&machine.load_before),
        short(machine.busy_before)
    );
    html.push_str("</p><nav>");
    for played in &report.scenarios {
        let bad = played.runs.iter().any(|run| !run.passed());
        let mark = if bad { " ✗" } else { "" };
        let _ = write!(
            html,
            "<a href=\"#{0}\">{0}{mark}</a> ",
            escape(&played.name)
        );
    }
    html.push_str("</nav>");
    for played in &report.scenarios {
        html.push_str(&section(played));
    }
    html.push_str("</main></body></html>\n");
    html
}

fn section(played: &ScenarioReport) -> String {
    let mut html = format!(
        "<section id=\"{0}\"><h2>{0}</h2><p>{1}</p>",
        escape(&played.name),
        escape(played.about.trim())
    );
    if played.scale != 1.0 {
        let _ = write!(
            html,
            "<p>Counts and times × {}: what scenarios are compared by holds at 1.</p>",
            short(played.scale)
        );
    }
    html.push_str(&problems(played));
    if !played.targets.is_empty() {
        html.push_str(&verdicts(&targets(played)));
    }
    html.push_str(&plots(played));
    let headings = headings(played);
    if !headings.is_empty() {
        let ratios = ratios(played);
        if !ratios.is_empty() {
            let (headings, ratios) = filled(&headings, &ratios);
            html.push_str(&table(&headings, &ratios));
        }
        let _ = write!(
            html,
            "<details><summary>All figures</summary>{}</details>",
            table(&headings, &figures(played))
        );
    }
    html.push_str(&commands(played));
    html.push_str("</section>");
    html
}

/// Every remark of every run; faults first because they make the figures worthless.
fn problems(played: &ScenarioReport) -> String {
    let mut html = String::new();
    for run in &played.runs {
        for (kind, what) in remarks(run) {
            let class = if kind == "note" { "note" } else { "fault" };
            let _ = write!(
                html,
                "<p class=\"{class}\">{kind} ({}): {}</p>",
                escape(&name(run)),
                escape(what)
            );
        }
    }
    html
}

fn verdicts(rows: &[TableRow]) -> String {
    let mut html = "<table><thead><tr><th>target</th><th>measured</th><th>bound</th><th></th></tr></thead><tbody>".to_owned();
    for (what, cells) in rows {
        let _ = write!(html, "<tr><th>{}</th>", escape(what));
        for cell in cells {
            let class = cell
                .split(' ')
                .next_back()
                .filter(|word| ["met", "short", "measured", "invalid"].contains(word));
            let _ = write!(
                html,
                "<td class=\"{}\">{}</td>",
                class.unwrap_or_default(),
                escape(cell)
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}

fn table(headings: &[String], rows: &[TableRow]) -> String {
    let mut html = "<div class=\"wide\"><table><thead><tr><th></th>".to_owned();
    for heading in headings {
        let _ = write!(html, "<th>{}</th>", escape(heading));
    }
    html.push_str("</tr></thead><tbody>");
    for (name, cells) in rows {
        let _ = write!(html, "<tr><th>{}</th>", escape(name));
        for cell in cells {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// Cost against size if there are sizes, else bars; and the latencies.
fn plots(played: &ScenarioReport) -> String {
    let mut html = String::new();
    for figure in &played.show {
        let svg = match &played.swept {
            Some(flag) => against_size(played, figure, flag),
            None => side_by_side(played, figure),
        };
        if let Some(svg) = svg {
            let _ = write!(
                html,
                "<figure><figcaption>{}</figcaption>{svg}</figure>",
                escape(figure)
            );
        }
    }
    let mut names: Vec<&String> = played
        .columns()
        .flat_map(|(_, column)| column.histograms.keys())
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        html.push_str(&latencies(played, name));
    }
    html
}

fn side_by_side(played: &ScenarioReport, figure: &str) -> Option<String> {
    let columns: Vec<(String, f64, usize)> = played
        .columns()
        .enumerate()
        .filter_map(|(number, (run, column))| {
            Some((
                run.heading(column),
                ScenarioReport::figure(run, column, figure)?.median()?,
                number,
            ))
        })
        .collect();
    let rows: Vec<Bar<'_>> = columns
        .iter()
        .map(|(name, value, number)| (name.as_str(), *value, *number))
        .collect();
    (!rows.is_empty()).then(|| bars(figure, &rows))
}

fn against_size(played: &ScenarioReport, figure: &str, flag: &str) -> Option<String> {
    let mut lines_by_name: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (run, column) in played.columns() {
        let sizeless = RunReport {
            size: None,
            ..run.clone()
        };
        if let Some((size, value)) = run
            .size
            .as_deref()
            .and_then(number_in)
            .zip(ScenarioReport::figure(run, column, figure).and_then(Figure::median))
        {
            lines_by_name
                .entry(sizeless.heading(column))
                .or_default()
                .push((size, value));
        }
    }
    let series: Vec<Series> = lines_by_name
        .into_iter()
        .enumerate()
        .map(|(number, (name, mut points))| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series {
                name,
                number,
                points,
            }
        })
        .collect();
    let points = series.iter().flat_map(|one| &one.points);
    let kinds = (
        axis::kind(points.clone().map(|point| point.0)),
        axis::kind(points.map(|point| point.1)),
    );
    let sides = (
        Side {
            title: flag,
            kind: kinds.0,
        },
        Side {
            title: unit(figure),
            kind: kinds.1,
        },
    );
    (!series.is_empty()).then(|| {
        format!(
            "{}{}",
            legend(&series),
            lines(figure, sides.0, sides.1, &series)
        )
    })
}

fn latencies(played: &ScenarioReport, name: &str) -> String {
    let mut series = Vec::new();
    let mut rows: Vec<TableRow> = Vec::new();
    for (number, (run, column)) in played.columns().enumerate() {
        let Some(counts) = column.histograms.get(name) else {
            continue;
        };
        let quantiles = [0.5, 0.9, 0.99, 0.999, 1.0]
            .map(|share| histogram::quantile(counts, share).map_or("–".to_owned(), short));
        rows.push((run.heading(column), quantiles.to_vec()));
        // A logarithmic axis begins above nothing.
        let points = histogram::slower(counts)
            .into_iter()
            .filter(|point| point.0 > 0.0)
            .collect();
        series.push(Series {
            name: run.heading(column),
            number,
            points,
        });
    }
    let side = |title| Side {
        title,
        kind: AxisKind::Log,
    };
    let plot = lines(name, side("ms"), side("share that took longer"), &series);
    let headings = ["p50, ms", "p90, ms", "p99, ms", "p99.9, ms", "max, ms"].map(str::to_owned);
    format!(
        "<figure><figcaption>{}: share that took longer than so many ms</figcaption>{}{plot}</figure>{}",
        escape(name),
        legend(&series),
        table(&headings, &rows)
    )
}

fn legend(series: &[Series]) -> String {
    let item = |one: &Series| {
        format!(
            "<span><svg viewBox=\"0 0 24 8\" class=\"key\"><path d=\"M0 4H24\" class=\"line {}\"/></svg>{}</span>",
            class(one.number),
            escape(&one.name)
        )
    };
    format!(
        "<p class=\"legend\">{}</p>",
        series.iter().map(item).collect::<String>()
    )
}

fn commands(played: &ScenarioReport) -> String {
    let mut html = "<details><summary>Commands and times</summary>".to_owned();
    for run in &played.runs {
        let _ = write!(
            html,
            "<p>{}: {} s, load before {}</p><pre>{}</pre>",
            escape(&name(run)),
            short(run.took_s),
            escape(&run.load_before),
            escape(&run.commands.join("\n"))
        );
    }
    html.push_str("</details>");
    html
}

/// The number that ends a flag's value: `pods=1000` is 1,000.
fn number_in(size: &str) -> Option<f64> {
    let begin = size
        .rfind(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .map_or(0, |at| at + 1);
    size[begin..].parse().ok()
}
