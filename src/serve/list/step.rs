//! How much of a list is looked at before others have their turn. Pure.

use std::task::{Context, Poll};

use crate::cache::Chunk;
use crate::resource::Object;

/// Bytes of objects that one step looks at, about: a millisecond or two where each has to be written.
const STEP_LEN: usize = 512 << 10;
/// What an object counts at least that has to be written: a short one takes time, too.
const OBJECT_LEN: usize = 2 << 10;
/// What an object counts that only the selector looks at.
const SELECTED_LEN: usize = 256;
/// What a chunk counts that is shown as a whole and of which everything is known already.
const KNOWN_LEN: usize = STEP_LEN / 128;
/// Bytes are read, without a look at each object's parts, so many times as fast as objects are written.
const READ_FASTER: usize = 8;

/// What is left of one step.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: STEP_LEN }
    }
}

impl Budget {
    pub(super) const fn is_spent(&self) -> bool {
        self.left == 0
    }

    fn spend(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len);
    }

    /// The selector is asked about an object.
    pub(super) fn look(&mut self) {
        self.spend(SELECTED_LEN);
    }

    /// An object is written.
    pub(super) fn write(&mut self, object: &Object) {
        self.spend(object.frame_len().max(OBJECT_LEN));
    }

    /// A chunk is used of which everything is known.
    pub(super) fn reuse(&mut self) {
        self.spend(KNOWN_LEN);
    }

    /// The selector is asked about each object of a chunk.
    pub(super) fn look_at_all(&mut self, chunk: &Chunk) {
        self.spend(chunk.objects().len() * SELECTED_LEN);
    }

    /// A chunk's bytes are gone through.
    pub(super) fn read(&mut self, chunk: &Chunk) {
        self.spend(chunk.frames_len() / READ_FASTER);
    }

    /// Each object of a chunk is written.
    pub(super) fn write_all(&mut self, chunk: &Chunk) {
        self.spend(chunk.frames_len().max(chunk.objects().len() * OBJECT_LEN));
    }
}

/// What came of a step of a body. If it was not enough, the body is polled again when others have had their turn.
pub(super) fn in_turn<T>(step: Poll<T>, context: &Context<'_>) -> Poll<T> {
    if step.is_pending() {
        context.waker().wake_by_ref();
    }
    step
}
