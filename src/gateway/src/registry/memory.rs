//! Keeps the process within `--memory-max`: gives back what can be made again, then history, then refuses new requests, and at last evicts
//! the least useful caches (decision 50).

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::Registry;
use crate::admission::Admission;
use crate::live::LiveLimits;
use crate::metrics::{Label, MemoryMetrics, PressureStep, ResourceLabels};
use crate::pressure::{MemoryReading, PressureDecision, PressureMachine};
use crate::resource::{CacheKey, Gvr};
use crate::slot::{Slot, SlotState};
use strum::VariantArray;

/// The period of checking memory: a cache that is being filled grows by some hundred megabytes per second.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// The pause after an eviction: memory is freed only when the last reader has released it and the allocator has returned it.
const EVICTION_PAUSE: Duration = Duration::from_secs(5);
/// For so long after an eviction of caches that were being filled, no cache with watches is evicted: a large object is freed only when its
/// decoder returns.
const FILLING_FREED_AFTER: Duration = Duration::from_secs(60);
/// Caches with open watches are evicted only if memory exceeds the limit by this fraction (one eighth).
const SEVERE_FRACTION: usize = 8;
/// Evicting a cache that is smaller frees no noticeable memory; bytes.
const LEN_MIN: usize = 64 << 10;

/// The deletions that are kept for clients that catch up may take this part (one quarter) of the history's bytes.
const TOMBSTONES_SHARE: usize = 4;

/// How useful a cache is, least useful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It is being filled: nothing is served from it yet, and it grows.
    Filling,
    /// It is being filled again, with far more than it holds: it grows, and other caches must not pay for it.
    Outgrown,
    /// It serves lists only.
    Unwatched,
    /// It serves watches, which its end would send upstream.
    Watched,
}

/// A cache that may be evicted.
struct Candidate<T> {
    cache: T,
    rank: EvictionRank,
    used_at: Instant,
    len: usize,
}

/// Memory beyond what the process may have, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryExcess {
    /// What is resident above the bound.
    resident: usize,
    /// What is to be given back although the bound holds, so that new watches are not refused forever.
    in_use: usize,
    max: usize,
    /// Whether memory of evicted caches that were being filled may not be free yet.
    is_freeing: bool,
}

/// When caches were evicted.
#[derive(Clone, Copy, Debug, Default)]
struct EvictionTimes {
    any: Option<Instant>,
    filling: Option<Instant>,
}

impl EvictionTimes {
    /// Whether the caches evicted last may not be free yet.
    fn is_pausing(self) -> bool {
        self.any.is_some_and(|at| at.elapsed() < EVICTION_PAUSE)
    }

    /// The same for caches that were being filled.
    fn is_freeing(self) -> bool {
        self.filling
            .is_some_and(|at| at.elapsed() < FILLING_FREED_AFTER)
    }

    /// Notes the eviction of caches of these ranks.
    fn note(&mut self, ranks: &[EvictionRank]) {
        let now = Some(Instant::now());
        if !ranks.is_empty() {
            self.any = now;
        }
        if ranks.iter().any(|rank| rank.is_filling()) {
            self.filling = now;
        }
    }
}

impl EvictionRank {
    /// Whether the cache is being filled, for the first time or again.
    fn is_filling(self) -> bool {
        self <= Self::Outgrown
    }
}

impl Registry {
    /// Bytes that the kept deletions of a resource may take; `None` if its clients cannot catch up.
    pub(super) fn tombstones_len_max(&self, gvr: &Gvr) -> Option<usize> {
        let mut patterns = self.settings.catch_up.iter();
        let len_max = self.settings.retention.bytes_max / TOMBSTONES_SHARE;
        patterns.any(|one| one.covers(gvr)).then_some(len_max)
    }

    /// The limits that may change.
    pub(crate) const fn live_limits(&self) -> &LiveLimits {
        &self.settings.limits.live
    }

    pub(crate) const fn admission(&self) -> &Admission {
        &self.settings.admission
    }

