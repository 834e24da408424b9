//! The totals in sentences, for the table and the page.

use super::document::{AssessDocument, FlowDocument};
use super::figures::{figure, percent};
use crate::numbers::counted;

/// The lines of the totals, each with the basis of its figures.
pub(super) fn totals(document: &AssessDocument) -> Vec<(&'static str, String)> {
    let totals = &document.totals;
    let mut lines = vec![
        ("Now", format!("{} (measured)", flow(&totals.now))),
        (
            "A gateway takes over",
            format!("{} (calculated)", flow(&totals.taken)),
        ),
        (
            "It asks in its place",
            format!("{} (calculated)", flow(&totals.asked)),
        ),
        (
            "Saved",
            format!(
                "{}; CPU at most {} cores (a bound)",
                flow(&totals.net),
                figure(totals.cpu_at_most)
            ),
        ),
    ];
    if let Some(unexplained) = &totals.unexplained {
        let now = &totals.now;
        let text = format!(
            "{} of the watches, {} of the requests, {} of the events (calculated)",
            percent(unexplained.watches, now.watches),
            percent(unexplained.requests_per_second, now.requests_per_second),
            percent(unexplained.events_per_second, now.events_per_second),
        );
        lines.push(("Not explained by the audit log", text));
    }
    lines
}

/// What the assessment is made from.
pub(super) fn origin(document: &AssessDocument) -> String {
    let servers = counted(document.servers as u64, ("API server", "API servers"));
    let gateways = counted(u64::from(document.gateways), ("gateway", "gateways"));
    let encodings = counted(u64::from(document.encodings), ("encoding", "encodings"));
    let audit = match document.audit_seconds {
        Some(seconds) => format!("audit logs of {} s", figure(seconds)),
        None => "no audit log, so clients are not told apart".to_owned(),
    };
    format!(
        "{servers}, scrapes {} s apart, {audit}; {gateways}, {encodings} of the resources of Kubernetes itself",
        figure(document.window_seconds)
    )
}

fn flow(flow: &FlowDocument) -> String {
    format!(
        "{} watches, {} requests/s, {} events/s, {} MB/s",
        figure(flow.watches),
        figure(flow.requests_per_second),
        figure(flow.events_per_second),
        figure(flow.megabytes_per_second)
    )
}
