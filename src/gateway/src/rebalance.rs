//! Compares the number of watches with those of the other gateways, and sends clients away if there are many more here: those that have been
//! connected longest, a few each second (decision 52). `plan` decides how many, and `round` sends them away.

mod plan;
mod round;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::info;

use super::handover::Handover;
use super::registry::Registry;
use crate::metrics::{RebalanceMetrics, RebalanceOutcome};
use crate::resource::fraction;
use crate::serve::ConnectionTable;
use crate::serve::resources::Resources as _;
use crate::watch::RECALLS_PER_SECOND;
use plan::{LoadReading, RebalanceDecision, RebalancePlan};
use round::{Round, RoundOrder};

/// A round sends clients away for this part (two thirds) of the interval. The next comparison is an interval later: by then they have arrived
/// elsewhere.
const ROUND_PARTS: (u32, u32) = (2, 3);

/// What compares a gateway with the others.
pub(super) struct Rebalance {
    handover: Arc<Handover>,
    interval: Duration,
    /// The clients of this gateway.
    connections: ConnectionTable,
    metrics: RebalanceMetrics,
}

/// What was logged last: only changes are.
#[derive(Debug, Default)]
struct LastLog {
    gateways: Option<usize>,
    /// Why nobody could be sent away.
    immovable: Option<&'static str>,
}

impl Rebalance {
    /// `None` if this gateway is not compared with others.
    pub(super) fn new(handover: &Arc<Handover>, metrics: RebalanceMetrics) -> Option<Self> {
        Some(Self {
            handover: Arc::clone(handover),
            interval: handover.rebalance_interval()?,
            connections: ConnectionTable::default(),
            metrics,
        })
    }

    /// The table in which clients' connections are to be entered.
    pub(super) fn connections(&self) -> ConnectionTable {
        self.connections.clone()
    }

    /// Compares until the gateway ends. Never returns.
    pub(super) async fn run(&self, registry: &Registry) {
        let mut plan = RebalancePlan::default();
        let mut last_log = LastLog::default();
        loop {
            // Replicas that started together do not compare at the same moment.
            sleep(self.interval.mul_f64(0.9 + 0.2 * fraction())).await;
            if !registry.takes_clients() {
                continue;
            }
            let peers = self.handover.peer_watches().await;
            last_log.log_gateways(peers.len());
            let reading = LoadReading {
                at: Instant::now(),
                own: self.connections.watch_count() as u64,
                peers: &peers,
            };
            let decision = plan.decide(reading, self.round_max() as u64);
            let RebalanceDecision::Round {
                mean,
                watches,
                floor,
            } = decision
            else {
                self.record(reading, decision, true);
                continue;
            };
            let order = self.order(watches, floor);
            let recalls = self.metrics.connections.clone();
            let mut round = Round::new(self.connections.oldest(), order, recalls);
            let is_movable = round.recall_next();
            self.record(reading, decision, is_movable);
            let (own, gateways) = (reading.own, peers.len());
            if !is_movable {
                last_log.log_immovable(own, mean, round.passed_over());
                continue;
            }
            last_log.immovable = None;
            info!(
                own,
                mean, gateways, watches, "more watches than other gateways: sending clients away"
            );
            // Clients may have left by themselves, and a drain ends all watches in its own time.
            let sent = round
                .finish(|| self.connections.watch_count() > order.floor && registry.takes_clients())
                .await;
            plan.record_round(reading, sent as u64);
        }
    }

    fn round_seconds(&self) -> usize {
        let (part, whole) = ROUND_PARTS;
        let seconds = (self.interval * part / whole).as_secs();
        usize::try_from(seconds).unwrap_or(1).max(1)
    }

    /// Watches that a round may end.
    fn round_max(&self) -> usize {
        self.round_seconds() * RECALLS_PER_SECOND as usize
    }

    fn order(&self, watches: u64, floor: u64) -> RoundOrder {
        let watches = usize::try_from(watches).unwrap_or(usize::MAX);
        RoundOrder {
            watches,
            floor: usize::try_from(floor).unwrap_or(usize::MAX),
            per_second: watches.div_ceil(self.round_seconds()).max(1),
        }
    }

    /// Counts a comparison; `is_movable` is whether a round has sent anybody away.
    fn record(&self, reading: LoadReading<'_>, decision: RebalanceDecision, is_movable: bool) {
        let (mean, outcome) = match decision {
            RebalanceDecision::Alone => (reading.own, RebalanceOutcome::Alone),
            RebalanceDecision::Balanced { mean } => (mean, RebalanceOutcome::Balanced),
            RebalanceDecision::Paused { mean } => (mean, RebalanceOutcome::Paused),
            RebalanceDecision::Round { mean, .. } if is_movable => (mean, RebalanceOutcome::Round),
            RebalanceDecision::Round { mean, .. } => (mean, RebalanceOutcome::Immovable),
        };
        self.metrics.watches.set(gauge(reading.own));
        self.metrics.mean.set(gauge(mean));
        self.metrics.gateways.set(gauge(reading.peers.len() as u64));
        self.metrics.comparisons.inc(outcome);
    }
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl LastLog {
    fn log_gateways(&mut self, gateways: usize) {
        if self.gateways.replace(gateways) != Some(gateways) {
            info!(gateways, "comparing watches with other gateways");
        }
    }

    /// Logs why nobody is sent away, unless that was logged and nobody has been since.
    fn log_immovable(&mut self, own: u64, mean: u64, connections: usize) {
        let reason = if connections > 0 {
            "each connection has more watches than are too many here"
        } else {
            "no watch has bookmarks with which its client could continue elsewhere"
        };
        if self.immovable.replace(reason) != Some(reason) {
            info!(
                own,
                mean,
                connections,
                reason,
                "more watches than other gateways, but nobody is sent away"
            );
        }
    }
}
