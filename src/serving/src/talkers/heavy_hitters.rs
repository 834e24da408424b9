//! The heaviest of any number of names in bounded memory: the algorithm of Misra and Gries, with weights. It knows neither clients nor time.
//!
//! A crate would need an owned name for each count; this one allocates only for names that it did not hold.

use hashbrown::HashMap;

/// Names that are certain to be held: those with more than one part in so many of the total.
pub(super) const HELD: usize = 64;

/// Counts by name. A count is too low by at most [`Self::error`], and a name that is missing has no higher count than that.
#[derive(Clone, Debug, Default)]
pub(super) struct HeavyHitters {
    counts: HashMap<Box<str>, u64, foldhash::fast::RandomState>,
    error: u64,
}

impl HeavyHitters {
    /// Adds to the count of a name.
    pub(super) fn add(&mut self, name: &str, weight: u64) {
        if weight == 0 {
            return;
        }
        match self.counts.get_mut(name) {
            Some(count) => *count = count.saturating_add(weight),
            None => {
                self.counts.insert(name.into(), weight);
                // At twice the size, the cost of a cut is spread over as many new names as it removes.
                if self.counts.len() > 2 * HELD {
                    self.cut();
                }
            }
        }
    }

    /// Takes the count of the heaviest name that is not held from all counts: `HELD` + 1 of them lose as much, so that the error is at most
    /// the total divided by that.
    fn cut(&mut self) {
        let mut counts: Vec<_> = self.counts.values().copied().collect();
        let by_count = |one: &u64, other: &u64| other.cmp(one);
        let (_, &mut cut, _) = counts.select_nth_unstable_by(HELD, by_count);
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(cut);
            *count > 0
        });
        self.error = self.error.saturating_add(cut);
    }

    /// The count of a name.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// All names that are held, with their counts, in any order.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(name, count)| (&**name, *count))
    }

    /// By how much a count may be too low.
    #[cfg(test)]
    pub(super) const fn error(&self) -> u64 {
        self.error
    }
}
