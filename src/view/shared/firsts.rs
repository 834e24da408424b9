//! Where batches began in the history, remembered longer than the batches: exactly for the last ones, about for those before.

use std::collections::VecDeque;

use crate::cache::Sequence;

/// So many batches are remembered one by one, and of those before every so many-th.
const STRIDE: usize = 64;
/// Places of each. A watcher beyond them is at worst told to list again though nothing was lost.
const STRIDES: usize = 64;

/// The first event's sequence of a view's batches, by the batches' own numbers. At most one kilobyte, and nothing until
/// there is a batch.
#[derive(Debug, Default)]
pub(super) struct BatchStarts {
    /// How many batches there were.
    head: Sequence,
    /// Of the last batches, oldest first.
    recent: VecDeque<Sequence>,
    /// Of every [`STRIDE`]th batch, oldest first.
    sparse: VecDeque<Sequence>,
}

impl BatchStarts {
    /// Notes the next batch.
    pub(super) fn push(&mut self, first: Sequence) {
        if self.head.is_multiple_of(STRIDE as Sequence) {
            keep(&mut self.sparse, STRIDES, first);
        }
        keep(&mut self.recent, STRIDE, first);
        self.head += 1;
    }

    /// Where the batch of this number began, or one up to [`STRIDE`] before it. `None` when that is forgotten, or the
    /// batch still to come.
    pub(super) fn at_or_before(&self, batch: Sequence) -> Option<Sequence> {
        let newest = self.head.checked_sub(1)?;
        let stride = STRIDE as Sequence;
        nth_last(&self.recent, newest.checked_sub(batch)?)
            .or_else(|| nth_last(&self.sparse, newest / stride - batch / stride))
    }
}

fn keep(places: &mut VecDeque<Sequence>, most: usize, first: Sequence) {
    if places.len() == most {
        places.pop_front();
    }
    places.push_back(first);
}

fn nth_last(places: &VecDeque<Sequence>, back: Sequence) -> Option<Sequence> {
    let back = usize::try_from(back).ok()?;
    places.iter().nth_back(back).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batches_are_known_exactly_and_those_before_about() {
        let mut firsts = BatchStarts::default();
        assert_eq!(firsts.at_or_before(0), None);
        for batch in 0..10_000_u64 {
            firsts.push(batch * 10);
            assert_eq!(firsts.at_or_before(batch), Some(batch * 10));
            assert_eq!(firsts.at_or_before(batch + 1), None, "still to come");
        }
        for batch in 0..10_000 {
            let behind = 10_000 - batch;
            match firsts.at_or_before(batch) {
                Some(first) if behind <= 64 => assert_eq!(first, batch * 10),
                Some(first) => assert_eq!(first, batch / 64 * 640),
                None => assert!(behind > 63 * 64, "{batch}"),
            }
        }
    }
}
