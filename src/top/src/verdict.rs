//! What an operator has to know first: how well the gateway is, in one sentence, and why.

use crate::status::{CutStatus, ResourceStatus, StatusDocument, TotalStatus};

use super::words::{clean, clients, counted, separated, time};

/// A cut after which the verdict still warns.
const RECENT_SECONDS: f64 = 300.0;
/// A gateway without clients that is not ready so soon after its start is starting.
const STARTING_SECONDS: u64 = 60;
/// Resources without upstream that the verdict names.
const DOWN_NAMED_MAX: usize = 5;
/// The gateway remembers no more cuts than this.
const CUTS_MAX: usize = 50;
const RESOURCES: (&str, &str) = ("resource", "resources");

/// How well something is. The mark and the words say the same as the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Good,
    Warn,
    Bad,
}

impl Severity {
    pub(super) fn mark(self) -> char {
        match self {
            Self::Good => '✓',
            Self::Warn => '▼',
            Self::Bad => '◆',
        }
    }
}

/// What is wrong.
struct StatusTroubles<'a> {
    lost: usize,
    endangered: usize,
    /// Watches that were cut lately.
    recent: usize,
    /// Watches that wait for a version that upstream has not reached.
    future: usize,
    /// Watches that have not taken all of their initial events.
    initial: usize,
    /// Resources without upstream.
    down: Vec<&'a ResourceStatus>,
    is_starting: bool,
}

impl<'a> StatusTroubles<'a> {
    fn of(status: &'a StatusDocument) -> Self {
        let resources = || status.resources.iter();
        let is_recent = |cut: &&CutStatus| cut.seconds_ago < RECENT_SECONDS;
        let is_down = |one: &&ResourceStatus| one.ready && !one.upstream.connected;
        let gateway = &status.gateway;
        Self {
            lost: resources().map(|one| one.cursors.lost).sum(),
            endangered: resources().map(|one| one.cursors.endangered).sum(),
            future: resources().map(|one| one.cursors.future).sum(),
            initial: resources().map(|one| one.cursors.initial).sum(),
            recent: status.cuts.iter().filter(is_recent).count(),
            down: resources().filter(is_down).collect(),
            is_starting: !gateway.ready
                && gateway.uptime_seconds < STARTING_SECONDS
                && status.totals.watches == 0,
        }
    }

    fn notes(&self, status: &StatusDocument) -> Vec<String> {
        let gateway = &status.gateway;
        // A gateway that drains is not ready on purpose.
        let failing = gateway.failing.iter().filter(|_| !gateway.draining);
        let mut notes: Vec<_> = failing
            .map(|text| format!("Not ready: {}", clean(text)))
            .collect();
        let limitation = status.gateway.limitation.iter();
        notes.extend(limitation.map(|text| format!("Limited: {}", clean(text))));
        for one in self.down.iter().take(DOWN_NAMED_MAX) {
            notes.push(format!(
                "No upstream watch of {}: clients see it as it was {} ago.",
                clean(&one.name),
                time(one.upstream.age_seconds)
            ));
        }
        let is_verdict =
            gateway.ready && !gateway.draining && self.down.is_empty() && status.totals.slow == 0;
        if self.recent > 0 && !is_verdict {
            notes.push(self.cut_words());
        }
        if self.future > 0 {
            notes.push(format!(
                "{} for a version that upstream has not reached.",
                counted(self.future, ("client waits", "clients wait"))
            ));
        }
        if self.initial > 0 {
            notes.push(format!(
                "{} {} receiving initial events or catching up.",
                clients(self.initial),
                are(self.initial)
            ));
        }
        if !self.down.is_empty() {
            notes.push("What to do: docs/ALERTS.md#kubefanoutupstreamwatchdown".to_owned());
        } else if self.lost + self.endangered > 0 {
            notes.push("What to do: docs/ALERTS.md#kubefanoutclientscutforlag".to_owned());
        }
        notes
    }
}

impl StatusTroubles<'_> {
    /// How many clients were cut lately.
    fn cut_words(&self) -> String {
        let cut = clients(self.recent);
        match self.recent {
            1 => format!("{cut} was cut in the last 5 minutes."),
            count if count < CUTS_MAX => format!("{cut} were cut in the last 5 minutes."),
            _ => format!("{cut} or more were cut in the last 5 minutes."),
        }
    }

    /// How many clients are slow, and how many of them are in danger: each is counted once.
    fn lag_words(&self, totals: &TotalStatus) -> String {
        let slow = match (totals.slow, totals.watches) {
            (0, 0) => return "No client watches.".to_owned(),
            (0, _) if self.recent > 0 => return self.cut_words(),
            // Some may be in their initial events, or behind for a moment.
            (0, _) => return "No client is slow.".to_owned(),
            (1, 1) => "The only client is slow".to_owned(),
            (slow, all) => format!("{} of {} {} slow", clients(slow), separated(all), are(slow)),
        };
        let parts = [
            (self.lost, "out of the history"),
            (self.endangered, "may be cut soon"),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(count, _)| *count > 0).collect();
        match &*parts {
            [] => format!("{slow}."),
            [(count, what)] if *count == totals.slow => format!("{slow} and {what}."),
            _ => {
                let counts = parts
                    .iter()
                    .map(|(count, what)| format!("{} {what}", separated(*count)));
                format!("{slow}: {}.", counts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// What an operator has to know first.
pub(super) fn verdict(status: &StatusDocument) -> ((Severity, String), Vec<String>) {
    let (totals, is_ready) = (&status.totals, status.gateway.ready);
    let troubles = StatusTroubles::of(status);
    let mut notes = troubles.notes(status);
    let is_down = !troubles.down.is_empty();
    let text = if status.gateway.draining {
        if totals.slow > 0 {
            notes.insert(0, troubles.lag_words(totals));
        }
        "The gateway is draining: its clients move to others.".to_owned()
    } else if is_down {
        if totals.slow > 0 {
            notes.insert(0, troubles.lag_words(totals));
        }
        down_words(troubles.down.len(), status.resources.len())
    } else if is_ready || totals.slow > 0 {
        troubles.lag_words(totals)
    } else if troubles.is_starting {
        "The gateway is starting.".to_owned()
    } else {
        "The gateway is not ready.".to_owned()
    };
    let is_unready = !is_ready && !troubles.is_starting;
    let severity = if status.gateway.draining {
        Severity::Warn
    } else if is_down || is_unready || troubles.endangered + troubles.lost > 0 {
        Severity::Bad
    } else if totals.slow > 0 || troubles.recent > 0 || !is_ready {
        Severity::Warn
    } else {
        Severity::Good
    };
    ((severity, text), notes)
}

/// How many resources have no upstream.
fn down_words(down: usize, all: usize) -> String {
    if down == all {
        return "Upstream is gone: clients see an old state.".to_owned();
    }
    format!(
        "{} of {} {} lost upstream: clients see an old state.",
        separated(down),
        counted(all, RESOURCES),
        if down == 1 { "has" } else { "have" }
    )
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
