//! Keeps the process within `--memory-max`: gives up the caches that are missed least (decision 28).

use std::time::Duration;

use tokio::time::Instant;

use super::Registry;
use crate::admission::resident;
use crate::gateway::slot::{Slot, SlotState};
use crate::metrics::ResourceLabels;

/// How often memory is looked at: a cache grows by some hundred megabytes a second while it is filled.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// What was given up is free only when its last reader has let go of it and the allocator has returned it.
const RELIEF_PAUSE: Duration = Duration::from_secs(5);
/// Caches with open watches go only when memory is over its bound by this part of it.
const SEVERE_PART: usize = 8;
/// A cache of less than this frees nothing that shows.
const LEN_MIN: usize = 64 << 10;

/// How much a cache is missed, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// Nothing is served from it yet, and it grows.
    Filling,
    /// Lists alone are answered from it.
    Unwatched,
    /// Its end sends its watchers upstream.
    Watched,
}

/// What may be given up.
struct Candidate<T> {
    what: T,
    standing: EvictionRank,
    used_at: Instant,
    len: usize,
}

impl Registry {
    /// Takes series of resources off the page that have had no cache for a while.
    pub(super) fn forget_unused(&self) {
        let slots = self.slots();
        self.metrics.forget_unused(|used| {
            slots
                .iter()
                .any(|(key, _)| ResourceLabels::from(key) == used)
        });
    }

    /// Gives caches up whenever the process has more memory than it may. Never ends.
    pub(in crate::gateway) async fn hold_memory(&self) {
        let max = self.settings.limits.memory_max;
        if max == 0 {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_PERIOD).await;
            let len = resident().unwrap_or_default();
            if self.relieve(len, max) > 0 {
                tokio::time::sleep(RELIEF_PAUSE).await;
            }
        }
    }

    /// Gives up what a process of so many bytes, of which it may have `max`, can do without. Returns how many caches that is.
    fn relieve(&self, len: usize, max: usize) -> usize {
        let slots = self.slots();
        let candidates = slots.iter().filter_map(|(key, slot)| {
            let standing = standing(slot)?;
            // What is pinned is to be in memory, once it is.
            let may_go = standing == EvictionRank::Filling || !self.is_pinned(key);
            may_go.then(|| Candidate {
                what: slot,
                standing,
                used_at: slot.used_at(),
                len: slot.tally.cache_len(),
            })
        });
        let given_up = victims(candidates.collect(), len, max);
        given_up.iter().for_each(|slot| slot.relieve());
        given_up.len()
    }
}

/// `None` for what has neither a cache nor an attempt at one.
fn standing(slot: &Slot) -> Option<EvictionRank> {
    match &*slot.filling.borrow() {
        SlotState::Ready(served) if served.hub.is_watched() => Some(EvictionRank::Watched),
        SlotState::Ready(_) => Some(EvictionRank::Unwatched),
        SlotState::Waiting(_) | SlotState::GivenUp(_) | SlotState::OtherEncoding => {
            slot.is_attempted().then_some(EvictionRank::Filling)
        }
        SlotState::Gone | SlotState::Closed => None,
    }
}

/// Those that are being filled if there are any; otherwise, the least recently used first, as many as hold what is too much.
fn victims<T>(mut candidates: Vec<Candidate<T>>, len: usize, max: usize) -> Vec<T> {
    if len <= max {
        return Vec::new();
    }
    let excess = len - max;
    let is_filling = |one: &Candidate<T>| one.standing == EvictionRank::Filling;
    if candidates.iter().any(is_filling) {
        candidates.retain(is_filling);
        return candidates.into_iter().map(|one| one.what).collect();
    }
    let is_severe = excess > max / SEVERE_PART;
    let may_go = |one: &Candidate<T>| is_severe || one.standing == EvictionRank::Unwatched;
    candidates.retain(|one| one.len >= LEN_MIN && may_go(one));
    candidates.sort_by_key(|one| (one.standing, one.used_at));
    let mut freed = 0;
    let is_wanted = |one: &Candidate<T>| {
        let is_wanted = freed < excess;
        freed += one.len;
        is_wanted
    };
    let wanted = candidates.into_iter().take_while(is_wanted);
    wanted.map(|one| one.what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 800 << 20;
    const MIB: usize = 1 << 20;

    /// Standing, seconds since it was used, mebibytes.
    type Row = (&'static str, EvictionRank, u64, usize);

    #[track_caller]
    fn check(rows: &[Row], len: usize, expected: &[&str]) {
        let now = Instant::now() + Duration::from_secs(3600);
        let candidate = |&(what, standing, age, len): &Row| Candidate {
            what,
            standing,
            used_at: now - Duration::from_secs(age),
            len: len * MIB,
        };
        let candidates = rows.iter().map(candidate).collect();
        assert_eq!(victims(candidates, len, MAX), expected);
    }

    #[test]
    fn what_is_missed_least_goes_first_and_no_more_than_needed() {
        use EvictionRank::{Filling, Unwatched, Watched};
        let rows = [
            ("old watched", Watched, 900, 50),
            ("new", Unwatched, 1, 50),
            ("older", Unwatched, 100, 30),
            ("empty", Unwatched, 900, 0),
            ("oldest", Unwatched, 500, 30),
            ("new watched", Watched, 5, 500),
        ];
        check(&rows, MAX, &[]);
        check(&rows, MAX + 1, &["oldest"]);
        check(&rows, MAX + 30 * MIB, &["oldest"]);
        check(&rows, MAX + 31 * MIB, &["oldest", "older"]);
        // Watches are not ended for a little.
        check(&rows[..1], MAX + 100 * MIB, &[]);
        check(&rows, MAX + 100 * MIB, &["oldest", "older", "new"]);
        let all = ["oldest", "older", "new", "old watched", "new watched"];
        check(&rows, MAX + 161 * MIB, &all);
        check(&rows, MAX + 160 * MIB, &all[..4]);
        // What is being filled is wanted by nobody yet, and grows.
        let filling = [
            rows[0],
            ("first", Filling, 1, 0),
            rows[4],
            ("second", Filling, 0, 0),
        ];
        check(&filling, MAX + 1, &["first", "second"]);
    }
}