    pub(super) fn is_pinned(&self, key: &CacheKey) -> bool {
        self.pinned.contains_key(key)
    }

    /// Removes the metrics of resources that have had no cache for a while.
    pub(super) fn forget_unused(&self) {
        let slots = self.slots();
        self.metrics.forget_unused(|used| {
            slots
                .iter()
                .any(|(key, _)| ResourceLabels::from(key) == used)
        });
    }

    /// Gives memory back when the process comes near its bound, and shows in the metrics what it holds. Never returns.
    pub(crate) async fn hold_memory(&self) {
        let (limits, history_max) = (
            &self.settings.limits.live,
            self.settings.retention.bytes_max,
        );
        let mut max = limits.get().memory_max;
        let metrics = self.metrics.memory();
        let mut machine = PressureMachine::new(max, history_max, self.settings.history_age_min);
        let mut evictions = EvictionTimes::default();
        loop {
            metrics.limit.set(i64::try_from(max).unwrap_or(i64::MAX));
            tokio::time::sleep(CHECK_PERIOD).await;
            max = limits.get().memory_max;
            machine.set_max(max);
            let resident = (self.settings.hooks.resident)().unwrap_or_default();
            let reading = self.read_memory(&metrics, resident);
            let decision = machine.decide(reading);
            self.relieve(decision);
            report(&metrics, decision, reading, max);
            let excess = MemoryExcess {
                resident: resident.total.saturating_sub(max),
                in_use: decision.excess,
                max,
                is_freeing: evictions.is_freeing(),
            };
            if max > 0 && !evictions.is_pausing() {
                evictions.note(&self.evict(excess));
            }
        }
    }

    /// Carries out a decision, except for the eviction of caches. Sets everything each time, because there may be new caches.
    fn relieve(&self, decision: PressureDecision) {
        let level = decision.level;
        self.cuts.set(decision.history);
        self.room.set(decision.room);
        self.state().pressure = level;
        self.settings.admission.set_memory_short(decision.refuses);
        for (_, slot) in self.slots() {
            slot.bound_frames(level.includes(PressureStep::Frames));
            if decision.drops_frames {
                slot.drop_derived();
            }
        }
    }

    /// Evicts caches for an excess of memory. Returns what they were.
    fn evict(&self, excess: MemoryExcess) -> Vec<EvictionRank> {
        let slots = self.slots();
        let candidates = slots.iter().filter_map(|(key, slot)| {
            let rank = eviction_rank(slot, excess.max)?;
            // Pinned caches stay in memory once they are filled.
            let may_go = rank <= EvictionRank::Outgrown || !self.is_pinned(key);
            may_go.then(|| Candidate {
                cache: slot,
                rank,
                used_at: slot.used_at(),
                len: slot.cells.cache_len.load(),
            })
        });
        let evicted = victims(candidates.collect(), excess);
        evicted.iter().for_each(|(slot, _)| slot.evict());
        evicted.into_iter().map(|(_, rank)| rank).collect()
    }
}

/// Logs and counts a change of the level.
fn report(metrics: &MemoryMetrics, decision: PressureDecision, reading: MemoryReading, max: usize) {
    let PressureDecision { level, before, .. } = decision;
    let MemoryReading { resident, held, .. } = reading;
    metrics
        .pressure
        .set(i64::try_from(level.number()).unwrap_or(i64::MAX));
    let taken = PressureStep::VARIANTS
        .iter()
        .copied()
        .filter(|step| level.includes(*step) && !before.includes(*step));
    taken.for_each(|step| metrics.steps.inc(step));
    if level == before {
        return;
    }
    let step = level.last_step().map_or("none", Label::as_str);
    if level > before {
        warn!(
            step,
            resident, held, max, "memory is short: giving some back"
        );
    } else {
        info!(step, resident, held, max, "memory is less short");
    }
}

