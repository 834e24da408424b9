//! Compressed blocks of initial events that are ready after another poll, or cannot be made.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use flate2::{Compress, Compression, FlushCompress};

use crate::cache::{BlockFormat, Checksum, Chunk, DeflateBlock};
use crate::resource::EventKind;
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

fn block(chunk: &Chunk) -> DeflateBlock {
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
