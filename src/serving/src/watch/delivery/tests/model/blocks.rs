//! Compressed blocks of initial events that are ready after another poll, or cannot be made.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::cache::{BlockFormat, Chunk};
use crate::watch::initial_block::samples::block;
use crate::watch::{InitialBlocks, MakingBlock};

#[derive(Debug)]
pub(super) struct LateBlocks;

impl InitialBlocks for LateBlocks {
    fn make(&self, chunk: &Arc<Chunk>) -> MakingBlock {
        let chunk = Arc::clone(chunk);
        let mut is_late = true;
        Box::pin(poll_fn(move |context| {
            if std::mem::take(&mut is_late) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let is_made = !chunk.frames_len().is_multiple_of(3);
            Poll::Ready(is_made.then(|| chunk.keep(BlockFormat::Added, block(&chunk))))
        }))
    }
}
