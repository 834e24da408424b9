//! Where a view's batches began in the history, kept longer than the batches: exactly for recent ones, approximately for older ones.

use std::collections::VecDeque;

use crate::cache::Sequence;

/// Number of recent batches that are remembered exactly; of the older ones every 64th is remembered.
const STRIDE: usize = 64;
/// Number of older batches that are remembered. A watch that is further behind may have to list again although nothing was lost.
const STRIDES: usize = 64;

/// The sequence of the first event of a view's batches, by the batches' numbers. At most one kilobyte, and nothing before
/// the first batch.
#[derive(Debug, Default)]
pub(super) struct BatchStarts {
    /// Number of batches so far.
    head: Sequence,
    /// The starts of the last [`STRIDE`] batches, oldest first.
    recent: VecDeque<Sequence>,
    /// The starts of every [`STRIDE`]th batch, oldest first.
    sparse: VecDeque<Sequence>,
}

impl BatchStarts {
    /// Records the start of the next batch.
    pub(super) fn push(&mut self, first: Sequence) {
        if self.head.is_multiple_of(STRIDE as Sequence) {
            keep(&mut self.sparse, STRIDES, first);
        }
        keep(&mut self.recent, STRIDE, first);
        self.head += 1;
    }

    /// The start of this batch, or of a batch fewer than [`STRIDE`] before it. `None` if that is forgotten, or if the batch does
    /// not exist yet.
    pub(super) fn at_or_before(&self, batch: Sequence) -> Option<Sequence> {
        let newest = self.head.checked_sub(1)?;
        let stride = STRIDE as Sequence;
        nth_last(&self.recent, newest.checked_sub(batch)?)
            .or_else(|| nth_last(&self.sparse, newest / stride - batch / stride))
    }
}

fn keep(starts: &mut VecDeque<Sequence>, len_max: usize, first: Sequence) {
    if starts.len() == len_max {
        starts.pop_front();
    }
    starts.push_back(first);
}

fn nth_last(starts: &VecDeque<Sequence>, back: Sequence) -> Option<Sequence> {
    let back = usize::try_from(back).ok()?;
    starts.iter().nth_back(back).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batches_are_known_exactly_and_those_before_about() {
        let mut starts = BatchStarts::default();
        assert_eq!(starts.at_or_before(0), None);
        for batch in 0..10_000_u64 {
            starts.push(batch * 10);
            assert_eq!(starts.at_or_before(batch), Some(batch * 10));
            assert_eq!(starts.at_or_before(batch + 1), None, "does not exist yet");
        }
        for batch in 0..10_000 {
            let behind = 10_000 - batch;
            match starts.at_or_before(batch) {
                Some(first) if behind <= 64 => assert_eq!(first, batch * 10),
                Some(first) => assert_eq!(first, batch / 64 * 640),
                None => assert!(behind > 63 * 64, "{batch}"),
            }
        }
    }
}
