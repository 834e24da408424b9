//! Decides how many watches a gateway sends away, from their number here and at the other gateways. It has no clock and asks nobody: it is
//! shown the numbers and the time (decision 52).
//!
//! Any of the numbers may be wrong, and any gateway may be missing from a comparison. So what bounds the rounds depends on the gateway's own
//! number only: [`HourBudget`] whatever the others report, [`RoundSeries`] as long as they do not report that clients arrive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// A gateway may have this part (a fifth) more than the mean, and this many: clients choose a replica at random, so equal numbers do not last.
const MARGIN_SHARE: u64 = 5;
const MARGIN_MIN: u64 = 50;
/// A round ends at most this part (a half) of the watches.
const ROUND_SHARE: u64 = 2;
/// The rounds of an hour, and those in a row whose clients do not arrive at the other gateways, leave this part (a quarter) of the watches.
const FLOOR_SHARE: u64 = 4;
/// Clients have arrived if the other gateways together have gained this part (a quarter) of those that were sent away. Some choose this one
/// again, and others need more time.
const ARRIVAL_SHARE: u64 = 4;
/// The pause after rounds without arrivals doubles so many times: then 63 comparisons pass until the next attempt.
const DOUBLED_MAX: u32 = 5;
const HOUR: Duration = Duration::from_secs(3_600);
/// Addresses whose numbers are kept: those of several comparisons.
const PEERS_KEPT_MAX: usize = 64;

/// The numbers of watches of the other gateways that take clients.
pub(super) type PeerWatches = BTreeMap<SocketAddr, u64>;

/// The numbers of one comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadReading<'a> {
    pub(super) at: Instant,
    pub(super) own: u64,
    pub(super) peers: &'a PeerWatches,
}

/// What follows from one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RebalanceDecision {
    /// No other gateway can be compared with.
    Alone,
    /// There are not many more watches here than elsewhere.
    Balanced { mean: u64 },
    /// There are, but the clients that were sent away before have not arrived anywhere, or there were as many as an hour allows.
    Paused { mean: u64 },
    /// Send away the clients of so many watches, as long as more than `floor` are left.
    Round { mean: u64, watches: u64, floor: u64 },
}

/// Decides, and remembers the last rounds.
#[derive(Debug, Default)]
pub(super) struct RebalancePlan {
    series: Option<RoundSeries>,
    hour: Option<HourBudget>,
}

/// Rounds in a row, until clients have arrived at other gateways.
#[derive(Debug)]
struct RoundSeries {
    /// The numbers before the last round; those of a gateway that was not compared then, when it was first seen.
    peers: PeerWatches,
    /// Watches that the last round has sent away.
    sent: u64,
    /// Watches here before the first round.
    first_own: u64,
    /// Rounds before the last.
    fruitless: u32,
    /// Comparisons that pass until the next attempt.
    wait: u32,
}

/// What was sent away within the hour that began with a round.
#[derive(Debug)]
struct HourBudget {
    began: Instant,
    /// Watches here at that time. As many may be sent away: each client once, on average.
    own: u64,
    sent: u64,
}

impl RoundSeries {
    /// Whether enough clients have arrived, wherever they went. Only gateways that were seen before can have gained any.
    fn has_arrived(&mut self, peers: &PeerWatches) -> bool {
        // Their sums, because clients that move from one of them to another have not come from here.
        let (mut before, mut now) = (0_u64, 0_u64);
        for (peer, watches) in peers {
            if let Some(known) = self.peers.get(peer) {
                before = before.saturating_add(*known);
                now = now.saturating_add(*watches);
            } else if self.peers.len() < PEERS_KEPT_MAX {
                self.peers.insert(*peer, *watches);
            }
        }
        now.saturating_sub(before) >= (self.sent / ARRIVAL_SHARE).max(1)
    }
}

impl RebalancePlan {
    /// Compares the number of watches here with those of the other gateways. A round ends at most `round_max` watches.
    pub(super) fn decide(&mut self, reading: LoadReading<'_>, round_max: u64) -> RebalanceDecision {
        let LoadReading { at, own, peers } = reading;
        self.series.take_if(|series| series.has_arrived(peers));
        self.hour
            .take_if(|hour| at.duration_since(hour.began) >= HOUR);
        let Ok(others @ 1..) = u64::try_from(peers.len()) else {
            return RebalanceDecision::Alone;
        };
        let total = peers
            .values()
            .fold(own, |sum, one| sum.saturating_add(*one));
        let mean = total.div_ceil(others + 1);
        if own <= mean + (mean / MARGIN_SHARE).max(MARGIN_MIN) {
            return RebalanceDecision::Balanced { mean };
        }
        if let Some(series) = &mut self.series
            && series.wait > 0
        {
            series.wait -= 1;
            return RebalanceDecision::Paused { mean };
        }
        let (floor, watches_max) = self.bounds(own);
        let floor = floor.max(mean);
        let watches = own.saturating_sub(floor).min(watches_max).min(round_max);
        if watches == 0 {
            return RebalanceDecision::Paused { mean };
        }
        RebalanceDecision::Round {
            mean,
            watches,
            floor,
        }
    }

    /// How many watches a round leaves at least, and how many it sends away at most, whatever other gateways report.
    fn bounds(&self, own: u64) -> (u64, u64) {
        let series_own = self.series.as_ref().map_or(own, |series| series.first_own);
        let (hour_own, sent) = self
            .hour
            .as_ref()
            .map_or((own, 0), |hour| (hour.own, hour.sent));
        let floor = (own / ROUND_SHARE).max(series_own.max(hour_own) / FLOOR_SHARE);
        (floor, hour_own.saturating_sub(sent))
    }

    /// Notes that a round which followed from this reading has sent so many watches away.
    pub(super) fn record_round(&mut self, reading: LoadReading<'_>, sent: u64) {
        if sent == 0 {
            return;
        }
        let LoadReading { at, own, peers } = reading;
        let hour = self.hour.get_or_insert(HourBudget {
            began: at,
            own,
            sent: 0,
        });
        hour.sent = hour.sent.saturating_add(sent);
        let (first_own, fruitless) = match self.series.take() {
            Some(series) => (series.first_own, series.fruitless.saturating_add(1)),
            None => (own, 0),
        };
        self.series = Some(RoundSeries {
            peers: peers.clone(),
            sent,
            first_own,
            fruitless,
            wait: wait_after(fruitless),
        });
    }
}

/// Comparisons that pass after so many rounds without arrivals before the last one: 1, 3, 7 and so on.
fn wait_after(fruitless: u32) -> u32 {
    (2 << fruitless.min(DOUBLED_MAX)) - 1
}

#[cfg(test)]
mod tests;
