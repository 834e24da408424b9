//! Decides what is given up while memory is short, and when it is taken back. It reads no memory and has no clock: it is shown the memory in
//! use about once a second (decision 50).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strum::VariantArray;

use crate::metrics::PressureStep;

/// History is kept whatever its age as long as less than this is in use, in hundredths of the bound: well before anything has to be given up
/// that costs CPU to make again, and so that a new cache finds room.
const OLD_HISTORY_PERCENT: usize = 70;
/// A step is taken at this many hundredths of the bound; the last one above the bound itself.
const FRAMES_PERCENT: usize = 80;
const HISTORY_PERCENT: usize = 88;
const ADMISSION_PERCENT: usize = 94;
const EVICTION_PERCENT: usize = 100;
/// A step is taken back this many hundredths of the bound below the point where it was taken, so that it does not come and go.
const MARGIN_PERCENT: usize = 6;

/// How far what the parts hold may be below what is resident, in hundredths, before the difference counts as free.
const TOLERANCE_PERCENT: usize = 15;

/// Readings between two times that the same is given back, even if the level fell and rose in between: the allocator returns freed memory
/// to the system after a second or more, and a quiet cache shortens its history only every five.
const REPEAT_READINGS: u32 = 6;
/// What can be made again is dropped repeatedly only if it takes more than this many hundredths of the bound.
const DERIVED_PERCENT: usize = 2;
/// However short memory is, each history may have one sixteenth of what it may have otherwise.
const CUTS_MAX: u32 = 4;
/// Recent history stays as long as it takes at most this part (one eighth) of the bound, in each cache.
const RECENT_SHARE: usize = 8;
/// Readings at which new watches are refused until caches without watches are given up, too.
const PATIENT_READINGS: u32 = 5;

/// Bytes of a bound up to which histories of states from before may bring the process.
pub(super) const fn restored_max(max: usize) -> usize {
    max / 100 * OLD_HISTORY_PERCENT
}

/// Used memory at which a step begins, in hundredths of the bound.
const fn percent(step: PressureStep) -> usize {
    match step {
        PressureStep::Frames => FRAMES_PERCENT,
        PressureStep::History => HISTORY_PERCENT,
        PressureStep::Admission => ADMISSION_PERCENT,
        PressureStep::Eviction => EVICTION_PERCENT,
    }
}

/// How short memory is. A higher level includes the steps of all lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PressureLevel(usize);

impl PressureLevel {
    const HIGHEST: Self = Self(PressureStep::VARIANTS.len());

    /// The last of the steps that are in force; `None` if there is none.
    pub(super) fn last_step(self) -> Option<PressureStep> {
        let index = self.0.checked_sub(1)?;
        PressureStep::VARIANTS.get(index).copied()
    }

    /// Whether a step is in force.
    pub(super) fn includes(self, step: PressureStep) -> bool {
        self.last_step().is_some_and(|last| step <= last)
    }

    /// The level as a number: 0 for none.
    pub(super) const fn number(self) -> usize {
        self.0
    }

    fn up(self) -> Self {
        Self(self.0 + 1).min(Self::HIGHEST)
    }

    const fn down(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A reading of the process's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryReading {
    pub(super) resident: usize,
    /// What the parts of the process hold, as far as it is known.
    pub(super) held: usize,
    /// The part of it that can be made again.
    pub(super) derived: usize,
    /// The longest history of all caches.
    pub(super) history: usize,
    /// The greatest age below which age evicts something: that of the newest event in the oldest segment that may go.
    pub(super) oldest: Duration,
}

impl MemoryReading {
    /// The memory that is in use. Freed memory stays resident if its neighbours are in use, and is used again by what comes next: if all that
    /// is resident counted, pressure would not end when memory is given back.
    fn used(self) -> usize {
        let held = self
            .held
            .saturating_add(self.held / 100 * TOLERANCE_PERCENT);
        self.resident.min(held)
    }
}

/// What to do after a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PressureDecision {
    /// How short memory is.
    pub(super) level: PressureLevel,
    /// The level before the reading.
    pub(super) before: PressureLevel,
    /// Whether to drop now what can be made again.
    pub(super) drops_frames: bool,
    /// What each history may have.
    pub(super) history: HistoryBound,
    /// Whether watches that begin with a state, and lists beside another one, are refused.
    pub(super) refuses: bool,
    /// How many bytes of caches without watches are to be given up although the bound holds, so that new watches are not refused forever.
    pub(super) excess: usize,
    /// How many bytes new caches may take.
    pub(super) room: usize,
}

