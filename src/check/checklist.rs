//! Makes one check after the other: each within its own time, all within the time of a run, and those of the chosen categories only.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::catalogue::{self, CheckSpec};
use super::report::{CheckEntry, CheckReport};
use super::verdict::CheckVerdict;
use crate::config::CheckCategory;

/// A server that answers at all answers small requests within a fraction of this.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);
/// Checks of many requests, or of one long list.
const LONG_TIME_MAX: Duration = Duration::from_secs(30);
/// Enough for every check to take as long as it does with an API server that is under load, or to fail with one that is silent.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);

/// The checks of one run.
pub(super) struct Checklist<'a> {
    categories: &'a [CheckCategory],
    report: CheckReport,
    until: Instant,
    shows_progress: bool,
}

impl<'a> Checklist<'a> {
    pub(super) fn new(categories: &'a [CheckCategory]) -> Self {
        Self {
            categories,
            report: CheckReport::default(),
            until: Instant::now() + RUN_TIME_MAX,
            shows_progress: std::io::stderr().is_terminal(),
        }
    }

    /// The report of all checks so far.
    pub(super) fn finish(mut self) -> CheckReport {
        let place = |spec: &CheckSpec| catalogue::CATALOGUE.iter().position(|one| *one == spec);
        self.report.results.sort_by_key(|result| place(result.spec));
        if self.shows_progress {
            clear_line();
        }
        self.report
    }

    pub(super) fn is_chosen(&self, category: CheckCategory) -> bool {
        self.categories.contains(&category)
    }

    /// Makes a check of a chosen category; returns whether it did not fail.
    pub(super) async fn make(
        &mut self,
        spec: &'static CheckSpec,
        check: impl Future<Output = CheckVerdict>,
    ) -> bool {
        if !self.is_chosen(spec.category) {
            return true;
        }
        self.require(spec, check).await
    }

    /// Makes a check on which others depend. It is reported if its category is chosen, or if it fails.
    pub(super) async fn require(
        &mut self,
        spec: &'static CheckSpec,
        check: impl Future<Output = CheckVerdict>,
    ) -> bool {
        if self.shows_progress {
            show_line(spec.name);
        }
        let (began, limit) = (Instant::now(), time_max(spec));
        let verdict = timeout_at(self.until.min(began + limit), Box::pin(check)).await;
        let verdict =
            verdict.unwrap_or_else(|_| overdue(spec, limit, self.until <= Instant::now()));
        let is_good = !verdict.is_failure();
        if self.is_chosen(spec.category) || !is_good {
            self.report.results.push(CheckEntry {
                spec,
                verdict,
                elapsed: began.elapsed(),
            });
        }
        is_good
    }

    /// Reports a check of a chosen category that was not made.
    pub(super) fn skip(&mut self, spec: &'static CheckSpec, reason: &str) {
        if self.is_chosen(spec.category) {
            self.report.results.push(CheckEntry {
                spec,
                verdict: CheckVerdict::skipped(reason),
                elapsed: Duration::ZERO,
            });
        }
    }

    /// Reports all checks of a category that were not made yet.
    pub(super) fn skip_rest(&mut self, category: CheckCategory, reason: &str) {
        let is_missing = |spec: &&&CheckSpec| {
            let results = &self.report.results;
            spec.category == category && !results.iter().any(|result| result.spec.name == spec.name)
        };
        let missing: Vec<&'static CheckSpec> = catalogue::CATALOGUE
            .iter()
            .filter(is_missing)
            .copied()
            .collect();
        for spec in missing {
            self.skip(spec, reason);
        }
    }
}

const fn time_max(spec: &CheckSpec) -> Duration {
    match spec.category {
        CheckCategory::Rights | CheckCategory::Features | CheckCategory::Live => LONG_TIME_MAX,
        CheckCategory::Upstream
        | CheckCategory::Certificates
        | CheckCategory::Limits
        | CheckCategory::Clock
        | CheckCategory::Handover
        | CheckCategory::Gateway
        | CheckCategory::Admin => CHECK_TIME_MAX,
    }
}

fn overdue(spec: &CheckSpec, limit: Duration, is_run_over: bool) -> CheckVerdict {
    if is_run_over {
        return CheckVerdict::failure(
            format!(
                "not made: all checks together took longer than {} s",
                RUN_TIME_MAX.as_secs()
            ),
            "look at the checks above that took long, or make one category at a time with --category",
        );
    }
    let hint = if is_local(spec) {
        "look for a file that cannot be read at once, such as a pipe or one on a network, and for a plugin of the kubeconfig that waits"
    } else {
        "the server accepts connections and does not answer: look at its load, and at proxies and network policies on the way"
    };
    CheckVerdict::failure(format!("no result within {} s", limit.as_secs()), hint)
}

/// Whether the check only reads files and runs programs.
fn is_local(spec: &CheckSpec) -> bool {
    let local = [CheckCategory::Certificates, CheckCategory::Limits];
    local.contains(&spec.category) || *spec == catalogue::UPSTREAM_CONFIG
}

/// Progress goes to a terminal only, and whether it can be written does not matter.
fn show_line(name: &str) {
    let _ = write!(std::io::stderr(), "\r\u{1b}[2Kchecking {name} …");
}

fn clear_line() {
    let _ = write!(std::io::stderr(), "\r\u{1b}[2K");
}
