//! Histories that upstream has lost, as after a restored backup: which of their versions clients may still hold.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::resource::ResourceVersion;

/// How long after the loss of upstream's history clients may return with versions of it. Their watches have ended, and client-go waits at
/// most 30 s before it retries. A longer time would do harm: where no new cache can be filled, the versions of the new history may stay
/// below those of the lost one for days, and clients that start from one of them would list again all that time.
pub(super) const LOSS_AGE_MAX: Duration = Duration::from_secs(90);

/// The newest version that clients may know from a history that upstream no longer has.
#[derive(Debug, Default)]
pub(crate) struct HistoryLoss(Mutex<Option<(ResourceVersion, Instant)>>);

impl HistoryLoss {
    /// Records the loss of a history whose newest version is `newest`.
    pub(super) fn record(&self, newest: ResourceVersion) {
        let version = self.version().max(newest);
        *self.state() = Some((version, Instant::now()));
    }

    /// Records a loss that another process has seen.
    pub(super) fn learn(&self, newest: ResourceVersion) {
        if newest > self.version() {
            self.record(newest);
        }
    }

    /// The newest version of all lost histories; zero if none was lost.
    pub(super) fn version(&self) -> ResourceVersion {
        self.state()
            .map_or_else(Default::default, |(version, _)| version)
    }

    /// Whether a client may have this version from a history that was lost recently.
    pub(crate) fn covers(&self, version: ResourceVersion) -> bool {
        version <= self.version() && self.is_recent()
    }

    /// Whether a history was lost so recently that clients may still return with versions of it.
    pub(super) fn is_recent(&self) -> bool {
        self.state()
            .is_some_and(|(_, at)| at.elapsed() < LOSS_AGE_MAX)
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, Option<(ResourceVersion, Instant)>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn history_loss_seen_by_another_process_counts_once() {
        let loss = HistoryLoss::default();
        loss.learn(ResourceVersion(0));
        assert!(!loss.covers(ResourceVersion(0)));
        loss.learn(ResourceVersion(7));
        assert!(loss.covers(ResourceVersion(7)) && !loss.covers(ResourceVersion(8)));
        tokio::time::advance(LOSS_AGE_MAX).await;
        loss.learn(ResourceVersion(7));
        assert!(!loss.covers(ResourceVersion(7)), "nobody has it any more");
        assert_eq!(loss.version(), ResourceVersion(7));
        loss.learn(ResourceVersion(8));
        assert!(loss.covers(ResourceVersion(7)));
    }
}
