//! The report of all checks, as text and as JSON. docs/CHECK.md describes the JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::catalogue::CheckSpec;
use super::verdict::{CheckLevel, CheckVerdict};
use super::words::counted;
use crate::cli::choice_name;

/// The version of the JSON document. It changes when a field changes its meaning or goes.
pub const REPORT_VERSION: u32 = 1;

/// A check that was made.
#[derive(Clone, Debug)]
pub struct CheckEntry {
    /// Which one.
    pub spec: &'static CheckSpec,
    /// What it found.
    pub verdict: CheckVerdict,
    /// How long it took.
    pub elapsed: Duration,
}

/// All checks that were made, in their order.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The checks.
    pub results: Vec<CheckEntry>,
}

/// How many checks ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckCounts {
    /// As they should be.
    pub ok: usize,
    /// With warnings.
    pub warning: usize,
    /// Failed.
    pub failure: usize,
    /// Not made.
    pub skipped: usize,
}

#[derive(Serialize)]
struct ReportDocument<'a> {
    version: u32,
    program: &'static str,
    level: CheckLevel,
    counts: CheckCounts,
    checks: Vec<CheckDocument<'a>>,
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    name: &'static str,
    category: String,
    title: &'static str,
    level: CheckLevel,
    message: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    details: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
    see: String,
    milliseconds: u64,
}

impl CheckReport {
    /// The worst level: failure if any check failed.
    #[must_use]
    pub fn level(&self) -> CheckLevel {
        let counts = self.counts();
        if counts.failure > 0 {
            CheckLevel::Failure
        } else if counts.warning > 0 {
            CheckLevel::Warning
        } else {
            CheckLevel::Ok
        }
    }

    /// How many checks ended in each way.
    #[must_use]
    pub fn counts(&self) -> CheckCounts {
        let mut counts = CheckCounts::default();
        for result in &self.results {
            match result.verdict.level {
                CheckLevel::Ok => counts.ok += 1,
                CheckLevel::Skipped => counts.skipped += 1,
                CheckLevel::Warning => counts.warning += 1,
                CheckLevel::Failure => counts.failure += 1,
            }
        }
        counts
    }

    /// Lines for people, with colours if `color`.
    #[must_use]
    pub fn text(&self, color: bool) -> String {
        let mut text = String::new();
        let mut category = None;
        for CheckEntry { spec, verdict, .. } in &self.results {
            if category.replace(spec.category) != Some(spec.category) {
                let _ = writeln!(text, "{}", choice_name(spec.category));
            }
            let level = painted(verdict.level, color);
            let _ = writeln!(text, "  {level}  {:<20}  {}", spec.name, verdict.message);
            for detail in &verdict.details {
                let _ = writeln!(text, "{:INDENT$}- {detail}", "");
            }
            if !verdict.hint.is_empty() {
                let _ = writeln!(text, "{:INDENT$}do:  {}", "", verdict.hint);
                let _ = writeln!(text, "{:INDENT$}see: {}", "", spec.section());
            }
        }
        let CheckCounts {
            ok,
            warning,
            failure,
            skipped,
        } = self.counts();
        let total = counted(self.results.len(), ("check", "checks"));
        let warnings = counted(warning, ("warning", "warnings"));
        let failures = counted(failure, ("failure", "failures"));
        let _ = writeln!(
            text,
            "\n{total}: {ok} ok, {warnings}, {failures}, {skipped} skipped"
        );
        text
    }

    /// One JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        let checks = self.results.iter().map(|result| CheckDocument {
            name: result.spec.name,
            category: choice_name(result.spec.category),
            title: result.spec.title,
            level: result.verdict.level,
            message: &result.verdict.message,
            details: &result.verdict.details,
            hint: &result.verdict.hint,
            see: result.spec.section(),
            milliseconds: u64::try_from(result.elapsed.as_millis()).unwrap_or(u64::MAX),
        });
        let document = ReportDocument {
            version: REPORT_VERSION,
            program: env!("CARGO_PKG_VERSION"),
            level: self.level(),
            counts: self.counts(),
            checks: checks.collect(),
        };
        // Strings and numbers can always be written.
        let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Columns before the text of a check: the level and the name.
const INDENT: usize = 33;

fn painted(level: CheckLevel, color: bool) -> String {
    let word = level.as_str();
    let code = match level {
        CheckLevel::Ok => "32",
        CheckLevel::Skipped => "2",
        CheckLevel::Warning => "33",
        CheckLevel::Failure => "1;31",
    };
    if color {
        format!("\u{1b}[{code}m{word:<7}\u{1b}[0m")
    } else {
        format!("{word:<7}")
    }
}
