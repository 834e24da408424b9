//! Connections on which responses were cut because their client had stopped reading: a counter, and a log line now and then.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::time::Instant;
use tracing::warn;

use crate::log_limit::LogLimit;

/// Counts and logs connections on which responses were cut. Clones share the counter and the limit of log lines.
#[derive(Clone, Debug)]
pub struct StalledStreams {
    total: IntCounter,
    log_limit: Arc<Mutex<LogLimit>>,
}

impl StalledStreams {
    pub(crate) fn new(total: IntCounter) -> Self {
        Self {
            total,
            log_limit: Arc::default(),
        }
    }

    /// The number of connections so far.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    /// Counts a connection of this client. A log line covers all since the previous one, and names the newest client.
    pub fn note(&self, client: IpAddr) {
        self.total.inc();
        let due = self.log_limit.lock().due(Instant::now());
        if let Some(count) = due {
            warn!(%client, count, "responses were cut because their client had stopped reading");
        }
    }
}
