//! Where blocks are compressed: on threads apart from those that serve, few at a time, and each shared block once.
//!
//! A chunk takes milliseconds. On a serving thread every stream of that thread would stand still for so long; and were
//! all clients of a herd to wait on a lock for the first one, all serving threads would. So compressing is done by
//! tokio's blocking threads, by half as many as there are cores; who comes meanwhile waits as a future, and those who
//! want the same chunk wait for the same work. If the client for whom it began goes away, the work is finished all
//! the same, or, if it still stood in line, another client's takes its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::{Semaphore, watch};

use super::encoder::Encoder;
use crate::cache::{BlockFormat, Chunk, DeflateBlock};
use crate::resource::Object;

/// An object cannot be read, the compressing thread has panicked, or the runtime is going down: the answer cannot be
/// completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the list could not be compressed")]
pub struct CompressError;

/// Makes blocks for all clients of a service.
#[derive(Clone, Debug)]
pub struct BlockCompressor(Arc<CompressorState>);

#[derive(Debug)]
struct CompressorState {
    permits: Arc<Semaphore>,
    /// What is being made. The receiver hears when it no longer is; nothing is ever sent.
    making: Mutex<BlocksInProgress>,
}

/// A chunk, by its address, and an encoding. Whoever has it in work holds the chunk, so the address stays its own.
type BlockKey = (usize, BlockFormat);

type BlocksInProgress = HashMap<BlockKey, watch::Receiver<()>, foldhash::fast::RandomState>;

enum BlockTurn {
    Made(DeflateBlock),
    Wait(watch::Receiver<()>),
    Make(BlockClaim),
}

/// The right to make a block. Dropped, with or without success, it lets the others go on.
struct BlockClaim {
    shared: Arc<CompressorState>,
    work: BlockKey,
    _told: watch::Sender<()>,
}

impl Drop for BlockClaim {
    fn drop(&mut self) {
        self.shared.making().remove(&self.work);
    }
}

impl CompressorState {
    fn making(&self) -> MutexGuard<'_, BlocksInProgress> {
        // Nobody panics while holding it; were it so, a map is whole between its methods.
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the block under the lock: it is kept before its claim ends, so it is not missed.
    fn turn(self: &Arc<Self>, chunk: &Arc<Chunk>, kept: BlockFormat) -> BlockTurn {
        let work = (Arc::as_ptr(chunk) as usize, kept);
        let mut making = self.making();
        if let Some(block) = chunk.block(kept) {
            return BlockTurn::Made(block.clone());
        }
        if let Some(others) = making.get(&work) {
            return BlockTurn::Wait(others.clone());
        }
        let (told, hears) = watch::channel(());
        making.insert(work, hears);
        BlockTurn::Make(BlockClaim {
            shared: Arc::clone(self),
            work,
            _told: told,
        })
    }
}

impl BlockCompressor {
    /// A maker that compresses so many blocks at a time.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(CompressorState {
            permits: Arc::new(Semaphore::new(at_once.max(1))),
            making: Mutex::default(),
        }))
    }

    /// The block of a chunk, and whether it was made by this call: it is if nobody has made it yet. `encode` writes
    /// objects as list items with what stands between them.
    ///
    /// # Errors
    /// See [`CompressError`].
    pub async fn shared<E>(
        self,
        chunk: Arc<Chunk>,
        kept: BlockFormat,
        encode: E,
    ) -> Result<(DeflateBlock, bool), CompressError>
    where
        E: FnOnce(&[Object], &mut Encoder) -> Result<(), CompressError> + Send + 'static,
    {
        let claim = loop {
            match self.0.turn(&chunk, kept) {
                BlockTurn::Made(block) => return Ok((block, false)),
                BlockTurn::Make(claim) => break claim,
                // Only ever an error: the claim has ended.
                BlockTurn::Wait(mut others) => drop(others.changed().await),
            }
        };
        let make = move || {
            let mut encoder = Encoder::new(chunk.frames_len());
            encode(chunk.objects(), &mut encoder)?;
            let block = chunk.keep(kept, encoder.finish()).clone();
            drop(claim);
            Ok(block)
        };
        Ok((self.run(make).await?, true))
    }

    /// A block for one client, and what `encode` gives back.
    ///
    /// # Errors
    /// See [`CompressError`].
    pub async fn once<E, R>(self, len: usize, encode: E) -> Result<(DeflateBlock, R), CompressError>
    where
        E: FnOnce(&mut Encoder) -> Result<R, CompressError> + Send + 'static,
        R: Send + 'static,
    {
        let make = move || {
            let mut encoder = Encoder::new(len);
            let given = encode(&mut encoder)?;
            Ok((encoder.finish(), given))
        };
        self.run(make).await
    }

    async fn run<M, R>(&self, make: M) -> Result<R, CompressError>
    where
        M: FnOnce() -> Result<R, CompressError> + Send + 'static,
        R: Send + 'static,
    {
        let permits = Arc::clone(&self.0.permits);
        let permit = permits.acquire_owned().await.map_err(|_| CompressError)?;
        let made = tokio::task::spawn_blocking(move || {
            let made = make();
            drop(permit);
            made
        });
        made.await.unwrap_or(Err(CompressError))
    }
}
