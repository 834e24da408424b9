//! What the registry does for the next process: which caches have a checkpoint, and which of them are started at once.

use std::time::Duration;

use tracing::info;

use super::Registry;
use crate::gateway::checkpoints::Checkpoint;
use crate::resource::CacheKey;

impl Registry {
    pub(super) fn checkpoint(&self, key: &CacheKey) -> Option<Checkpoint> {
        let checkpoints = self.settings.checkpoints.as_ref()?;
        checkpoints.of(key, &self.metrics)
    }

    /// Starts the caches that have a checkpoint: their clients will come back.
    pub(in crate::gateway) fn start_restored(&self) {
        let Some(checkpoints) = &self.settings.checkpoints else {
            return;
        };
        for key in checkpoints.keys() {
            if self.checkpoint(&key).is_none() || self.slot(&key).is_none() {
                info!(resource = %key, "the checkpoint is not used: the resource is not cached");
            }
        }
    }

    /// Waits until the last changes are in the checkpoints, at most this long.
    pub(in crate::gateway) async fn finish_checkpoints(&self, wait: Duration) {
        if let Some(checkpoints) = &self.settings.checkpoints {
            checkpoints.finish(wait).await;
        }
    }
}
