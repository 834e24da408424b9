//! `kube-fanout check`: whether the gateway will work, before and after it is installed (docs/CHECK.md).
//!
//! `catalogue` names every check, `checklist` makes them within bounds, `report` writes what they found. Each category has a file that
//! looks: `upstream`, `files`, `permissions`, `features` with `aggregation` and `api_services`, `machine`, `peers`, `clients`, `admin_port`.
//! What they see is judged without IO: `certificates`, `clock`, `comparison`, `limits`, `rights`, `versions`. Everything that a server sends
//! is bounded where it is read, and cleaned in `verdict`.

mod admin_port;
mod aggregation;
mod api_services;
mod authorizers;
mod catalogue;
mod certificates;
mod checklist;
mod clients;
mod clock;
mod comparison;
mod features;
mod files;
mod handshake;
mod limits;
mod machine;
mod parallel;
mod peers;
mod permissions;
mod report;
mod requests;
mod rights;
mod upstream;
mod verdict;
mod versions;
mod watching;
mod words;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::config::{CheckCategory, CheckSettings, OutputFormat};
use crate::shutdown::Drain;
pub use catalogue::{CATALOGUE, CheckSpec, PAGE, list};
use checklist::Checklist;
pub use report::{CheckCounts, CheckEntry, CheckReport, REPORT_VERSION};
pub use verdict::{CheckLevel, CheckVerdict};

#[cfg(test)]
mod tests;

/// The pause before checks that failed are repeated.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);
/// Categories that need no API server, which may be out of reach where only these are checked.
const LOCAL: [CheckCategory; 2] = [CheckCategory::Limits, CheckCategory::Admin];
const NO_LINK: &str = "the API server cannot be used: see the checks of upstream";

/// Makes the checks, again and again while one fails and `--wait` allows; returns the last report. The drain ends it early.
pub async fn run(settings: &CheckSettings, drain: Drain) -> Option<CheckReport> {
    let until = Instant::now() + settings.wait;
    loop {
        let report = tokio::select! {
            report = check_once(settings) => report,
            () = drain.begun() => return None,
        };
        let is_over = Instant::now() + WAIT_INTERVAL > until;
        if report.level() != CheckLevel::Failure || is_over {
            return Some(report);
        }
        tokio::select! {
            () = sleep(WAIT_INTERVAL) => {}
            () = drain.begun() => return None,
        }
    }
}

/// The report as it is printed; colours are for a terminal.
#[must_use]
pub fn written(report: &CheckReport, settings: &CheckSettings, is_terminal: bool) -> String {
    match settings.output {
        OutputFormat::Text => report.text(is_terminal && settings.color),
        OutputFormat::Json => report.json(),
    }
}

/// Makes all chosen checks once.
pub async fn check_once(settings: &CheckSettings) -> CheckReport {
    let mut list = Checklist::new(&settings.categories);
    let is_local = settings
        .categories
        .iter()
        .all(|category| LOCAL.contains(category));
    let link = match is_local {
        true => None,
        false => upstream::check(&mut list, settings).await,
    };
    // Credentials that the API server refuses may have expired, which the files tell.
    files::check(&mut list, settings, link.as_ref()).await;
    let link = link.filter(|link| link.is_usable);
    match &link {
        None => {
            list.skip_rest(CheckCategory::Rights, NO_LINK);
            list.skip_rest(CheckCategory::Features, NO_LINK);
            list.skip_rest(CheckCategory::Clock, NO_LINK);
        }
        Some(link) => {
            permissions::check(&mut list, settings, link).await;
            features::check(&mut list, settings, link).await;
            machine::check_clock(&mut list, link).await;
        }
    }
    machine::check(&mut list, settings).await;
    peers::check(&mut list, settings, link.as_ref()).await;
    clients::check(&mut list, settings, link.as_ref()).await;
    admin_port::check(&mut list, settings).await;
    list.finish()
}
