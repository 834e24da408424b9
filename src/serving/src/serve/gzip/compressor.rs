//! Compresses blocks on threads apart from those that serve, few at a time, and each shared block once.
//!
//! Compressing a chunk takes milliseconds. On a serving thread it would delay all streams of that thread, and if all clients of a
//! resource waited for the first one with a lock, it would block all serving threads. So tokio's blocking threads compress, half as
//! many at a time as there are cores. Other requests wait asynchronously; their clients take turns. Requests for the same chunk wait
//! for the same work once it runs, and it is finished even if the client that started it disconnects.

use std::future::Future;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::encoder::Encoder;
use crate::blocking::spawn_blocking;
use crate::cache::{BlockFormat, Chunk, DeflateBlock};
use crate::fairness::Peer;
use crate::fairness::queued_permits::{QueuedPermit, QueuedPermits};
use crate::resource::Object;

/// A block could not be compressed, so the response cannot be completed: an object cannot be read, the compressing thread panicked,
/// or the runtime is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the list could not be compressed")]
pub struct CompressError;

/// Compresses blocks for all clients of a service. Clones share the work, and the peer that pays for it.
#[derive(Clone, Debug)]
pub struct BlockCompressor {
    shared: Arc<CompressorState>,
    peer: Peer,
}

#[derive(Debug)]
struct CompressorState {
    permits: QueuedPermits,
    /// The blocks being compressed. The receiver is closed when the work has ended; nothing is ever sent.
    in_progress: Mutex<BlocksInProgress>,
}

/// A chunk, by its address, and a format. The claim's work holds the chunk, so its address is not reused.
type BlockKey = (usize, BlockFormat);

type BlocksInProgress = HashMap<BlockKey, watch::Receiver<()>, foldhash::fast::RandomState>;

enum BlockTurn {
    Made(DeflateBlock),
    /// Nobody compresses it; a permit is needed to begin.
    Queue,
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
    /// missed. Only who has a permit claims it, so that nobody waits for a block behind another client's queue.
    fn claim_or_wait(
        self: &Arc<Self>,
        chunk: &Arc<Chunk>,
        format: BlockFormat,
        has_permit: bool,
    ) -> BlockTurn {
        let key = (Arc::as_ptr(chunk) as usize, format);
        let mut in_progress = self.in_progress();
        if let Some(block) = chunk.block(format) {
            return BlockTurn::Made(block);
        }
        if let Some(others) = in_progress.get(&key) {
            return BlockTurn::Wait(others.clone());
        }
        if !has_permit {
            return BlockTurn::Queue;
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
        let shared = CompressorState {
            permits: QueuedPermits::new(concurrency.max(1), usize::MAX),
            in_progress: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            peer: Peer::UNKNOWN,
        }
    }

    /// The same compressor, whose work waits among that of this peer.
    #[must_use]
    pub fn for_peer(&self, peer: Peer) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            peer,
        }
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
        apart(self.share(chunk, format, encode)).await
    }

    async fn share<E>(
        self,
        chunk: Arc<Chunk>,
        format: BlockFormat,
        encode: E,
    ) -> Result<(DeflateBlock, bool), CompressError>
    where
        E: FnOnce(&[Object], &mut Encoder) -> Result<(), CompressError> + Send + 'static,
    {
        let mut permit = None;
        let (claim, permit) = loop {
            match self.shared.claim_or_wait(&chunk, format, permit.is_some()) {
                BlockTurn::Made(block) => return Ok((block, false)),
                BlockTurn::Make(claim) => break (claim, permit),
                BlockTurn::Queue => permit = Some(self.permit().await?),
                BlockTurn::Wait(mut others) => {
                    permit = None;
                    // Nothing is sent, so this returns an error once the claim has ended.
                    drop(others.changed().await);
                }
            }
        };
        let block = run(permit, move || {
            let mut encoder = Encoder::new(chunk.frames_len());
            encode(chunk.objects(), &mut encoder)?;
            let block = chunk.keep(format, encoder.finish());
            drop(claim);
            Ok(block)
        });
        Ok((block.await?, true))
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
        apart(async move {
            let permit = self.permit().await?;
            run(Some(permit), move || {
                let mut encoder = Encoder::new(len);
                let output = encode(&mut encoder)?;
                Ok((encoder.finish(), output))
            })
            .await
        })
        .await
    }

    /// Waits for a permit. The queue is as long as there are lists, each with one block at a time.
    async fn permit(&self) -> Result<QueuedPermit, CompressError> {
        let permit = self.shared.permits.acquire(self.peer).await;
        permit.ok_or(CompressError)
    }
}

/// Runs the work in a task of its own, which ends with this future: a permit must not wait until a client reads, and its response is polled.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, CompressError>> + Send + 'static,
) -> Result<T, CompressError> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(_)) | None => Err(CompressError),
    }
}

async fn run<M, R>(permit: Option<QueuedPermit>, make: M) -> Result<R, CompressError>
where
    M: FnOnce() -> Result<R, CompressError> + Send + 'static,
    R: Send + 'static,
{
    let made = spawn_blocking(move || {
        let made = make();
        drop(permit);
        made
    });
    made.await.unwrap_or(Err(CompressError))
}
