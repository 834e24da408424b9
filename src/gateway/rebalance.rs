//! Compares the number of watches with those of the other gateways, and sends clients away if there are many more here: those that have been
//! connected longest, a few each second (decision 52). How many is decided by `plan`.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::info;

use super::handover::Handover;
use super::registry::Registry;
use crate::metrics::{RebalanceMetrics, RebalanceOutcome};
use crate::resource::fraction;
use crate::serve::ConnectionTable;
use crate::serve::resources::Resources as _;
use plan::{RebalanceDecision, RebalancePlan};

/// A round sends clients away for this part (two thirds) of the interval. In the rest they arrive elsewhere, before they are counted again.
const ROUND_PARTS: (u32, u32) = (2, 3);
/// Watches that end in a second at most: they resume elsewhere, which costs the other gateways little.
const WATCHES_PER_SECOND: usize = 100;
const SECOND: Duration = Duration::from_secs(1);

/// What compares a gateway with the others.
pub(super) struct Rebalance {
    handover: Arc<Handover>,
    interval: Duration,
    /// The clients of this gateway.
    connections: ConnectionTable,
    metrics: RebalanceMetrics,
}

/// What a round sends away, and how fast.
#[derive(Clone, Copy, Debug)]
struct RoundOrder {
    watches: usize,
    /// The round ends when no more watches are left.
    floor: usize,
    per_second: usize,
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
        let mut known_peers = None;
        loop {
            // Replicas that started together do not compare at the same moment.
            sleep(self.interval.mul_f64(0.9 + 0.2 * fraction())).await;
            if !registry.takes_clients() {
                continue;
            }
            let peers = self.handover.peer_watches().await;
            if known_peers.replace(peers.len()) != Some(peers.len()) {
                info!(
                    gateways = peers.len(),
                    "comparing watches with other gateways"
                );
            }
            let own = self.connections.watch_count() as u64;
            let decision = plan.decide(own, &peers, self.round_max() as u64);
            self.record(own, peers.len(), decision);
            if let RebalanceDecision::Round {
                mean,
                watches,
                floor,
            } = decision
            {
                let order = self.order(watches, floor);
                info!(
                    own,
                    mean,
                    gateways = peers.len(),
                    watches,
                    "more watches than other gateways: sending clients away"
                );
                let sent = self.send_away(registry, order).await;
                plan.record_sent(sent as u64);
            }
        }
    }

    /// Seconds of a round.
    fn round_seconds(&self) -> usize {
        let (part, whole) = ROUND_PARTS;
        let seconds = (self.interval * part / whole).as_secs();
        usize::try_from(seconds).unwrap_or(1).max(1)
    }

    /// Watches that a round may end.
    fn round_max(&self) -> usize {
        self.round_seconds() * WATCHES_PER_SECOND
    }

    fn order(&self, watches: u64, floor: u64) -> RoundOrder {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let watches = count(watches);
        RoundOrder {
            watches,
            floor: count(floor),
            per_second: watches.div_ceil(self.round_seconds()).max(1),
        }
    }

    /// Sends the oldest connections away, evenly over the round; returns the number of their watches.
    async fn send_away(&self, registry: &Registry, order: RoundOrder) -> usize {
        let (mut sent, mut in_second) = (0, 0);
        for connection in self.connections.oldest(order.watches) {
            if in_second >= order.per_second {
                let seconds = u32::try_from(in_second / order.per_second).unwrap_or(1);
                sleep(SECOND * seconds).await;
                in_second = 0;
                // Clients may have left by themselves, and a drain ends all watches in its own time.
                if self.connections.watch_count() <= order.floor || !registry.takes_clients() {
                    break;
                }
            }
            let watches = connection.watch_count();
            if watches > 0 {
                connection.begin();
                self.metrics.connections.inc();
            }
            sent += watches;
            in_second += watches;
        }
        sent
    }

    fn record(&self, own: u64, peers: usize, decision: RebalanceDecision) {
        let (mean, outcome) = match decision {
            RebalanceDecision::Alone => (own, RebalanceOutcome::Alone),
            RebalanceDecision::Balanced { mean } => (mean, RebalanceOutcome::Balanced),
            RebalanceDecision::Paused { mean } => (mean, RebalanceOutcome::Paused),
            RebalanceDecision::Round { mean, .. } => (mean, RebalanceOutcome::Round),
        };
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.watches.set(gauge(own));
        self.metrics.mean.set(gauge(mean));
        self.metrics.gateways.set(gauge(peers as u64));
        self.metrics.comparisons.inc(outcome);
    }
}
