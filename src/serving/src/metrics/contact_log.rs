//! Whether the API server can be reached, as far as the watches of the caches show: logged when it is lost and when it is back. While it is
//! gone, many watches fail again and again.

use std::time::Instant;

use parking_lot::Mutex;
use tokio::time::Instant as RuntimeInstant;
use tracing::{info, warn};

use crate::log_limit::LogLimit;
use crate::resource::CacheKey;

/// Logs the contact to the API server. All caches share it.
#[derive(Debug, Default)]
pub struct ContactLog(Mutex<ContactState>);

#[derive(Debug, Default)]
struct ContactState {
    /// When the loss was logged; `None` while there is contact, or a short loss that was not logged.
    lost_at: Option<Instant>,
    log_limit: LogLimit,
}

impl ContactLog {
    /// A request or a watch of this cache has failed without an answer.
    pub fn lost(&self, resource: &CacheKey, error: &str) {
        let mut state = self.0.lock();
        if state.lost_at.is_none() && state.log_limit.due(RuntimeInstant::now()).is_some() {
            state.lost_at = Some(Instant::now());
            warn!(%resource, error, "the API server is lost; caches are served as they are, and watched again as soon as it is back");
        }
    }

    /// A watch was opened.
    pub fn found(&self) {
        if let Some(lost_at) = self.0.lock().lost_at.take() {
            info!(after = ?lost_at.elapsed(), "the API server is back");
        }
    }
}