/// What each history may have of what is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryBound {
    /// How often the configured bytes are halved.
    pub(super) cuts: u32,
    /// Up to this many bytes, recent events stay whatever the cuts.
    pub(super) recent_max: usize,
    pub(super) age_max: Duration,
}

impl HistoryBound {
    /// Everything that is configured.
    const WHOLE: Self = Self {
        cuts: 0,
        recent_max: usize::MAX,
        age_max: Duration::MAX,
    };
}

impl Default for HistoryBound {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// The decisions of one process.
#[derive(Debug)]
pub(super) struct PressureMachine {
    /// Bytes; 0 for no bound.
    max: usize,
    /// What each history may have without pressure.
    history_max: usize,
    /// What each history has at least, unless memory is short.
    age_min: Duration,
    level: PressureLevel,
    history: HistoryBound,
    /// Readings until the next time that what can be made again may be dropped, and histories may be cut.
    drop_after: u32,
    cut_after: u32,
    /// Readings in a row at which new watches were refused.
    refusing: u32,
}

impl PressureMachine {
    /// `max` is the process's bound; `history_max` and `age_min` are what is configured for each history.
    pub(super) const fn new(max: usize, history_max: usize, age_min: Duration) -> Self {
        Self {
            max,
            history_max,
            age_min,
            level: PressureLevel(0),
            history: HistoryBound::WHOLE,
            drop_after: 0,
            cut_after: 0,
            refusing: 0,
        }
    }

    /// Changes the bound. The level stays and follows the next readings, so that what is short remains given up.
    pub(super) const fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Decides after a reading.
    ///
    /// The level changes by one step with each reading, so that each step can show whether it is enough. Only when more than the bound is
    /// resident all steps are taken at once: the kernel counts what is resident.
    pub(super) fn decide(&mut self, reading: MemoryReading) -> PressureDecision {
        let before = self.level;
        self.level = self.next_level(reading);
        self.drop_after = self.drop_after.saturating_sub(1);
        self.cut_after = self.cut_after.saturating_sub(1);
        let drops_frames = self.drop_after == 0 && self.must_drop(before, reading);
        if drops_frames {
            self.drop_after = REPEAT_READINGS;
        }
        self.bound_history(reading);
        PressureDecision {
            level: self.level,
            before,
            drops_frames,
            refuses: self.refuses(reading),
            history: self.history,
            excess: self.excess(reading),
            room: self.room(reading),
        }
    }

    /// What is left until histories would have to be cut. A cache that begins beyond that would take what others need.
    fn room(&self, reading: MemoryReading) -> usize {
        if self.max == 0 {
            return usize::MAX;
        }
        match reading.resident > self.max {
            true => 0,
            false => self.share(HISTORY_PERCENT).saturating_sub(reading.used()),
        }
    }

    fn must_drop(&self, before: PressureLevel, reading: MemoryReading) -> bool {
        let has_begun = !before.includes(PressureStep::Frames);
        self.level.includes(PressureStep::Frames)
            && self.is_at(PressureStep::Frames, reading)
            && (has_begun || reading.derived > self.share(DERIVED_PERCENT))
    }

    /// Gives history back before memory is short, the oldest of all caches first, a quarter of the time at once. Events younger than the
    /// minimum stay.
    fn bound_age(&mut self, reading: MemoryReading) {
        let used = reading.used();
        if self.max == 0 || used < self.share(OLD_HISTORY_PERCENT - MARGIN_PERCENT) {
            self.history.age_max = Duration::MAX;
        } else if used >= self.share(OLD_HISTORY_PERCENT) && reading.oldest > self.age_min {
            let shorter = (reading.oldest / 4 * 3).max(self.age_min);
            self.history.age_max = self.history.age_max.min(shorter);
        }
    }

    /// Cuts histories while memory in use asks for it. Only without any pressure they grow again: they would soon be cut again otherwise.
    fn bound_history(&mut self, reading: MemoryReading) {
        self.bound_age(reading);
        if self.level.0 == 0 {
            self.history = HistoryBound {
                age_max: self.history.age_max,
                ..HistoryBound::WHOLE
            };
            return;
        }
        if !self.level.includes(PressureStep::History)
            || reading.used() < self.share(HISTORY_PERCENT)
        {
            return;
        }
        if self.level.includes(PressureStep::Admission) {
            // Many caches' recent events may be too much together.
            self.history.recent_max = 0;
        } else {
            self.history.recent_max = self.history.recent_max.min(self.max / RECENT_SHARE);
        }
        if self.cut_after == 0 {
            self.cut_after = REPEAT_READINGS;
            self.history.cuts = self.next_cuts(reading.history);
        }
    }

