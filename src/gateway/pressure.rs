//! Decides what is given up while memory is short, and when it is taken back. It reads no memory and has no clock: it is shown the memory in
//! use about once a second (decision 50).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::metrics::PressureStep;

/// A step is taken at this many hundredths of the bound; the last one above the bound itself.
const FRAMES_PERCENT: usize = 80;
const HISTORY_PERCENT: usize = 88;
const ADMISSION_PERCENT: usize = 94;
const EVICTION_PERCENT: usize = 100;
/// A step is taken back this many hundredths of the bound below the point where it was taken, so that it does not come and go.
const MARGIN_PERCENT: usize = 6;

/// How far what the parts hold may be below what is resident, in hundredths, before the difference counts as free.
const TOLERANCE_PERCENT: usize = 15;

/// Readings between two times that memory is given back on the same step: the allocator returns freed memory to the system after a second
/// or more, and a quiet cache halves its history only every five.
const REPEAT_READINGS: u32 = 6;
/// Halving more often would not shrink any history further.
const CUTS_MAX: u32 = 8;

impl PressureStep {
    /// All steps, mildest first.
    const ORDER: [Self; 4] = [Self::Frames, Self::History, Self::Admission, Self::Eviction];

    const fn percent(self) -> usize {
        match self {
            Self::Frames => FRAMES_PERCENT,
            Self::History => HISTORY_PERCENT,
            Self::Admission => ADMISSION_PERCENT,
            Self::Eviction => EVICTION_PERCENT,
        }
    }
}

/// How short memory is. A higher level includes the steps of all lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PressureLevel(usize);

impl PressureLevel {
    const HIGHEST: Self = Self(PressureStep::ORDER.len());

    /// The last of the steps that are in force; `None` if there is none.
    pub(super) fn last_step(self) -> Option<PressureStep> {
        let index = self.0.checked_sub(1)?;
        PressureStep::ORDER.get(index).copied()
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
    /// How often each history is to be halved, since it was whole; 0 lets it grow again.
    pub(super) cuts: u32,
}

/// The decisions of one process.
#[derive(Debug)]
pub(super) struct PressureMachine {
    /// Bytes; 0 for no bound.
    max: usize,
    level: PressureLevel,
    cuts: u32,
    /// Readings until memory is given back again.
    repeats_after: u32,
}

impl PressureMachine {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            max,
            level: PressureLevel(0),
            cuts: 0,
            repeats_after: 0,
        }
    }

    /// Decides after a reading.
    ///
    /// The level changes by one step with each reading, so that each step can show whether it is enough. Only when more than the bound is
    /// resident all steps are taken at once: the kernel counts what is resident.
    pub(super) fn decide(&mut self, reading: MemoryReading) -> PressureDecision {
        let before = self.level;
        self.level = self.next_level(reading);
        let has_risen = self.level > before;
        self.repeats_after = self.repeats_after.saturating_sub(1);
        let acts = self.level.0 > 0 && (has_risen || self.repeats_after == 0);
        if acts {
            self.repeats_after = REPEAT_READINGS;
        }
        if self.level.0 == 0 {
            self.cuts = 0;
        } else if acts
            && self.level.includes(PressureStep::History)
            && self.is_at(PressureStep::History, reading)
        {
            // Only without any pressure the histories grow again: they would soon be halved again otherwise.
            self.cuts = (self.cuts + 1).min(CUTS_MAX);
        }
        PressureDecision {
            level: self.level,
            before,
            drops_frames: acts && self.is_at(PressureStep::Frames, reading),
            cuts: self.cuts,
        }
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
                reading.used() >= self.share(step.percent())
            }
        }
    }

    fn is_well_below(&self, step: PressureStep, reading: MemoryReading) -> bool {
        !self.is_at(PressureStep::Eviction, reading)
            && reading.used() < self.share(step.percent() - MARGIN_PERCENT)
    }

    const fn share(&self, percent: usize) -> usize {
        // In this order, so that no bound overflows; bounds are much larger than a hundred bytes.
        self.max / 100 * percent
    }
}

/// How often each history is to be halved because memory is short: told to all caches, each of which does it when it next publishes.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryCuts(Arc<Mutex<u32>>);

impl HistoryCuts {
    pub(super) fn count(&self) -> u32 {
        *self.0.lock()
    }

    pub(super) fn set(&self, count: u32) {
        *self.0.lock() = count;
    }
}

/// Follows the cuts on behalf of one cache.
#[derive(Debug, Default)]
pub(super) struct CutFollower {
    cuts: HistoryCuts,
    /// How often the cache's history was halved since it was whole.
    made: u32,
}

/// What a cache has to do with its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CutChange {
    /// To let it grow again, before everything else.
    pub(super) is_restored: bool,
    /// How often to halve it.
    pub(super) halvings: u32,
}

impl CutFollower {
    pub(super) const fn new(cuts: HistoryCuts) -> Self {
        Self { cuts, made: 0 }
    }

    /// What has changed since the last call.
    pub(super) fn next(&mut self) -> CutChange {
        let wanted = self.cuts.count();
        let is_restored = wanted < self.made;
        let made = if is_restored { 0 } else { self.made };
        self.made = wanted;
        CutChange {
            is_restored,
            halvings: wanted - made,
        }
    }
}

#[cfg(test)]
mod tests;
