//! Fills a cache from a state that was held before, once upstream was compared with it. A comparison that could not be made is not passed.

use tracing::debug;

use super::{CacheKeeper, FillOutcome, SlotParts, label_of, pause_after};
use crate::consistency::{contradicts_upstream, may_be_read_later};
use crate::resource::ResourceVersion;
use crate::restored::WantedState;
use crate::slot::prior_state::StateOutcome;
use crate::slot::sink::SlotSink;
use crate::upstream::backoff::Backoff;
use crate::upstream::driver::cluster_uid;
use crate::upstream::reflector::{Failure, Failures};

impl CacheKeeper {
    /// The cluster's uid, for states from before and for the next process; `None` if there are none, or if this identity may not read the uid.
    pub(super) async fn cluster(&self) -> Result<Option<String>, FillOutcome> {
        if !self.prior.is_possible() {
            return Ok(None);
        }
        let mut retries = ComparisonRetries::new();
        loop {
            match cluster_uid(&*self.parts.client).await {
                Ok(uid) => return Ok(Some(uid)),
                Err(failure) if !may_be_read_later(&failure) => return Ok(None),
                Err(failure) => retries.wait_after(&failure, &self.parts).await?,
            }
        }
    }

    /// Fills an empty cache from a state from before. Returns the version to watch from; `None` if there is no state that can be used.
    pub(super) async fn restore(
        &self,
        sink: &mut SlotSink,
        cluster: Option<&str>,
    ) -> Result<Option<ResourceVersion>, FillOutcome> {
        let wanted = WantedState {
            kind: sink.served.cache.kind().clone(),
            cluster: cluster.map(str::to_owned),
            limits: self.parts.limits.live.clone(),
        };
        let Some((content, origin)) = self.prior.load(&wanted).await else {
            return Ok(None);
        };
        let (version, lost) = (content.state.version, content.state.lost);
        sink.restore(content).await;
        let counter = self.prior.counter(origin);
        let mut retries = ComparisonRetries::new();
        let contradiction = loop {
            match contradicts_upstream(&*self.parts.client, &sink.served).await {
                Ok(contradiction) => break contradiction,
                Err(failure) => retries.wait_after(&failure, &self.parts).await?,
            }
        };
        if let Some(contradiction) = contradiction {
            counter.count(StateOutcome::OtherHistory);
            return Err(FillOutcome::ForeignState(contradiction, origin));
        }
        self.cells.loss.learn(lost);
        // A page is not all: the first connection is checked as each later one is.
        sink.connections.send_replace(1);
        sink.serve_when_continued(counter);
        Ok(Some(version))
    }
}

/// The attempts to compare a state from before with upstream, within the same failure limits as the driver: a state that cannot be compared
/// is not used, and not forgotten either.
struct ComparisonRetries {
    backoff: Backoff,
    failures: Failures,
}

impl ComparisonRetries {
    fn new() -> Self {
        Self {
            backoff: Backoff::brisk(),
            failures: Failures::default(),
        }
    }

    /// Waits until the next attempt.
    ///
    /// # Errors
    /// The outcome if this failure is one too many.
    async fn wait_after(
        &mut self,
        failure: &Failure,
        parts: &SlotParts,
    ) -> Result<(), FillOutcome> {
        debug!(resource = %parts.resource.gvr, error = %failure, "cannot compare the state from before yet");
        if let Some(reason) = self.failures.add(failure, false) {
            return Err(FillOutcome::GivenUp(label_of(reason)));
        }
        tokio::time::sleep(pause_after(failure, &mut self.backoff)).await;
        Ok(())
    }
}
