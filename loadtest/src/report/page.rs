//! docs/PERFORMANCE.md, made from the committed report, and the figures that README quotes.

use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::claim::Claim;
use super::markdown::{name, remarks, table};
use super::number::short;
use super::{Report, ScenarioReport};

/// The start of the page.
const TITLE: &str = "# Performance\n\nMade by `loadtest/performance.sh` from [report.json](performance/report.json); not to be edited. ";
/// How the page is made, and how long that takes.
const HOW: &str = "That command measures everything again, in about an hour, on a machine with nothing else to do.
";
/// The meaning of the columns.
const LEGEND: &str = "
*Measured* is the median of all runs, the lowest and the highest in parentheses. How targets are judged, and what the rows mean:
[loadtest/README.md](../loadtest/README.md#what-the-figures-mean). Figures of benches that have no target are in the report alone.
";
/// Stands for all figures if there is no report.
const NOTHING: &str = "No measured report is committed.\n";
/// Marks around a figure that README quotes: the name of the claim is between the first two.
const QUOTE: [&str; 3] = ["<!-- figure: ", " -->", "<!-- end -->"];
/// The claim's name for place and time of the measurement.
const BUILD: &str = "build";

/// The page; without a report it says that there is none.
pub fn page(report: Option<&Report>) -> String {
    let mut text = format!("{TITLE}{HOW}\n");
    match report {
        None => text += NOTHING,
        Some(report) => write_measurements(&mut text, report),
    }
    text
}

fn write_measurements(text: &mut String, report: &Report) {
    let machine = &report.machine;
    let _ = writeln!(
        text,
        "Measured at commit `{}` on {} in {} minutes: {} processors ({}), {} MiB, Linux {}; load average before {}, {} % busy.\n{LEGEND}",
        report.commit,
        report.begun_at,
        short((report.took_s / 60.0).round()),
        machine.cores,
        machine.processor,
        machine.memory_mib,
        machine.kernel,
        machine.load_before,
        short(machine.busy_before),
    );
    let targets = || {
        report
            .claims
            .iter()
            .filter(|claim| !claim.target.is_empty())
    };
    let count = |verdict: &str| targets().filter(|claim| claim.verdict == verdict).count();
    let _ = writeln!(
        text,
        "Of {} targets {} are met, {} are missed, {} invalid, {} not measured.",
        targets().count(),
        count("met"),
        count("short"),
        count("invalid"),
        count("not measured"),
    );
    for played in &report.scenarios {
        section(text, report, played);
    }
}

fn section(text: &mut String, report: &Report, played: &ScenarioReport) {
    let headings = ["measured", "target", "verdict"].map(str::to_owned);
    // Benches measure many figures beside the few that are judged.
    let is_bench = played.name.starts_with("bench ");
    let claims = report
        .claims
        .iter()
        .filter(|claim| claim.scenario == played.name)
        .filter(|claim| !is_bench || !claim.target.is_empty());
    let rows: Vec<_> = claims
        .map(|claim| {
            let cells = [
                claim.measured.as_str(),
                target(claim),
                claim.verdict.as_str(),
            ];
            (claim.what.clone(), cells.map(str::to_owned).to_vec())
        })
        .collect();
    if is_bench && rows.is_empty() {
        return;
    }
    let about = first_sentence(&played.about);
    let _ = write!(text, "\n## {}\n\n{about}\n\n", played.name);
    if !played.command.is_empty() {
        let _ = writeln!(text, "`{}`\n", played.command);
    }
    if played.scale != 1.0 {
        let factor = short(played.scale);
        let _ = writeln!(
            text,
            "Counts and times × {factor}: the figures mean nothing.\n"
        );
    }
    if !rows.is_empty() {
        *text += &table("", &headings, &rows);
    }
    for run in &played.runs {
        for (kind, what) in remarks(run).filter(|(kind, _)| *kind != "note") {
            let _ = writeln!(
                text,
                "\n{kind} ({}): {}",
                name(run),
                what.replace('\n', " ")
            );
        }
    }
}

/// What the page says of a scenario; the rest is in its file.
fn first_sentence(about: &str) -> &str {
    let about = about.trim();
    about.find(". ").map_or(about, |end| &about[..=end])
}

/// The target without the reference of a ratio, which the row's name and the report have.
fn target(claim: &Claim) -> &str {
    let target = claim.target.as_str();
    let reference = claim.reference.strip_prefix("ratio to ");
    reference
        .and_then(|reference| target.strip_suffix(reference))
        .map_or(target, str::trim_end)
}

/// README's text about the report as a whole.
fn build(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "Measured at commit `{}` ({}, {} processors, {})",
        report.commit,
        report.begun_at.split('T').next().unwrap_or_default(),
        machine.cores,
        machine.processor,
    )
}

/// Replaces the quoted figures of a text by those of the report: `<!-- figure: SCENARIO: WHAT -->…<!-- end -->`.
pub fn insert_quotes(text: &str, report: &Report) -> Result<String> {
    let [begin, between, end] = QUOTE;
    let mut parts = text.split(begin);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (key, rest) = part
            .split_once(between)
            .with_context(|| format!("a mark without {between}"))?;
        let (_, rest) = rest
            .split_once(end)
            .with_context(|| format!("{key}: no {end} behind the figure"))?;
        let quote = if key == BUILD {
            build(report)
        } else {
            let of = |claim: &&Claim| format!("{}: {}", claim.scenario, claim.what) == key;
            let Some(claim) = report.claims.iter().find(of) else {
                bail!("{key}: the report has no such row");
            };
            claim.quote.clone()
        };
        let _ = write!(made, "{begin}{key}{between}{quote}{end}{rest}");
    }
    Ok(made)
}
