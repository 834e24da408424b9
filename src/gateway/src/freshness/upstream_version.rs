//! Upstream's present version of a resource, read by one small request at a time, which all callers share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::shared_question::SharedQuestion;
use crate::resource::{Gvr, ResourceVersion};
use crate::upstream::driver::{Collection, Fetch, newest_version};

/// How long upstream is not asked again after a request that failed. Otherwise thousands of watches that come while upstream is silent would
/// each wait for requests that fail, one after the other.
const FAILURE_AGE: Duration = Duration::from_secs(1);

/// Upstream's version of one resource.
#[derive(Debug, Default)]
pub(super) struct UpstreamVersion {
    question: SharedQuestion<Option<ResourceVersion>>,
    failed_at: Arc<Mutex<Option<Instant>>>,
}

impl UpstreamVersion {
    /// The version, read after this call has begun; `None` if it cannot be read within this time.
    pub(super) async fn read<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        gvr: &Gvr,
        time_max: Duration,
    ) -> Option<ResourceVersion> {
        let (fetch, collection) = (Arc::clone(fetch), Collection::all(gvr));
        let failed_at = Arc::clone(&self.failed_at);
        let answer = self.question.answer(move || {
            let (fetch, collection) = (Arc::clone(&fetch), collection.clone());
            let failed_at = Arc::clone(&failed_at);
            async move {
                if failed_at
                    .lock()
                    .is_some_and(|at| at.elapsed() < FAILURE_AGE)
                {
                    return None;
                }
                let newest = timeout(time_max, newest_version(&*fetch, &collection)).await;
                let version = newest
                    .ok()
                    .and_then(Result::ok)
                    .map(|newest| newest.version);
                if version.is_none() {
                    *failed_at.lock() = Some(Instant::now());
                }
                version
            }
        });
        timeout(time_max, answer).await.ok().flatten().flatten()
    }
}
