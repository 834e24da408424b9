//! The batches of a view, compressed once for all watches that accept gzip (decision 66).
//!
//! A block is raw deflate and ends with a sync flush: on a whole byte, and so that decoders give out everything before it. It may refer to
//! the last bytes of the view's events before it. A client gets such a block only if these are the last bytes that it was sent.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use parking_lot::Mutex;

use crate::cache::{Checksum, Sequence};

/// How far back a block refers. One event of the same kind is almost as good as all: pods of 1 KB shrink to 0.158 of their length with 4 KiB
/// and to 0.152 with 32 KiB, which cost three times the CPU. A client that was sent something else is back after as many bytes.
pub const REACH: usize = 8 << 10;

/// Pods of 1 KB shrink to 0.182 at level 1, 0.158 at level 3 and 0.150 at level 6, in 22, 27 and 30 µs.
const LEVEL: u32 = 3;
/// Shorter batches are not worth the 10 µs.
const LEN_MIN: usize = 128;
/// Longer batches would keep a thread for more than 10 ms.
const LEN_MAX: usize = 1 << 20;
/// What is kept for watches that are behind the first one: as many batches as the view's ring has.
const KEPT_BLOCKS: usize = 64;
const KEPT_LEN: usize = 64 << 10;

/// How deflate ends what can be read at once: an empty block.
pub const SYNC: &[u8] = &[0, 0, 0, 0xff, 0xff];
/// The longest deflate block that is not compressed.
pub const STORED_LEN_MAX: usize = u16::MAX as usize;

/// The head of a deflate block that is not compressed, of at most [`STORED_LEN_MAX`] bytes.
#[must_use]
pub fn stored_head(block: &[u8]) -> [u8; 5] {
    let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
    let ([low, high], [not_low, not_high]) = (len.to_le_bytes(), (!len).to_le_bytes());
    [0, low, high, not_low, not_high]
}

/// One batch as deflate.
#[derive(Debug)]
pub struct BatchBlock {
    at: Sequence,
    /// How many bytes of the view's events before it `following` may refer to.
    reach: usize,
    following: Bytes,
    /// Refers to nothing before it.
    independent: OnceLock<Bytes>,
    sum: Checksum,
}

impl BatchBlock {
    fn stored(at: Sequence, frames: &[u8]) -> Self {
        Self {
            at,
            reach: 0,
            following: stored(frames),
            independent: OnceLock::new(),
            sum: Checksum::of(frames),
        }
    }

    /// How many of the last bytes that a client was sent must be the view's events, for [`Self::following`].
    #[must_use]
    pub const fn reach(&self) -> usize {
        self.reach
    }

    /// The block for clients that had the events before it last.
    #[must_use]
    pub const fn following(&self) -> &Bytes {
        &self.following
    }

    /// The block for all others. `frames` is the batch.
    pub fn independent(&self, frames: &[u8]) -> &Bytes {
        match self.reach {
            0 => &self.following,
            _ => self.independent.get_or_init(|| deflated(&[], frames)),
        }
    }

    /// The checksum of the batch.
    #[must_use]
    pub const fn sum(&self) -> Checksum {
        self.sum
    }
}

/// Whether a watch is worth compressing for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GzipWeight {
    /// As how many watches it counts.
    pub watches: usize,
    /// A view is compressed from so many watches on.
    pub watches_min: usize,
}

/// The compressed batches of a view.
#[derive(Debug, Default)]
pub(super) struct CompressedBatches {
    /// As how many the open watches count that get them. A lock of its own: the other one is held while a batch is compressed, by threads
    /// that need the same batch.
    watches: Mutex<usize>,
    kept: Mutex<KeptBlocks>,
}

#[derive(Debug, Default)]
struct KeptBlocks {
    /// The batch after the last one that was compressed, and the last bytes up to it, at most [`REACH`].
    next: Sequence,
    tail: Vec<u8>,
    blocks: VecDeque<Arc<BatchBlock>>,
    len: usize,
}

impl CompressedBatches {
    fn enter(&self, count: usize) {
        *self.watches.lock() += count;
    }

    fn leave(&self, count: usize) {
        let mut watches = self.watches.lock();
        *watches -= count;
        if *watches == 0 {
            drop(watches);
            self.clear();
        }
    }

    /// Forgets everything that is kept for speed.
    pub(super) fn clear(&self) {
        *self.kept.lock() = KeptBlocks::default();
    }

