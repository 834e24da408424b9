//! What is shown, made of the document and the one before it: words and numbers, sorted and filtered. It knows no terminal.

use crate::settings::TopSort;
use crate::status::{
    ClientStatus, CutStatus, LagState, ResourceStatus, RingStatus, ShadowStatus, SlowGroup,
    StatusDocument, TotalStatus, TrafficStatus,
};

use super::groups::client_groups;
use super::talkers::TalkerRows;
use super::verdict::{Severity, verdict};
use super::words::{bytes, clean, counted, event_rate, or_dash, separated, time};

/// The whole page.
#[derive(Clone, Debug)]
pub(super) struct TopPage {
    pub(super) build: String,
    pub(super) verdict: (Severity, String),
    pub(super) notes: Vec<String>,
    pub(super) totals: Vec<(&'static str, String)>,
    pub(super) resources: Vec<ResourceRow>,
    pub(super) omitted: usize,
    pub(super) slow: Vec<[String; 6]>,
    pub(super) slow_groups: Vec<[String; 4]>,
    /// Slow clients in all, or those that match the filter.
    pub(super) slow_count: usize,
    /// Which slow clients the document names, and which its groups count, if these are not all.
    pub(super) slow_note: Option<String>,
    pub(super) group_note: Option<String>,
    pub(super) is_filtered: bool,
    pub(super) cuts: Vec<[String; 6]>,
    pub(super) talkers: TalkerRows,
}

/// One resource.
#[derive(Clone, Debug)]
pub(super) struct ResourceRow {
    pub(super) name: String,
    pub(super) severity: Severity,
    pub(super) state: String,
    pub(super) clients: String,
    pub(super) facts: Vec<String>,
    pub(super) note: String,
    /// Watches in each part of the history; empty without a history.
    pub(super) columns: Vec<u32>,
    pub(super) slow: Vec<SlowMark>,
    /// What is at the left edge and at the right edge of the history.
    pub(super) edges: (String, String),
    /// The same where there is little room.
    pub(super) short_edges: (String, String),
}

/// A slow client in the picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlowMark {
    pub(super) position: f64,
    pub(super) state: LagState,
    pub(super) label: String,
}

impl TopPage {
    /// The page of `now`. Names are matched with `filter` without regard to case.
    pub(super) fn new(
        earlier: Option<&StatusDocument>,
        now: &StatusDocument,
        sort: TopSort,
        filter: &str,
    ) -> Self {
        let (verdict, notes) = verdict(now);
        let filter = NameFilter(filter.to_lowercase());
        let gateway = &now.gateway;
        let is_filtered = !filter.0.is_empty();
        let named: Vec<_> = now.slowest.iter().filter(|one| is_slow(one)).collect();
        let grouped = now.slow_groups.iter().map(|one| one.watches).sum();
        let slow: Vec<_> = named
            .iter()
            .filter(|one| filter.has_client(one))
            .map(|one| slow_row(one))
            .collect();
        let selection = |count, order| selection(count, now.totals.slow, order, is_filtered);
        Self {
            build: format!(
                "{} ({}), up {}",
                clean(&gateway.version),
                clean(&gateway.commit),
                time(gateway.uptime_seconds as f64)
            ),
            verdict,
            notes,
            totals: totals(earlier, now),
            resources: resources(earlier, now, sort, &filter),
            omitted: now.resources_omitted,
            slow_count: if is_filtered {
                slow.len()
            } else {
                now.totals.slow
            },
            slow_note: selection(named.len(), "the longest wait first"),
            group_note: selection(grouped, "the largest groups first"),
            is_filtered,
            slow,
            slow_groups: now
                .slow_groups
                .iter()
                .filter(|one| filter.has(&[&one.user, &one.user_agent]))
                .map(group_row)
                .collect(),
            cuts: now
                .cuts
                .iter()
                .filter(|cut| {
                    filter.has(&[&cut.user, &cut.user_agent, &cut.address, &cut.resource])
                })
                .map(cut_row)
                .collect(),
            talkers: TalkerRows::new(now, |one| filter.has(&[&one.name]), name),
        }
    }
}

