//! What the registry does when APIServices change: a group and version that moves to a service, or away from one, gives its caches up.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Registry;
use crate::cache_rule::{ApiServiceKnowledge, api_services};
use crate::metrics::TaskKind;
use crate::resource::{CacheKey, Gvr};
use crate::task::restart_on_end;
use crate::view::Hub;

impl Registry {
    /// Starts to follow the APIServices, and waits until they were read or cannot be, at most this long. A server that does not offer
    /// them is not waited for.
    pub(crate) async fn learn_api_services(&self, wait: Duration) {
        // Before the task starts, so that its first answer is not missed.
        let mut known = self.api_services.subscribe();
        let (feed, ends) = (Arc::clone(&self.api_services), self.metrics.task_ends());
        self.state().tasks.spawn(async move {
            restart_on_end(TaskKind::ApiServices, &ends, || feed.run()).await;
        });
        if self.discovery.load().resource(&api_services()).is_some() {
            // If this times out, it is noticed when the gateway runs.
            let _ = tokio::time::timeout(wait, known.changed()).await;
        }
        let known = Arc::clone(&known.borrow());
        self.apply(&known);
    }

    /// Applies what becomes known of the APIServices. Never returns.
    pub(crate) async fn follow_api_services(&self) -> Infallible {
        let mut known = self.api_services.subscribe();
        loop {
            // What was known before this task began may not be applied yet.
            let next = Arc::clone(&known.borrow_and_update());
            if !Arc::ptr_eq(&next, &self.known.load()) {
                self.apply(&next);
                self.start_restored();
                self.start_pinned();
            }
            if known.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Goes by this from now on, and ends what is not allowed any more.
    pub(super) fn apply(&self, next: &Arc<ApiServiceKnowledge>) {
        let limitation = next.limitation();
        match &limitation {
            Some(limitation) => warn!("{limitation}"),
            None => info!("the APIServices are known: what services serve is forwarded"),
        }
        self.metrics
            .api_services_known()
            .set(i64::from(limitation.is_none()));
        let before = self.known.swap(Arc::clone(next));
        // kube-apiserver answers from its own storage with a local APIService and without one, which a new custom resource is for a moment.
        let has_moved = |gvr: &Gvr| match (before.last(), next.last()) {
            (Some(before), Some(next)) => before.service(gvr) != next.service(gvr),
            (_, _) => false,
        };
        self.end_caches_that(|gvr| has_moved(gvr) || !self.may_keep(gvr));
    }

    /// Gives the caches of these resources up: their clients list again.
    fn end_caches_that(&self, must_end: impl Fn(&Gvr) -> bool) {
        let keys = self.slots().into_iter().map(|(key, _)| key);
        for key in keys
            .filter(|key| must_end(&key.gvr))
            .collect::<Vec<CacheKey>>()
        {
            info!(resource = %key, "giving the cache up: who serves the resource has changed, or is not known any more");
            self.close_slot(&key, Hub::expire);
        }
        self.table_lists.expire(&must_end);
        self.tables.expire(must_end);
    }
}