    fn block(&self, at: Sequence, frames: &[u8], watches_min: usize) -> Arc<BatchBlock> {
        let is_shared = *self.watches.lock() >= watches_min;
        let mut kept = self.kept.lock();
        if !is_shared || frames.len() > LEN_MAX {
            // The next batch does not follow what is kept.
            *kept = KeptBlocks::default();
            return Arc::new(BatchBlock::stored(at, frames));
        }
        kept.block(at, frames)
    }
}

/// A watch that gets a view's batches compressed, while it is open.
#[derive(Debug)]
pub struct CompressedWatch {
    batches: Arc<CompressedBatches>,
    weight: GzipWeight,
}

impl CompressedWatch {
    pub(super) fn new(batches: &Arc<CompressedBatches>, weight: GzipWeight) -> Self {
        batches.enter(weight.watches);
        Self {
            batches: Arc::clone(batches),
            weight,
        }
    }

    /// The batch at `at`, which is `frames`.
    #[must_use]
    pub fn block(&self, at: Sequence, frames: &[u8]) -> Arc<BatchBlock> {
        self.batches.block(at, frames, self.weight.watches_min)
    }
}

impl Drop for CompressedWatch {
    fn drop(&mut self) {
        self.batches.leave(self.weight.watches);
    }
}

impl KeptBlocks {
    fn block(&mut self, at: Sequence, frames: &[u8]) -> Arc<BatchBlock> {
        if let Some(block) = self.blocks.iter().find(|block| block.at == at) {
            return Arc::clone(block);
        }
        let is_next = at == self.next;
        let tail: &[u8] = if is_next { &self.tail } else { &[] };
        let block = match frames.len() < LEN_MIN {
            true => BatchBlock::stored(at, frames),
            false => BatchBlock {
                at,
                reach: tail.len(),
                following: deflated(tail, frames),
                independent: OnceLock::new(),
                sum: Checksum::of(frames),
            },
        };
        let block = Arc::new(block);
        // A watch that is far behind must not spoil what the others share.
        if at >= self.next {
            if !is_next {
                self.tail.clear();
            }
            self.keep(frames, &block);
        }
        block
    }

    fn keep(&mut self, frames: &[u8], block: &Arc<BatchBlock>) {
        self.next = block.at + 1;
        let kept = REACH.saturating_sub(frames.len());
        self.tail.drain(..self.tail.len().saturating_sub(kept));
        self.tail
            .extend_from_slice(&frames[frames.len().saturating_sub(REACH)..]);
        self.len += block.following.len();
        self.blocks.push_back(Arc::clone(block));
        while self.blocks.len() > KEPT_BLOCKS || self.len > KEPT_LEN {
            let dropped = self.blocks.pop_front();
            self.len -= dropped.map_or(0, |block| block.following.len());
        }
    }
}

thread_local! {
    /// Its 300 KB are used for a moment at a time, and only by threads that deliver.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(LEVEL), false));
}

/// `bytes` as a block that may refer to `before`.
fn deflated(before: &[u8], bytes: &[u8]) -> Bytes {
    let block = DEFLATE.with_borrow_mut(|deflate| {
        deflate.reset();
        if !before.is_empty() {
            deflate.set_dictionary(before).ok()?;
        }
        let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
        loop {
            let read = usize::try_from(deflate.total_in()).ok()?;
            deflate
                .compress_vec(bytes.get(read..)?, &mut out, FlushCompress::Sync)
                .ok()?;
            // The flush is complete once the output has free space left.
            if out.len() < out.capacity() {
                return Some(out);
            }
            out.reserve(out.capacity());
        }
    });
    match block {
        Some(block) if block.len() < bytes.len() => Bytes::copy_from_slice(&block),
        _ => stored(bytes),
    }
}

/// `bytes` as a block, uncompressed.
fn stored(bytes: &[u8]) -> Bytes {
    let heads = bytes.len().div_ceil(STORED_LEN_MAX) + 1;
    let mut out = Vec::with_capacity(bytes.len() + heads * SYNC.len());
    for part in bytes.chunks(STORED_LEN_MAX) {
        out.extend_from_slice(&stored_head(part));
        out.extend_from_slice(part);
    }
    out.extend_from_slice(SYNC);
    out.into()
}

#[cfg(test)]
mod tests;
