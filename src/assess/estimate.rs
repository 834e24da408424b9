//! What a gateway would take off the API servers, and what it would ask of them (docs/ASSESS.md has the formulas).

use std::collections::{BTreeMap, HashMap};

use super::assumptions::{Assumptions, GatewayFlow, question_review_rate};
use super::client::{AuditedClient, ClientClass};
use super::group_resource::GroupResource;
use super::readers::{Reader, ReaderContext, readers_of};
use super::servers::{ResourceRates, ServerRates};
use super::usage::UsageSums;

/// kube-apiserver sends a bookmark a minute to each watch.
const BOOKMARK_SECONDS: f64 = 60.0;
/// CPU of kube-apiserver for a delivered event: our only figure, of one run. It bounds, it does not predict.
const DELIVERY_CPU: f64 = 13.5e-6;

/// One client and resource.
#[derive(Clone, Debug)]
pub(super) struct EstimateRow {
    /// `None` without an audit log: all clients.
    pub(super) client: Option<AuditedClient>,
    pub(super) class: ClientClass,
    /// `None` in the row of all others.
    pub(super) resource: Option<GroupResource>,
    /// Why it stays at the API server, whoever asks.
    pub(super) forward_reason: Option<&'static str>,
    /// What the API servers do for it now.
    pub(super) now: GatewayFlow,
    pub(super) lists: f64,
    /// What of that a gateway takes over.
    pub(super) taken: GatewayFlow,
    /// What the gateways ask of the API servers in its place.
    pub(super) asked: GatewayFlow,
    pub(super) cpu_at_most: f64,
    /// Whose turn it is, from 1; of clients that save anything.
    pub(super) order: Option<usize>,
}

/// The whole assessment.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    pub(super) rows: Vec<EstimateRow>,
    /// Everything that the API servers do for lists and watches now.
    pub(super) now: GatewayFlow,
    pub(super) taken: GatewayFlow,
    /// With what gateways follow for themselves.
    pub(super) asked: GatewayFlow,
    pub(super) cpu_at_most: f64,
    /// What no audit log explains; `None` without one.
    pub(super) unexplained: Option<GatewayFlow>,
}

impl EstimateRow {
    /// The saving: what is taken less what is asked.
    pub(super) fn net(&self) -> GatewayFlow {
        self.taken.minus(&self.asked)
    }
}

/// Calculates everything.
pub(super) fn estimate(
    rates: &ServerRates,
    usage: Option<&UsageSums>,
    assumptions: &Assumptions,
) -> Estimate {
    let context = ReaderContext::new(rates, usage);
    let mut by_resource = readers_of(rates, usage, &context);
    let mut estimate = Estimate {
        unexplained: usage.map(|_| GatewayFlow::default()),
        ..Estimate::default()
    };
    // The row of all others belongs to no resource, so nothing measured is attributed to it.
    let others = by_resource.remove(&None).unwrap_or_default();
    for (resource, readers) in by_resource {
        let Some(resource) = resource else { continue };
        let rate = rates.resources.get(&resource).copied().unwrap_or_default();
        let stored = context.is_stored(&rate);
        let forward_reason = resource
            .forward_reason(&assumptions.cached)
            .or_else(|| (!stored).then_some("the API server does not store it"));
        let shares = Shares::new(rate, readers, forward_reason.is_none());
        estimate
            .rows
            .extend(shares.rows(&resource, forward_reason, assumptions));
    }
    estimate.rows.extend(others.iter().map(|reader| {
        let mut row = row_of(reader, GatewayFlow::default());
        row.now.watches = reader.watches;
        row.now.requests = reader.requests();
        row
    }));
    estimate.share_reviews(&context);
    estimate.total(rates, assumptions);
    estimate.sort();
    estimate
}

/// A resource's rates, divided among its readers.
struct Shares {
    rate: ResourceRates,
    readers: Vec<Reader>,
    is_cached: bool,
    watches: f64,
    whole: f64,
    weight: f64,
    lists: f64,
    moved: GatewayFlow,
}

impl Shares {
    fn new(rate: ResourceRates, readers: Vec<Reader>, is_cached: bool) -> Self {
        let sum = |figure: fn(&Reader) -> f64| readers.iter().map(figure).sum::<f64>();
        let mut moved = GatewayFlow::default();
        for reader in readers
            .iter()
            .filter(|one| is_cached && one.class.is_moved())
        {
            moved.watches += reader.watches;
            moved.requests += reader.requests();
        }
        Self {
            watches: sum(|reader| reader.watches),
            whole: sum(|reader| reader.whole),
            weight: sum(|reader| reader.weight),
            lists: sum(|reader| reader.list_requests),
            moved,
            rate,
            readers,
            is_cached,
        }
    }

    fn rows(
        &self,
        resource: &GroupResource,
        forward_reason: Option<&'static str>,
        assumptions: &Assumptions,
    ) -> Vec<EstimateRow> {
        let cost = assumptions.cache_cost(resource, &self.rate);
        let rows = self.readers.iter().map(|reader| {
            let now = self.flow_of(reader);
            let mut row = EstimateRow {
                resource: Some(resource.clone()),
                forward_reason,
                ..row_of(reader, now)
            };
            if !(self.is_cached && reader.class.is_moved()) {
                return row;
            }
            row.taken = GatewayFlow {
                requests: reader.movable_requests(),
                ..now
            };
            // By watches; where there are none, by requests.
            let share = match self.moved.watches > 0.0 {
                true => reader.watches / self.moved.watches,
                false => ratio(reader.requests(), self.moved.requests),
            };
            row.asked = cost.times(share);
            row.asked.requests += reader.consistent + question_review_rate(reader.questions);
            row
        });
        rows.collect()
    }

