//! What the registry does for the next process: which caches have a checkpoint, and which of them are started at once.

use std::time::Duration;

use tracing::info;

use super::Registry;
use crate::cache_rule::ForwardReason;
use crate::checkpoints::Checkpoint;
use crate::resource::CacheKey;

impl Registry {
    pub(super) fn checkpoint(&self, key: &CacheKey) -> Option<Checkpoint> {
        self.settings.checkpoints.as_ref()?.of(key, &self.metrics)
    }

    /// Starts the caches that have a checkpoint: their clients will come back.
    pub(crate) fn start_restored(&self) {
        let Some(checkpoints) = &self.settings.checkpoints else {
            return;
        };
        for key in checkpoints.keys() {
            match self.may_cache(&key.gvr) {
                // What the objects in the file are worth depends on the caller whom they were read for.
                Err(ForwardReason::Service(service)) => {
                    info!(resource = %key, service, "removing the checkpoint: a service serves the resource now");
                    if let Some(checkpoint) = self.checkpoint(&key) {
                        checkpoint.remove();
                    }
                }
                // It is used once that is known.
                Err(ForwardReason::Unknown) => {}
                _ if self.checkpoint(&key).is_some() && self.slot(&key).is_some() => {}
                _ => {
                    info!(resource = %key, "the checkpoint is not used: the resource is not cached");
                }
            }
        }
    }

    /// Waits until the last changes are in the checkpoints, at most this long.
    pub(crate) async fn finish_checkpoints(&self, wait: Duration) {
        if let Some(checkpoints) = &self.settings.checkpoints {
            checkpoints.finish(wait).await;
        }
    }
}