/// The slot's rank in a process that may have `max` bytes; `None` if it has neither a cache nor an attempt to fill one.
fn eviction_rank(slot: &Slot, max: usize) -> Option<EvictionRank> {
    match &*slot.cells.slot_state.borrow() {
        SlotState::Ready(_)
            if is_outgrown(
                slot.cells.cache_len.collected(),
                slot.cells.cache_len.load(),
                max,
            ) =>
        {
            Some(EvictionRank::Outgrown)
        }
        SlotState::Ready(served) if served.hub.is_watched() => Some(EvictionRank::Watched),
        SlotState::Ready(_) => Some(EvictionRank::Unwatched),
        SlotState::Waiting(_) | SlotState::GivenUp(_) | SlotState::OtherEncoding => {
            slot.is_attempted().then_some(EvictionRank::Filling)
        }
        SlotState::Gone | SlotState::Closed => None,
    }
}

/// Whether a list that is being collected for a cache of `held` bytes is so large that this cache must be evicted. A list of what the cache
/// holds takes as much again, so a large cache may collect that much, but no large share of the bound beyond it.
const fn is_outgrown(collected: usize, held: usize, max: usize) -> bool {
    let share = max / SEVERE_FRACTION;
    collected > share && (collected / 2 > held || collected > held.saturating_add(share))
}

