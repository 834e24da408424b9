//! Bounds the work on a list in one step, after which other tasks can run. Pure.

use std::task::{Context, Poll};

use crate::cache::Chunk;
use crate::resource::Object;

/// The budget of one step, in bytes of objects: one or two milliseconds if each object has to be written.
const STEP_LEN: usize = 512 << 10;
/// Minimum cost of an object that has to be written; short ones take time, too.
const WRITE_COST_MIN: usize = 2 << 10;
/// Cost of an object for which only the selector is evaluated.
const SELECT_COST: usize = 256;
/// Cost of a chunk that is used as a whole and whose lengths or blocks are known.
const REUSE_COST: usize = STEP_LEN / 128;
/// Reading bytes, without looking at the parts of each object, is this many times faster than writing objects.
const READ_SPEEDUP: usize = 8;

/// The budget that is left of one step.
#[derive(Debug)]
pub(super) struct Budget {
    remaining: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            remaining: STEP_LEN,
        }
    }
}

impl Budget {
    pub(super) const fn is_spent(&self) -> bool {
        self.remaining == 0
    }

    fn spend(&mut self, len: usize) {
        self.remaining = self.remaining.saturating_sub(len);
    }

    /// Spends the cost of evaluating the selector for an object.
    pub(super) fn look(&mut self) {
        self.spend(SELECT_COST);
    }

    /// Spends the cost of writing an object.
    pub(super) fn write(&mut self, object: &Object) {
        self.spend(object.frame_len().max(WRITE_COST_MIN));
    }

    /// Spends the cost of a chunk whose result is known.
    pub(super) fn reuse(&mut self) {
        self.spend(REUSE_COST);
    }

    /// Spends the cost of evaluating the selector for each object of a chunk.
    pub(super) fn look_at_all(&mut self, chunk: &Chunk) {
        self.spend(chunk.objects().len() * SELECT_COST);
    }

    /// Spends the cost of reading a chunk's bytes.
    pub(super) fn read(&mut self, chunk: &Chunk) {
        self.spend(chunk.frames_len() / READ_SPEEDUP);
    }

    /// Spends the cost of writing each object of a chunk.
    pub(super) fn write_all(&mut self, chunk: &Chunk) {
        self.spend(
            chunk
                .frames_len()
                .max(chunk.objects().len() * WRITE_COST_MIN),
        );
    }
}

/// Returns the result of a step. If it is pending, arranges for the body to be polled again after other tasks have run.
pub(super) fn wake_if_pending<T>(step: Poll<T>, context: &Context<'_>) -> Poll<T> {
    if step.is_pending() {
        context.waker().wake_by_ref();
    }
    step
}