/// Text that a name has to contain, in lower case.
struct NameFilter(String);

impl NameFilter {
    fn has(&self, names: &[&str]) -> bool {
        names
            .iter()
            .any(|name| name.to_lowercase().contains(&self.0))
    }

    fn has_client(&self, one: &ClientStatus) -> bool {
        self.has(&[&one.user, &one.user_agent, &one.address, &one.resource])
    }
}

fn is_slow(client: &ClientStatus) -> bool {
    client.state != LagState::Behind
}

/// Which of the slow clients a table can show; `None` if it can show all of them.
fn selection(count: usize, slow: usize, order: &str, is_filtered: bool) -> Option<String> {
    if count >= slow {
        return None;
    }
    let of_all = format!("{} of {} slow clients", separated(count), separated(slow));
    Some(if is_filtered {
        format!("Found among {of_all}")
    } else {
        format!("{of_all}, {order}")
    })
}

/// Resources that match by their own names or by those of their slow clients.
fn resources(
    earlier: Option<&StatusDocument>,
    now: &StatusDocument,
    sort: TopSort,
    filter: &NameFilter,
) -> Vec<ResourceRow> {
    let is_shown = |one: &&ResourceStatus| {
        let mut clients = now
            .slowest
            .iter()
            .filter(|client| client.resource == one.name);
        filter.has(&[&one.name]) || clients.any(|client| filter.has_client(client))
    };
    let with_rates = |one| (one, Rates::of_resource(earlier, now, one));
    let mut shown: Vec<(&ResourceStatus, Rates)> = now
        .resources
        .iter()
        .filter(is_shown)
        .map(with_rates)
        .collect();
    order(&mut shown, sort);
    shown
        .into_iter()
        .map(|(one, rates)| row(now, one, rates))
        .collect()
}

fn slow_row(client: &ClientStatus) -> [String; 6] {
    [
        name(&client.user),
        name(&client.user_agent),
        clean(&client.address),
        clean(&client.resource),
        waiting(client),
        separated(client.lag_events),
    ]
}

/// How badly a client is behind, and since when.
fn waiting(client: &ClientStatus) -> String {
    let time = time(client.lag_seconds);
    match client.state {
        LagState::Behind | LagState::Slow => format!("▼ {time}"),
        LagState::Endangered => format!("◆ {time}"),
        LagState::Lost => format!("✕ >{time}"),
    }
}

fn group_row(group: &SlowGroup) -> [String; 4] {
    [
        name(&group.user),
        name(&group.user_agent),
        separated(group.watches),
        time(group.lag_seconds),
    ]
}

/// Events and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) events: Option<f64>,
    pub(super) bytes: Option<f64>,
}

impl Rates {
    /// The gateway's own rates; if it has none, because nobody looked lately, those between the two documents.
    pub(super) fn between(
        earlier: Option<(u64, TrafficStatus)>,
        (at, now): (u64, TrafficStatus),
    ) -> Self {
        let seconds = earlier.map_or(0.0, |(before, _)| at.saturating_sub(before) as f64 / 1000.0);
        let rate = |told: Option<f64>, of: fn(TrafficStatus) -> u64| {
            let difference = || {
                let (_, before) = earlier.filter(|_| seconds > 0.0)?;
                // A gateway that was started again counts from zero.
                Some(of(now).checked_sub(of(before))? as f64 / seconds)
            };
            told.or_else(difference)
        };
        Self {
            events: rate(now.events_per_second, |traffic| traffic.events),
            bytes: rate(now.bytes_per_second, |traffic| traffic.bytes),
        }
    }