/// All caches that are being filled, if there are any and the bound is exceeded. Otherwise the least recently used ones that together hold
/// the excess; below the bound none with watches, and those that are being filled last. None with watches either while it may be memory of a
/// cache that has been evicted.
fn victims<T>(mut candidates: Vec<Candidate<T>>, excess: MemoryExcess) -> Vec<(T, EvictionRank)> {
    let MemoryExcess {
        resident,
        in_use,
        max,
        is_freeing,
    } = excess;
    let is_filling = |candidate: &Candidate<T>| candidate.rank.is_filling();
    if resident > 0 && candidates.iter().any(is_filling) {
        candidates.retain(is_filling);
        return candidates
            .into_iter()
            .map(|candidate| (candidate.cache, candidate.rank))
            .collect();
    }
    let is_severe = resident > max / SEVERE_FRACTION;
    let excess = if resident > 0 { resident } else { in_use };
    let may_end_watches = is_severe && !is_freeing;
    candidates.retain(|candidate| match candidate.rank {
        EvictionRank::Outgrown => false,
        // Below the bound, too: while new watches are refused, a cache must not go on filling for as long as upstream takes.
        EvictionRank::Filling => true,
        EvictionRank::Unwatched => candidate.len >= LEN_MIN,
        EvictionRank::Watched => candidate.len >= LEN_MIN && may_end_watches,
    });
    // Those that are being filled come last: evicting unused caches may free enough for them.
    candidates.sort_by_key(|candidate| (is_filling(candidate), candidate.rank, candidate.used_at));
    let mut freed = 0;
    let needed = candidates.into_iter().take_while(|candidate| {
        let is_needed = freed < excess;
        freed += candidate.len;
        is_needed
    });
    needed
        .map(|candidate| (candidate.cache, candidate.rank))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 800 << 20;
    const MIB: usize = 1 << 20;

    /// Name, rank, seconds since the last use, mebibytes.
    type Row = (&'static str, EvictionRank, u64, usize);

    #[track_caller]
    fn check(rows: &[Row], len: usize, expected: &[&str]) {
        let now = Instant::now() + Duration::from_secs(3600);
        let candidates = rows
            .iter()
            .map(|&(cache, rank, age, len)| Candidate {
                cache,
                rank,
                used_at: now - Duration::from_secs(age),
                len: len * MIB,
            })
            .collect();
        let excess = MemoryExcess {
            resident: len.saturating_sub(MAX),
            in_use: 0,
            max: MAX,
            is_freeing: false,
        };
        assert_eq!(names(victims(candidates, excess)), expected);
    }

    fn names(victims: Vec<(&'static str, EvictionRank)>) -> Vec<&'static str> {
        victims.into_iter().map(|(cache, _)| cache).collect()
    }

    #[test]
    fn the_least_useful_caches_are_evicted_first_and_no_more_than_needed() {
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
        // Watches are not ended for a small excess.
        check(&rows[..1], MAX + 100 * MIB, &[]);
        check(&rows, MAX + 100 * MIB, &["oldest", "older", "new"]);
        let all = ["oldest", "older", "new", "old watched", "new watched"];
        check(&rows, MAX + 161 * MIB, &all);
        check(&rows, MAX + 160 * MIB, &all[..4]);
        // Caches that are being filled are used by no client yet, and grow.
        let filling = [
            rows[0],
            ("first", Filling, 1, 0),
            rows[4],
            ("second", Filling, 0, 0),
        ];
        check(&filling, MAX + 1, &["first", "second"]);
    }

    /// A large object that was given up is freed only when its decoder returns.
    #[test]
    fn watches_are_not_ended_for_memory_that_is_being_freed() {
        use EvictionRank::{Unwatched, Watched};
        let victims_at = |resident, is_freeing| {
            let row = |cache, rank| Candidate {
                cache,
                rank,
                used_at: Instant::now(),
                len: 150 * MIB,
            };
            let candidates = vec![row("watched", Watched), row("unwatched", Unwatched)];
            let excess = MemoryExcess {
                resident,
                in_use: 0,
                max: MAX,
                is_freeing,
            };
            names(victims(candidates, excess))
        };
        assert_eq!(victims_at(300 * MIB, false), ["unwatched", "watched"]);
        assert_eq!(victims_at(300 * MIB, true), ["unwatched"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_filled_is_free_later_than_what_was_served() {
        let mut times = EvictionTimes::default();
        times.note(&[]);
        assert!(!times.is_pausing() && !times.is_freeing());
        times.note(&[EvictionRank::Unwatched]);
        assert!(times.is_pausing() && !times.is_freeing());
        times.note(&[EvictionRank::Unwatched, EvictionRank::Filling]);
        tokio::time::advance(EVICTION_PAUSE).await;
        assert!(!times.is_pausing() && times.is_freeing());
        tokio::time::advance(FILLING_FREED_AFTER - EVICTION_PAUSE).await;
        assert!(!times.is_freeing());
    }

    #[test]
    fn a_cache_whose_relist_never_ends_goes_before_those_of_others() {
        use EvictionRank::{Outgrown, Unwatched};
        let rows = [
            ("innocent", Unwatched, 900, 50),
            ("endless", Outgrown, 1, 5),
        ];
        check(&rows, MAX + 1, &["endless"]);
        check(&rows, MAX, &[]);
        let outgrown = |collected, held| is_outgrown(collected * MIB, held * MIB, MAX);
        assert!(outgrown(101, 50));
        assert!(!outgrown(100, 50), "a relist holds everything twice");
        assert!(!outgrown(100, 0), "little");
        let share = MAX / SEVERE_FRACTION / MIB;
        assert!(!outgrown(MAX / MIB / 2 + share, MAX / MIB / 2));
        assert!(
            outgrown(MAX / MIB / 2 + share + 1, MAX / MIB / 2),
            "much of the bound"
        );
    }

    #[test]
    fn below_the_bound_no_cache_goes_that_is_watched() {
        use EvictionRank::{Filling, Unwatched, Watched};
        let victims_for = |resident, in_use| {
            let row = |cache, rank| Candidate {
                cache,
                rank,
                used_at: Instant::now(),
                len: 50 * MIB,
            };
            let candidates = vec![
                row("filling", Filling),
                row("watched", Watched),
                row("unwatched", Unwatched),
            ];
            let excess = MemoryExcess {
                resident,
                in_use,
                max: MAX,
                is_freeing: false,
            };
            names(victims(candidates, excess))
        };
        assert_eq!(victims_for(0, 1), ["unwatched"]);
        assert_eq!(victims_for(0, 50 * MIB), ["unwatched"]);
        assert_eq!(victims_for(0, MAX), ["unwatched", "filling"]);
        assert!(victims_for(0, 0).is_empty());
        assert_eq!(victims_for(1, MAX), ["filling"]);
    }
}
