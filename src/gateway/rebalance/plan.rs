//! Decides how many watches a gateway sends away, from their number here and at the other gateways. It has no clock and asks nobody: it is
//! shown the numbers once in an interval (decision 52).

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A gateway may have this part (a fifth) more than the mean, and this many: clients choose a replica at random, so equal numbers do not last.
const MARGIN_SHARE: u64 = 5;
const MARGIN_MIN: u64 = 50;
/// A round ends at most this part (a half) of the watches.
const ROUND_SHARE: u64 = 2;
/// Rounds in a row whose clients do not arrive at the other gateways leave this part (a quarter) of the watches.
const FRUITLESS_SHARE: u64 = 4;
/// Clients have arrived if the other gateways together have gained this part (a quarter) of those that were sent away. Some choose this one
/// again, and others need more time.
const ARRIVAL_SHARE: u64 = 4;
/// The pause after rounds without arrivals doubles so many times: then 63 comparisons pass until the next attempt.
const DOUBLED_MAX: u32 = 5;

/// The numbers of watches of the other gateways that take clients.
pub(super) type PeerWatches = BTreeMap<SocketAddr, u64>;

/// What follows from one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RebalanceDecision {
    /// No other gateway can be compared with.
    Alone,
    /// There are not many more watches here than elsewhere.
    Balanced { mean: u64 },
    /// There are, but the clients that were sent away before have not arrived anywhere.
    Paused { mean: u64 },
    /// Send away the clients of so many watches, as long as more than `floor` are left.
    Round { mean: u64, watches: u64, floor: u64 },
}

/// Decides, and remembers the last round.
#[derive(Debug, Default)]
pub(super) struct RebalancePlan {
    round: Option<LastRound>,
}

/// The last round, until its clients have arrived at other gateways.
#[derive(Debug)]
struct LastRound {
    /// The numbers before the round.
    peers: PeerWatches,
    /// Watches that were sent away.
    sent: u64,
    /// Watches here before the first of the rounds in a row without arrivals.
    first_own: u64,
    /// Number of these rounds.
    fruitless: u32,
    /// Comparisons that pass until the next attempt.
    wait: u32,
}

impl LastRound {
    /// Whether enough clients have arrived, wherever they went.
    fn has_arrived(&self, peers: &PeerWatches) -> bool {
        let gain = |(peer, now): (&SocketAddr, &u64)| {
            let before = self.peers.get(peer).copied().unwrap_or(*now);
            now.saturating_sub(before)
        };
        let gained: u64 = peers.iter().map(gain).sum();
        gained >= self.sent / ARRIVAL_SHARE
    }
}

impl RebalancePlan {
    /// Compares the number of watches here with those of the other gateways. A round ends at most `round_max` watches.
    pub(super) fn decide(
        &mut self,
        own: u64,
        peers: &PeerWatches,
        round_max: u64,
    ) -> RebalanceDecision {
        let Ok(others @ 1..) = u64::try_from(peers.len()) else {
            self.round = None;
            return RebalanceDecision::Alone;
        };
        let total = peers
            .values()
            .fold(own, |sum, one| sum.saturating_add(*one));
        let mean = total.div_ceil(others + 1);
        // Numbers of other gateways say nothing about the last round.
        self.round
            .take_if(|last| last.has_arrived(peers) || !last.peers.keys().eq(peers.keys()));
        if own <= mean + (mean / MARGIN_SHARE).max(MARGIN_MIN) {
            return RebalanceDecision::Balanced { mean };
        }
        if let Some(last) = &mut self.round
            && last.wait > 0
        {
            last.wait -= 1;
            return RebalanceDecision::Paused { mean };
        }
        let first_own = self.round.as_ref().map_or(own, |last| last.first_own);
        let floor = mean.max(own / ROUND_SHARE).max(first_own / FRUITLESS_SHARE);
        let watches = own.saturating_sub(floor).min(round_max);
        if watches == 0 {
            return RebalanceDecision::Paused { mean };
        }
        let fruitless = self.round.as_ref().map_or(0, |last| last.fruitless + 1);
        self.round = Some(LastRound {
            peers: peers.clone(),
            sent: watches,
            first_own,
            fruitless,
            wait: wait_after(fruitless),
        });
        RebalanceDecision::Round {
            mean,
            watches,
            floor,
        }
    }

    /// Corrects how many watches the last round has sent away.
    pub(super) fn record_sent(&mut self, watches: u64) {
        if let Some(last) = &mut self.round {
            last.sent = watches;
        }
    }
}

/// Comparisons that pass after so many rounds without arrivals before the last one: 1, 3, 7 and so on.
fn wait_after(fruitless: u32) -> u32 {
    (2 << fruitless.min(DOUBLED_MAX)) - 1
}

#[cfg(test)]
mod tests;
