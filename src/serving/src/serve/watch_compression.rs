//! Which watches are sent as gzip.

use std::sync::Arc;

use tokio::time::Instant;

use super::read_request::ReadRequest;
use crate::config::CompressWatches;
use crate::metrics::ListenerMetrics;
use crate::watch::{GzipReaders, GzipTrial, Watch};

/// A view that fewer compressed watches share is sent uncompressed: its events would be compressed for hardly anybody.
const SHARING_MIN: usize = 4;
/// Names of clients whose usual way to read gzip gives nothing out before its buffer is full: Java's `GZIPInputStream`.
const LATE_READERS: [&str; 2] = ["Java/", "Java-http-client/"];
/// Who can see lengths on the network and write into the same view could guess what else is in it.
const SECRETS: &str = "secrets";

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

    /// The watch, as gzip if that is to be, and whether it is.
    pub(super) fn compressed(
        &self,
        watch: Watch,
        request: &ReadRequest,
        metrics: &ListenerMetrics,
    ) -> (Watch, bool) {
        let Some(agent) = request.gzip_agent.as_deref() else {
            return (watch, false);
        };
        let sharing_min = match self.which {
            CompressWatches::Never => return (watch, false),
            CompressWatches::Always => 1,
            CompressWatches::Auto => {
                let is_late = LATE_READERS.iter().any(|name| agent.starts_with(name));
                if is_late || &*request.path.gvr.resource == SECRETS {
                    return (watch, false);
                }
                if !self.readers.can_read(agent, Instant::now()) {
                    metrics.gzip_unread.inc();
                    return (watch, false);
                }
                SHARING_MIN
            }
        };
        let trial = GzipTrial::new(Arc::clone(&self.readers), agent);
        (watch.compressed(sharing_min, trial), true)
    }
}