    /// As many more cuts as it takes to shorten the longest history by a quarter or more: shorter ones lose nothing before.
    fn next_cuts(&self, longest: usize) -> u32 {
        (self.history.cuts + 1..CUTS_MAX)
            .find(|cuts| self.history_max >> cuts <= longest / 4 * 3)
            .unwrap_or(CUTS_MAX)
    }

    /// Whether new watches are refused. Not for memory that is free and that the allocator has not yet returned: they would take no other, and
    /// nothing is left to give back.
    fn refuses(&self, reading: MemoryReading) -> bool {
        self.level.includes(PressureStep::Admission)
            && !self.is_used_below(PressureStep::Admission, reading)
    }

    /// What is to be given up when refusing new watches was not enough.
    fn excess(&mut self, reading: MemoryReading) -> usize {
        let is_refusing = self.refuses(reading);
        self.refusing = if is_refusing { self.refusing + 1 } else { 0 }.min(PATIENT_READINGS);
        if self.refusing < PATIENT_READINGS {
            return 0;
        }
        reading.used().saturating_sub(self.share(HISTORY_PERCENT))
    }

    fn next_level(&self, reading: MemoryReading) -> PressureLevel {
        if self.max == 0 {
            return PressureLevel::default();
        }
        if self.is_at(PressureStep::Eviction, reading) {
            return PressureLevel::HIGHEST;
        }
        let next = self.level.up();
        if next > self.level
            && next
                .last_step()
                .is_some_and(|step| self.is_at(step, reading))
        {
            return next;
        }
        match self.level.last_step() {
            Some(step) if self.is_well_below(step, reading) => self.level.down(),
            Some(_) | None => self.level,
        }
    }

    /// Whether a step is to be taken: each if more than the bound is resident, and otherwise as far as memory is in use.
    fn is_at(&self, step: PressureStep, reading: MemoryReading) -> bool {
        if reading.resident > self.max {
            return true;
        }
        match step {
            PressureStep::Eviction => false,
            PressureStep::Frames | PressureStep::History | PressureStep::Admission => {
                reading.used() >= self.share(percent(step))
            }
        }
    }

    fn is_well_below(&self, step: PressureStep, reading: MemoryReading) -> bool {
        match step {
            // What is resident decided. But much of it may be free and never be returned.
            PressureStep::Eviction => {
                reading.resident < self.share(percent(step) - MARGIN_PERCENT)
                    || (reading.resident <= self.max
                        && self.is_used_below(PressureStep::Admission, reading))
            }
            PressureStep::Frames | PressureStep::History | PressureStep::Admission => {
                reading.resident <= self.max && self.is_used_below(step, reading)
            }
        }
    }

    /// Whether so little is in use that the step is taken back.
    fn is_used_below(&self, step: PressureStep, reading: MemoryReading) -> bool {
        reading.used() < self.share(percent(step) - MARGIN_PERCENT)
    }

    const fn share(&self, percent: usize) -> usize {
        // In this order, so that no bound overflows; bounds are much larger than a hundred bytes.
        self.max / 100 * percent
    }
}

/// What each history may have, told to all caches, each of which follows when it next publishes.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryCuts(Arc<Mutex<HistoryBound>>);

impl HistoryCuts {
    pub(super) fn bound(&self) -> HistoryBound {
        *self.0.lock()
    }

    pub(super) fn set(&self, bound: HistoryBound) {
        *self.0.lock() = bound;
    }
}

/// How many bytes new caches may take, told to all slots.
#[derive(Clone, Debug)]
pub(super) struct MemoryRoom(Arc<Mutex<usize>>);

impl Default for MemoryRoom {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(usize::MAX)))
    }
}

impl MemoryRoom {
    /// Whether a cache of this length may be filled.
    pub(super) fn is_for(&self, len: usize) -> bool {
        *self.0.lock() > len
    }

    pub(super) fn set(&self, len: usize) {
        *self.0.lock() = len;
    }
}

/// Follows the cuts on behalf of one cache.
#[derive(Debug, Default)]
pub(super) struct CutFollower {
    cuts: HistoryCuts,
    /// What the cache's history may have.
    bound: HistoryBound,
}

impl CutFollower {
    /// For a new cache, whose history may have everything that is configured.
    pub(super) const fn new(cuts: HistoryCuts) -> Self {
        Self {
            cuts,
            bound: HistoryBound::WHOLE,
        }
    }

    /// What the history may have from now on; `None` if that is the same as after the last call.
    pub(super) fn next(&mut self) -> Option<HistoryBound> {
        let bound = self.cuts.bound();
        let is_changed = bound != std::mem::replace(&mut self.bound, bound);
        is_changed.then_some(bound)
    }
}

#[cfg(test)]
mod tests;
