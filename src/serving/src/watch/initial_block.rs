//! A compressed block of initial events, which all clients of a resource share: a chunk of the snapshot, compressed elsewhere.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::cache::{BlockFormat, Chunk, DeflateBlock};

/// The block that is being made; `None` if it cannot be.
pub type MakingBlock = Pin<Box<dyn Future<Output = Option<DeflateBlock>> + Send>>;

/// Makes blocks on other threads.
pub trait InitialBlocks: fmt::Debug + Send + Sync {
    /// The chunk's objects as ADDED events.
    fn make(&self, chunk: &Arc<Chunk>) -> MakingBlock;
}

/// The blocks of one client, one at a time.
pub(super) struct InitialBlockReader {
    blocks: Arc<dyn InitialBlocks>,
    state: BlockState,
}

enum BlockState {
    Idle,
    Making(MakingBlock),
    Made(Option<DeflateBlock>),
}

impl fmt::Debug for InitialBlockReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitialBlockReader").finish_non_exhaustive()
    }
}

impl InitialBlockReader {
    pub(super) fn new(blocks: Arc<dyn InitialBlocks>) -> Self {
        Self {
            blocks,
            state: BlockState::Idle,
        }
    }

    /// The block of this chunk; without one the chunk is to be sent as it is. While it is pending, [`Self::arm`] makes it; then the same
    /// chunk must be asked for.
    /// Chunks shorter than `len_min` bytes have none.
    pub(super) fn next(
        &mut self,
        chunk: &Arc<Chunk>,
        len_min: usize,
    ) -> Poll<Option<DeflateBlock>> {
        match std::mem::replace(&mut self.state, BlockState::Idle) {
            BlockState::Idle if chunk.frames_len() < len_min => Poll::Ready(None),
            BlockState::Idle => match chunk.block(BlockFormat::Added) {
                Some(block) => Poll::Ready(Some(block)),
                None => {
                    self.state = BlockState::Making(self.blocks.make(chunk));
                    Poll::Pending
                }
            },
            BlockState::Made(block) => Poll::Ready(block),
            making @ BlockState::Making(_) => {
                self.state = making;
                Poll::Pending
            }
        }
    }

    /// Whether a block is being made.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, BlockState::Making(_))
    }

    /// Goes on with the block that is pending, and wakes `waker` when it is there; returns whether it is there already.
    pub(super) fn arm(&mut self, waker: &Waker) -> bool {
        if let BlockState::Making(making) = &mut self.state
            && let Poll::Ready(block) = making.as_mut().poll(&mut Context::from_waker(waker))
        {
            self.state = BlockState::Made(block);
        }
        matches!(self.state, BlockState::Made(_))
    }
}

#[cfg(test)]
pub(super) mod samples {
    use flate2::{Compress, Compression, FlushCompress};

    use crate::cache::{Checksum, Chunk, DeflateBlock};
    use crate::resource::EventKind;

    /// The chunk's objects as ADDED events.
    pub(in crate::watch) fn block(chunk: &Chunk) -> DeflateBlock {
        let frames = chunk
            .objects()
            .iter()
            .map(|object| object.frame(EventKind::Added));
        let events = frames.collect::<Vec<_>>().concat();
        let mut deflate = Vec::with_capacity(events.len() + 1_024);
        let mut compress = Compress::new(Compression::fast(), false);
        compress
            .compress_vec(&events, &mut deflate, FlushCompress::Full)
            .unwrap();
        DeflateBlock {
            deflate: deflate.into(),
            len: events.len() as u64,
            crc: Checksum::of(&events).crc(),
        }
    }
}