    fn of_resource(
        earlier: Option<&StatusDocument>,
        now: &StatusDocument,
        one: &ResourceStatus,
    ) -> Self {
        let before = earlier.and_then(|earlier| {
            let same = earlier
                .resources
                .iter()
                .find(|other| other.name == one.name)?;
            Some((earlier.at, same.traffic))
        });
        Self::between(before, (now.at, one.traffic))
    }
}

fn order(shown: &mut [(&ResourceStatus, Rates)], sort: TopSort) {
    // Stable: the gateway's order, by watches, decides among equals.
    match sort {
        TopSort::Watches => shown.sort_by_key(|(one, _)| std::cmp::Reverse(one.cursors.watches)),
        TopSort::Slow => {
            shown.sort_by_key(|(one, _)| std::cmp::Reverse((in_danger(one), one.cursors.slow)))
        }
        TopSort::Events => shown.sort_by(|(_, one), (_, other)| {
            other
                .events
                .unwrap_or(-1.0)
                .total_cmp(&one.events.unwrap_or(-1.0))
        }),
        TopSort::Name => shown.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name)),
    }
}

/// Watches that are cut now or soon.
fn in_danger(one: &ResourceStatus) -> usize {
    one.cursors.endangered + one.cursors.lost
}

fn totals(earlier: Option<&StatusDocument>, now: &StatusDocument) -> Vec<(&'static str, String)> {
    let all = &now.totals;
    let before = earlier.map(|earlier| (earlier.at, earlier.totals.traffic));
    let rates = Rates::between(before, (now.at, all.traffic));
    let mut totals = vec![
        ("watches", separated(all.watches)),
        (
            "delivered",
            format!(
                "{}, {}",
                or_dash(rates.events, event_rate),
                or_dash(rates.bytes, |rate| format!("{}/s", bytes(rate)))
            ),
        ),
        ("saved", saved(all)),
        ("from upstream", bytes(all.traffic.upstream_bytes as f64)),
        ("forwarded", forwarded(all)),
        ("refused", separated(all.refused)),
        ("memory", memory(all)),
    ];
    totals.extend(all.shadow.map(|found| ("shadow", shadow(found))));
    totals
}

/// The differences, and what else was compared.
fn shadow(found: ShadowStatus) -> String {
    let differences = [
        (found.missing, "missing"),
        (found.extra, "extra"),
        (found.content, "content"),
        (found.status, "status"),
    ];
    let mut parts: Vec<_> = differences
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{} {kind}", separated(count)))
        .collect();
    if parts.is_empty() {
        parts.push("no differences".to_owned());
    }
    let (equal, other) = (separated(found.equal), separated(found.not_comparable));
    format!(
        "{}, {equal} equal, {other} not comparable",
        parts.join(", ")
    )
}

fn saved(all: &TotalStatus) -> String {
    let bytes = bytes(all.saved.bytes as f64);
    match all.saved.requests {
        Some(requests) => format!("{bytes}, {requests} requests"),
        None => bytes,
    }
}

fn forwarded(all: &TotalStatus) -> String {
    let requests = separated(all.forwarded.requests);
    match all.forwarded.requests_per_second {
        Some(rate) => format!("{requests}, {rate:.0}/s"),
        None => requests,
    }
}

fn memory(all: &TotalStatus) -> String {
    let resident = bytes(all.memory.resident as f64);
    match all.memory.limit {
        Some(limit) => format!("{resident} of {}", bytes(limit as f64)),
        None => resident,
    }
}

fn row(status: &StatusDocument, one: &ResourceStatus, rates: Rates) -> ResourceRow {
    let (severity, state) = state(one);
    let slow = status
        .slowest
        .iter()
        .filter(|client| client.resource == one.name && is_slow(client));
    ResourceRow {
        name: clean(&one.name),
        severity,
        state,
        clients: client_groups(&one.cursors),
        facts: facts(one, rates),
        note: if one.ready {
            String::new()
        } else {
            clean(&one.note)
        },
        columns: if one.ring.is_some() {
            one.cursors.columns.clone()
        } else {
            Vec::new()
        },
        slow: slow
            .map(|client| SlowMark {
                position: client.position,
                state: client.state,
                label: format!(
                    "{}, {}",
                    brief(&client.user, &client.user_agent),
                    time(client.lag_seconds)
                ),
            })
            .collect(),
        edges: one.ring.map_or_else(Default::default, edges),
        short_edges: one.ring.map_or_else(Default::default, short_edges),
    }
}

