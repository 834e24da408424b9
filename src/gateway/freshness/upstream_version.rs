//! Upstream's present version of a resource, read by one small request at a time, which all callers share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::resource::{Gvr, ResourceVersion};
use crate::upstream::driver::{Collection, Fetch, newest_version};

/// How long upstream is not asked again after a request that failed. Otherwise thousands of watches that come while upstream is silent would
/// each send a request of their own, one after the other.
const FAILURE_AGE: Duration = Duration::from_secs(1);

/// Upstream's version of one resource.
#[derive(Debug, Default)]
pub(super) struct UpstreamVersion(Mutex<VersionQuestions>);

#[derive(Debug, Default)]
struct VersionQuestions {
    /// The request in progress, and when it began. It goes on when its caller leaves.
    running: Option<(Instant, JoinHandle<VersionAnswer>)>,
    last: Option<VersionAnswer>,
}

#[derive(Clone, Copy, Debug)]
struct VersionAnswer {
    asked_at: Instant,
    came_at: Instant,
    /// `None` if the request failed.
    version: Option<ResourceVersion>,
}

impl UpstreamVersion {
    /// The version, read after this call has begun; `None` if it cannot be read within this time.
    pub(super) async fn read<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        gvr: &Gvr,
        time_max: Duration,
    ) -> Option<ResourceVersion> {
        let called_at = Instant::now();
        let read = async {
            let mut questions = self.0.lock().await;
            // Its caller has left.
            questions.finish().await;
            if let Some(answer) = questions.last
                && answer.is_for(called_at)
            {
                return answer.version;
            }
            questions.start(fetch, gvr, time_max);
            questions.finish().await;
            questions.last?.version
        };
        timeout(time_max, read).await.ok().flatten()
    }
}

impl VersionQuestions {
    fn start<F: Fetch>(&mut self, fetch: &Arc<F>, gvr: &Gvr, time_max: Duration) {
        let (fetch, gvr) = (Arc::clone(fetch), gvr.clone());
        let asked_at = Instant::now();
        let task = tokio::spawn(async move {
            let version = timeout(time_max, newest_version(&*fetch, &Collection::all(&gvr))).await;
            VersionAnswer {
                asked_at,
                came_at: Instant::now(),
                version: version
                    .ok()
                    .and_then(Result::ok)
                    .map(|newest| newest.version),
            }
        });
        self.running = Some((asked_at, task));
    }

    /// Waits for the request in progress. Can be cancelled.
    async fn finish(&mut self) {
        let Some((asked_at, task)) = &mut self.running else {
            return;
        };
        // The answer may have come long before somebody collects it. A task that panicked has none.
        let answer = task.await.unwrap_or(VersionAnswer {
            asked_at: *asked_at,
            came_at: *asked_at,
            version: None,
        });
        self.last = Some(answer);
        self.running = None;
    }
}

impl VersionAnswer {
    /// Whether the answer will do for a caller who came at this time.
    fn is_for(&self, called_at: Instant) -> bool {
        let is_later = self.asked_at > called_at;
        is_later || self.version.is_none() && self.came_at.elapsed() < FAILURE_AGE
    }
}
