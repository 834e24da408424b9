//! Which watches are sent as gzip.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::gzip::{BlockCompressor, CompressError, Encoder};
use crate::cache::{BlockFormat, Chunk};
use crate::config::CompressWatches;
use crate::metrics::ListenerMetrics;
use crate::resource::{EventKind, Object};
use crate::view::GzipWeight;
use crate::watch::{GzipReaders, InitialBlocks, MakingBlock, Watch};

/// A view that fewer compressed watches share is sent uncompressed: its events would be compressed for hardly anybody.
const SHARING_MIN: usize = 4;
/// Names of clients whose usual way to read gzip gives nothing out before its buffer is full: Java's `GZIPInputStream`.
const LATE_READERS: [&str; 2] = ["Java/", "Java-http-client/"];
/// How long initial events wait for a block. Beyond it the chunk is sent as it is.
const BLOCK_WAIT: Duration = Duration::from_secs(2);
/// Who can see lengths on the network and write into the same view could guess what else is in it.
pub(super) const SECRETS: &str = "secrets";

/// Who reads a watch as gzip.
#[derive(Debug)]
pub(super) enum WatchReader {
    /// A client with this `User-Agent`.
    Client(Box<str>),
    /// A gateway. It counts as many watches, because it reads for its own clients.
    Gateway,
}

/// Decides which watches are sent as gzip.
#[derive(Debug)]
pub(super) struct WatchCompressor {
    which: CompressWatches,
    readers: Arc<GzipReaders>,
}

impl WatchCompressor {
    pub(super) fn new(which: CompressWatches) -> Self {
        Self {
            which,
            readers: Arc::default(),
        }
    }

    /// The watch of a user whose client accepts gzip; compressed if that is to be, and whether it is.
    pub(super) fn compressed(
        &self,
        watch: Watch,
        resource: &str,
        (user, reader): (&str, &WatchReader),
        (blocks, metrics): (BlockCompressor, &ListenerMetrics),
    ) -> (Watch, bool) {
        let weight = |watches, watches_min| GzipWeight {
            watches,
            watches_min,
        };
        let (weight, trial) = match (self.which, reader) {
            (CompressWatches::Never, _) => return (watch, false),
            (CompressWatches::Always, _) => (weight(1, 1), None),
            (CompressWatches::Auto, _) if resource == SECRETS => return (watch, false),
            (CompressWatches::Auto, WatchReader::Gateway) => {
                (weight(SHARING_MIN, SHARING_MIN), None)
            }
            (CompressWatches::Auto, WatchReader::Client(agent)) => {
                if LATE_READERS.iter().any(|name| agent.starts_with(name)) {
                    return (watch, false);
                }
                let trial = self.readers.begin(user, agent);
                if trial.is_none() {
                    metrics.gzip_unread.inc();
                    return (watch, false);
                }
                (weight(1, SHARING_MIN), trial)
            }
        };
        (watch.compressed(weight, trial, Arc::new(blocks)), true)
    }
}

impl InitialBlocks for BlockCompressor {
    fn make(&self, chunk: &Arc<Chunk>) -> MakingBlock {
        let made = self
            .clone()
            .shared(Arc::clone(chunk), BlockFormat::Added, write_added);
        Box::pin(async { Some(timeout(BLOCK_WAIT, made).await.ok()?.ok()?.0) })
    }
}

/// Writes the objects as ADDED events.
fn write_added(objects: &[Object], encoder: &mut Encoder) -> Result<(), CompressError> {
    for object in objects {
        encoder.write(&object.frame(EventKind::Added));
    }
    Ok(())
}