    /// What the API servers do for a reader: changes by what its watches select, bookmarks and initial events by their number.
    fn flow_of(&self, reader: &Reader) -> GatewayFlow {
        let ResourceRates {
            events,
            event_bytes,
            initial_events,
            list_bytes,
            ..
        } = self.rate;
        let unchanged = (self.watches / BOOKMARK_SECONDS + initial_events).min(events);
        let equal = 1.0 / self.readers.len() as f64;
        let share = |part: f64, whole: f64| match whole > 0.0 {
            true => part / whole,
            false => equal,
        };
        let changed = events - unchanged;
        let of_whole = self.whole * self.rate.changes;
        // Watches of everything have every change, and the others the rest; unless these two ways to count do not fit.
        let fits = of_whole <= changed && self.weight > 0.0;
        let of_changes = match fits {
            true => {
                reader.whole * self.rate.changes
                    + (changed - of_whole) * (reader.weight / self.weight)
            }
            false => changed * share(reader.whole + reader.weight, self.whole + self.weight),
        };
        let received = of_changes + unchanged * share(reader.watches, self.watches);
        GatewayFlow {
            watches: reader.watches,
            requests: reader.requests(),
            events: received,
            bytes: event_bytes * ratio(received, events)
                + list_bytes * share(reader.list_requests, self.lists),
        }
    }
}

impl Estimate {
    /// Tokens are reviewed for each client, whatever it reads: each of its rows that is moved has an equal part.
    fn share_reviews(&mut self, context: &ReaderContext<'_>) {
        let moved = |row: &EstimateRow| row.taken.requests > 0.0 || row.taken.watches > 0.0;
        let mut counts = HashMap::<AuditedClient, f64>::new();
        for client in self.rows.iter().filter(|row| moved(row)) {
            if let Some(client) = &client.client {
                *counts.entry(client.clone()).or_default() += 1.0;
            }
        }
        for row in self.rows.iter_mut().filter(|row| moved(row)) {
            if let Some(client) = &row.client {
                row.asked.requests += context.review_rate(client) / counts[client];
            }
        }
    }

    fn total(&mut self, rates: &ServerRates, assumptions: &Assumptions) {
        for row in &mut self.rows {
            let events = row.net().events;
            row.cpu_at_most = (events * DELIVERY_CPU).clamp(0.0, rates.cpu);
            // The resources of all others are unknown; there what they read is unexplained.
            if row.resource.is_some() {
                self.now = self.now.plus(&row.now);
            }
            self.taken = self.taken.plus(&row.taken);
            self.asked = self.asked.plus(&row.asked);
            if let Some(unexplained) = &mut self.unexplained
                && row.class == ClientClass::Unknown
                && row.resource.is_some()
            {
                *unexplained = unexplained.plus(&row.now);
            }
        }
        if self.taken.watches > 0.0 {
            self.asked = self.asked.plus(&assumptions.own_cost(&rates.resources));
        }
        let events = self.taken.minus(&self.asked).events;
        self.cpu_at_most = (events * DELIVERY_CPU).clamp(0.0, rates.cpu);
    }

    /// Numbers the clients by turn, then by what they save divided by their risk. Without an audit log, each resource is on its own.
    fn sort(&mut self) {
        let mut savings = BTreeMap::<OrderKey, (ClientClass, f64)>::new();
        for row in &self.rows {
            let net = row.net();
            let saving = savings.entry(order_key(row)).or_insert((row.class, 0.0));
            saving.1 += net.events + net.requests;
        }
        let mut order: Vec<_> = savings.into_iter().collect();
        order.retain(|(_, (class, saving))| class.is_moved() && *saving > 0.0);
        let value = |class: ClientClass, saving: f64| saving / f64::from(class.risk().max(1));
        order.sort_by(|(_, (one, first)), (_, (other, second))| {
            let turns = one.turn().cmp(&other.turn());
            turns.then(value(*other, *second).total_cmp(&value(*one, *first)))
        });
        let numbers: BTreeMap<_, _> = order
            .into_iter()
            .zip(1..)
            .map(|((key, _), number)| (key, number))
            .collect();
        for row in &mut self.rows {
            let number = numbers.get(&order_key(row)).copied();
            row.order = number.filter(|_| row.forward_reason.is_none());
        }
        self.rows.sort_by(|one, other| {
            let last = usize::MAX;
            let order = one.order.unwrap_or(last).cmp(&other.order.unwrap_or(last));
            order.then(other.now.events.total_cmp(&one.now.events))
        });
    }
}

/// A client; or, without an audit log, a resource.
type OrderKey = (Option<AuditedClient>, Option<GroupResource>);

fn order_key(row: &EstimateRow) -> OrderKey {
    match &row.client {
        Some(client) => (Some(client.clone()), None),
        None => (None, row.resource.clone()),
    }
}

fn row_of(reader: &Reader, now: GatewayFlow) -> EstimateRow {
    EstimateRow {
        client: reader.client.clone(),
        class: reader.class,
        resource: None,
        forward_reason: None,
        now,
        lists: reader.list_requests,
        taken: GatewayFlow::default(),
        asked: GatewayFlow::default(),
        cpu_at_most: 0.0,
        order: None,
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests;
