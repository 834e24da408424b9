//! Compresses blocks on threads apart from those that serve, few at a time, and each shared block once.
//!
//! Compressing a chunk takes milliseconds. On a serving thread it would delay all streams of that thread, and if all clients of a
//! resource waited for the first one with a lock, it would block all serving threads. So tokio's blocking threads compress, half as
//! many at a time as there are cores. Other requests wait asynchronously, and requests for the same chunk wait for the same work.
//! If the client that started it disconnects, running work is still finished; work that is still queued is started again by the
//! next client that waits for it.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};

use super::encoder::Encoder;
use crate::blocking::spawn_blocking;
use crate::cache::{BlockFormat, Chunk, DeflateBlock};
use crate::resource::Object;

/// A block could not be compressed, so the response cannot be completed: an object cannot be read, the compressing thread panicked,
/// or the runtime is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the list could not be compressed")]
pub struct CompressError;

/// Compresses blocks for all clients of a service.
#[derive(Clone, Debug)]
pub struct BlockCompressor(Arc<CompressorState>);

#[derive(Debug)]
struct CompressorState {
    permits: Arc<Semaphore>,
    /// The blocks being compressed. The receiver is closed when the work has ended; nothing is ever sent.
    in_progress: Mutex<BlocksInProgress>,
}

/// A chunk, by its address, and a format. The claim's work holds the chunk, so its address is not reused.
type BlockKey = (usize, BlockFormat);

type BlocksInProgress = HashMap<BlockKey, watch::Receiver<()>, foldhash::fast::RandomState>;

enum BlockTurn {
    Made(DeflateBlock),
    Wait(watch::Receiver<()>),
    Make(BlockClaim),
}

/// The exclusive right to compress a block. Dropping it, with or without a result, wakes the requests that wait for it.
struct BlockClaim {
    shared: Arc<CompressorState>,
    key: BlockKey,
    _ended: watch::Sender<()>,
}

impl Drop for BlockClaim {
    fn drop(&mut self) {
        self.shared.in_progress().remove(&self.key);
    }
}

impl CompressorState {
    fn in_progress(&self) -> MutexGuard<'_, BlocksInProgress> {
        self.in_progress.lock()
    }

    /// Returns the block, or waits for it, or claims it. Checks under the lock: a block is kept before its claim ends, so it is not
    /// missed.
    fn claim_or_wait(self: &Arc<Self>, chunk: &Arc<Chunk>, format: BlockFormat) -> BlockTurn {
        let key = (Arc::as_ptr(chunk) as usize, format);
        let mut in_progress = self.in_progress();
        if let Some(block) = chunk.block(format) {
            return BlockTurn::Made(block);
        }
        if let Some(others) = in_progress.get(&key) {
            return BlockTurn::Wait(others.clone());
        }
        let (ended, waiter) = watch::channel(());
        in_progress.insert(key, waiter);
        BlockTurn::Make(BlockClaim {
            shared: Arc::clone(self),
            key,
            _ended: ended,
        })
    }
}

impl BlockCompressor {
    /// A compressor that works on this many blocks at a time, at least one.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self(Arc::new(CompressorState {
            permits: Arc::new(Semaphore::new(concurrency.max(1))),
            in_progress: Mutex::default(),
        }))
    }

    /// The block of a chunk, and whether this call compressed it, because it was not kept yet. `encode` writes objects as list
    /// items with separators.
    ///
    /// # Errors
    /// [`CompressError`] if the block could not be compressed.
    pub async fn shared<E>(
        self,
        chunk: Arc<Chunk>,
        format: BlockFormat,
        encode: E,
    ) -> Result<(DeflateBlock, bool), CompressError>
    where
        E: FnOnce(&[Object], &mut Encoder) -> Result<(), CompressError> + Send + 'static,
    {
        let claim = loop {
            match self.0.claim_or_wait(&chunk, format) {
                BlockTurn::Made(block) => return Ok((block, false)),
                BlockTurn::Make(claim) => break claim,
                // Nothing is sent, so this returns an error once the claim has ended.
                BlockTurn::Wait(mut others) => drop(others.changed().await),
            }
        };
        let make = move || {
            let mut encoder = Encoder::new(chunk.frames_len());
            encode(chunk.objects(), &mut encoder)?;
            let block = chunk.keep(format, encoder.finish());
            drop(claim);
            Ok(block)
        };
        Ok((self.run(make).await?, true))
    }

    /// A block for one client, and what `encode` returns.
    ///
    /// # Errors
    /// [`CompressError`] if the block could not be compressed.
    pub async fn once<E, R>(self, len: usize, encode: E) -> Result<(DeflateBlock, R), CompressError>
    where
        E: FnOnce(&mut Encoder) -> Result<R, CompressError> + Send + 'static,
        R: Send + 'static,
    {
        let make = move || {
            let mut encoder = Encoder::new(len);
            let output = encode(&mut encoder)?;
            Ok((encoder.finish(), output))
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
        let made = spawn_blocking(move || {
            let made = make();
            drop(permit);
            made
        });
        made.await.unwrap_or(Err(CompressError))
    }
}