fn state(one: &ResourceStatus) -> (Severity, String) {
    let at = &one.cursors;
    if !one.ready {
        let severity = match one.harmless {
            true => Severity::Warn,
            false => Severity::Bad,
        };
        (severity, "not in memory".to_owned())
    } else if !one.upstream.connected {
        (Severity::Bad, "upstream lost".to_owned())
    } else if at.lost > 0 {
        let text = format!("{} out of the history", separated(at.lost));
        (Severity::Bad, text)
    } else if at.endangered > 0 {
        let text = format!("{} may be cut", separated(at.endangered));
        (Severity::Bad, text)
    } else if at.slow > 0 {
        (Severity::Warn, format!("{} slow", separated(at.slow)))
    } else {
        (Severity::Good, "live".to_owned())
    }
}

/// What is at both edges of a history.
fn edges(ring: RingStatus) -> (String, String) {
    let oldest = match ring.oldest_version {
        Some(oldest) if ring.events > 0 => format!(
            "oldest: version {oldest}, {} ago",
            time(ring.oldest_age_seconds)
        ),
        Some(_) | None => "no events yet".to_owned(),
    };
    (oldest, format!("newest: version {}", ring.newest_version))
}

fn short_edges(ring: RingStatus) -> (String, String) {
    let oldest = match ring.events {
        0 => "no events".to_owned(),
        _ => format!("{} ago", time(ring.oldest_age_seconds)),
    };
    (oldest, format!("now: {}", ring.newest_version))
}

fn facts(one: &ResourceStatus, rates: Rates) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(ring) = one.ring {
        let events = counted(ring.events, ("event", "events"));
        facts.push(match ring.events {
            0 => format!("history: {events}"),
            _ => format!(
                "history: {events}, the last {}",
                time(ring.oldest_age_seconds)
            ),
        });
    }
    facts.push(format!(
        "{}, {}",
        counted(one.objects, ("object", "objects")),
        bytes(one.object_bytes as f64)
    ));
    if let Some(events) = rates.events {
        facts.push(event_rate(events));
    }
    if let Some(silence) = one.upstream.silence_seconds {
        facts.push(format!("upstream {} ago", time(silence)));
    }
    facts
}

fn cut_row(cut: &CutStatus) -> [String; 6] {
    let reason = match cut.reason.as_str() {
        "lagged" => "fell out of the history".to_owned(),
        "stalled" => "stopped reading".to_owned(),
        "disconnected" => "connection ended".to_owned(),
        other => clean(other),
    };
    [
        name(&cut.user),
        name(&cut.user_agent),
        clean(&cut.address),
        clean(&cut.resource),
        reason,
        format!("{} ago", time(cut.seconds_ago)),
    ]
}

/// Stands for an empty name.
pub(super) const NO_NAME: &str = "–";

fn name(text: &str) -> String {
    if text.is_empty() {
        NO_NAME.to_owned()
    } else {
        clean(text)
    }
}

/// The user without the prefixes that all have; without a user, the program: client-go writes "program/version (system) kubernetes/commit".
fn brief(user: &str, user_agent: &str) -> String {
    let program = user_agent.split(' ').next().unwrap_or_default();
    let user = user
        .strip_prefix("system:serviceaccount:")
        .or_else(|| user.strip_prefix("system:node:"))
        .unwrap_or(user);
    let name = [user, program, "no user agent"]
        .into_iter()
        .find(|name| !name.is_empty());
    clean(name.unwrap_or_default()).chars().take(26).collect()
}
