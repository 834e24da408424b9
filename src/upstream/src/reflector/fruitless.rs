//! Counts watches that bring nothing, and says when the state is to be compared because of them.

use std::time::{Duration, Instant};

/// After this many watches from one version that brought nothing, the state is compared with upstream's, or listed if the version may be
/// the cause.
pub(super) const FRUITLESS_MAX: u32 = 3;
/// If watches have brought nothing for this long, the next one that fails is enough, whatever its failure.
pub(super) const FRUITLESS_TIME_MAX: Duration = Duration::from_secs(55);

/// Watches since the last one that brought something.
#[derive(Clone, Copy, Debug)]
pub(super) struct FruitlessWatches {
    pub(super) count: u32,
    /// When the first of them ended.
    pub(super) since: Option<Instant>,
    /// How often the state was compared or listed because of them.
    pub(super) check_count: u32,
    /// The next comparison or list is not earlier.
    pub(super) check_at: Option<Instant>,
    pub(super) is_check_due: bool,
    /// Upstream's state differs, or cannot be read: if one more watch brings nothing, the state is listed.
    pub(super) is_last: bool,
    /// False from a comparison until `pace` has set `check_at` for the next one.
    pub(super) is_paced: bool,
}

impl FruitlessWatches {
    pub(super) const fn none() -> Self {
        Self {
            count: 0,
            since: None,
            check_count: 0,
            check_at: None,
            is_check_due: false,
            is_last: false,
            is_paced: true,
        }
    }

    /// The state was listed, or compared and not refuted: counts from zero again. `check_count` and `check_at` stay, so that the next
    /// comparison is still paced.
    pub(super) fn restart(&mut self, now: Instant) {
        self.count = 0;
        self.since = self.is_checked().then_some(now);
        self.is_check_due = false;
        self.is_last = false;
    }

    /// Notes that the state is compared or listed, and not again before `check_at`.
    pub(super) fn pace(&mut self, check_at: Instant) {
        self.is_paced = true;
        self.check_count = self.check_count.saturating_add(1);
        self.check_at = Some(check_at);
    }

    /// Whether there was a comparison after which `pace` has not been called.
    pub(super) const fn is_to_be_paced(&self) -> bool {
        !self.is_paced
    }

    /// Whether watches have brought nothing lately.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.count > 0 || self.is_checked()
    }

    pub(super) const fn is_check_due(&self) -> bool {
        self.is_check_due
    }

    /// Whether the state was compared or listed because of watches that brought nothing, and none has brought anything since.
    pub(super) const fn is_checked(&self) -> bool {
        self.check_count > 0
    }

    /// When a watch that fails is enough for a comparison; `None` while none has failed.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let since = self.since?;
        let is_many = self.count >= FRUITLESS_MAX;
        let at = if is_many {
            since
        } else {
            since + FRUITLESS_TIME_MAX
        };
        Some(self.check_at.map_or(at, |check_at| at.max(check_at)))
    }
}
