//! The version that a consistent read must have seen: one small request to upstream, shared by all reads that arrive in the meantime.
//!
//! kube-apiserver can ask etcd for its current revision; a client of the API cannot. So the version is read with a list of one item, and
//! the cache is fresh once its watch has passed that version. On a quiet resource the watch passes nothing while other resources advance
//! the version; then the names and versions of all objects are compared (decision 3).

mod shared_question;
mod upstream_version;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::blocking::spawn_blocking;
use crate::cache::{Epoch, Sequence, Snapshot, WatchCache};
use crate::resource::{Gvr, ResourceVersion};
use crate::serve::resources::Latest;
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{
    CENSUS_MAX, Collection, Fetch, NewestVersion, census, newest_version,
};
use crate::upstream::object_versions::ObjectVersions;
use crate::view::ServedResource;
use shared_question::SharedQuestion;
use upstream_version::UpstreamVersion;

/// The watch of a busy resource passes the version within milliseconds; after this time the resource counts as quiet.
const STREAM_WAIT: Duration = Duration::from_millis(60);
/// The time limit for the whole proof: as long as kube-apiserver would wait (docs/PROTOCOL.md §10).
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Objects of one resource compared per second at most: large resources are compared seldom, small ones almost without limit.
const COMPARED_PER_SECOND: u32 = 10_000;
/// A comparison counts as at least this many objects.
const COMPARED_MIN: usize = 100;
/// Up to this many objects are compared on the task's own thread; more would block it for too long.
const COMPARED_INLINE_MAX: usize = 1_000;

/// The freshness of one resource's current cache.
#[derive(Debug, Default)]
pub(super) struct ResourceFreshness {
    inquiry: Mutex<Option<Arc<Inquiry>>>,
    upstream: UpstreamVersion,
    /// Notified when upstream is behind a version that clients have: the cache is to be checked now.
    doubt: Arc<Notify>,
}

impl ResourceFreshness {
    pub(super) fn new(doubt: Arc<Notify>) -> Self {
        Self {
            doubt,
            ..Self::default()
        }
    }

    /// Has the cache checked, because upstream seems to have lost its history.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// The proof for a read that starts now. Joins a question to upstream that starts after this call. At most one question is in progress;
    /// all reads that arrive during it share the next one. A question continues when its readers go away.
    pub(super) async fn latest<F: Fetch>(&self, fetch: &Arc<F>, served: &ServedResource) -> Latest {
        if served.hub.is_closed() {
            return Latest::Unknown;
        }
        let inquiry = self.inquiry(&served.cache);
        tokio::time::timeout(ANSWER_WAIT, inquiry.latest(fetch, served))
            .await
            .ok()
            .flatten()
            .unwrap_or(Latest::Unknown)
    }

    /// As [`Self::latest`], but objects are not compared: without them, a quiet resource proves nothing.
    pub(super) async fn latest_uncompared<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        served: &ServedResource,
    ) -> Latest {
        let given = served.cache.newest_given();
        let newest = self.upstream_version(fetch, &served.cache.kind().gvr);
        match newest.await {
            Some(newest) if newest < given => {
                self.doubt();
                Latest::Unknown
            }
            Some(newest) => {
                let passed = self.inquiry(&served.cache).passed(served, newest).await;
                passed.unwrap_or(Latest::Unknown)
            }
            None => Latest::Unknown,
        }
    }

    /// Upstream's version, read after this call has begun; `None` if upstream does not answer in time, or has not lately. Callers that wait
    /// share the next request.
    pub(super) async fn upstream_version<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        gvr: &Gvr,
    ) -> Option<ResourceVersion> {
        self.upstream.read(fetch, gvr, ANSWER_WAIT).await
    }

    /// The questions about this cache; those about an earlier cache are dropped.
    fn inquiry(&self, cache: &Arc<WatchCache>) -> Arc<Inquiry> {
        let mut inquiry = self.inquiry.lock();
        let current = inquiry
            .take()
            .filter(|current| current.is_about(cache))
            .unwrap_or_else(|| Arc::new(Inquiry::new(cache, &self.doubt)));
        Arc::clone(inquiry.insert(current))
    }
}

/// The questions about one cache.
#[derive(Debug)]
struct Inquiry {
    cache: Weak<WatchCache>,
    question: SharedQuestion<Latest>,
    state: Mutex<InquiryState>,
    doubt: Arc<Notify>,
}

#[derive(Debug, Default)]
struct InquiryState {
    proof: Option<Proof>,
    /// No comparison may start before this time.
    compare_at: Option<Instant>,
}

/// Proof that a state of the cache was upstream's state at a version.
#[derive(Clone, Copy, Debug)]
struct Proof {
    epoch: Epoch,
    sequence: Sequence,
    version: ResourceVersion,
}

impl Inquiry {
    fn new(cache: &Arc<WatchCache>, doubt: &Arc<Notify>) -> Self {
        Self {
            cache: Arc::downgrade(cache),
            question: SharedQuestion::default(),
            state: Mutex::default(),
            doubt: Arc::clone(doubt),
        }
    }

    fn is_about(&self, cache: &Arc<WatchCache>) -> bool {
        std::ptr::eq(self.cache.as_ptr(), Arc::as_ptr(cache))
    }

    fn state(&self) -> MutexGuard<'_, InquiryState> {
        self.state.lock()
    }

    async fn latest<F: Fetch>(
        self: &Arc<Self>,
        fetch: &Arc<F>,
        served: &ServedResource,
    ) -> Option<Latest> {
        let (inquiry, fetch, served) = (Arc::clone(self), Arc::clone(fetch), served.clone());
        let answer = self.question.answer(move || {
            let (inquiry, fetch, served) =
                (Arc::clone(&inquiry), Arc::clone(&fetch), served.clone());
            async move {
                let asked = inquiry.ask_upstream(&*fetch, &served);
                tokio::time::timeout(ANSWER_WAIT, asked)
                    .await
                    .unwrap_or(Latest::Unknown)
            }
        });
        answer.await
    }

    async fn ask_upstream<F: Fetch>(&self, fetch: &F, served: &ServedResource) -> Latest {
        let until = Instant::now() + ANSWER_WAIT;
        let given = served.cache.newest_given();
        let collection = Collection::all(&served.cache.kind().gvr);
        let Ok(NewestVersion { version, .. }) = newest_version(fetch, &collection).await else {
            return Latest::Unknown;
        };
        // Upstream's history is not the cache's, as after a restored backup. Until the cache is replaced, reads are forwarded.
        if version < given {
            self.doubt.notify_one();
            return Latest::Unknown;
        }
        if let Some(latest) = self.passed(served, version).await {
            return latest;
        }
        // Forwarding at once would send all waiting reads upstream; instead they share one comparison.
        let Some(delay) = self.comparison_delay(until) else {
            return Latest::Unknown;
        };
        if wait_until_fresh(served, version, delay).await {
            return Latest::At(version);
        }
        self.compare(fetch, served, version).await
    }

    /// What needs no comparison: the watch passes the version soon, or an earlier proof holds.
    async fn passed(&self, served: &ServedResource, version: ResourceVersion) -> Option<Latest> {
        match wait_until_fresh(served, version, STREAM_WAIT).await {
            true => Some(Latest::At(version)),
            false => self.last_proof(served, version),
        }
    }

    /// The last proof, if nothing was written in the cluster since.
    fn last_proof(&self, served: &ServedResource, version: ResourceVersion) -> Option<Latest> {
        let proof = self.state().proof?;
        let snapshot = served.cache.snapshot()?;
        let holds = proof.version >= version
            && proof.epoch == snapshot.epoch
            && proof.sequence == snapshot.sequence
            && served.cache.prove(&snapshot, proof.version);
        holds.then_some(Latest::Proven(snapshot, proof.version))
    }

    /// Compares all objects with those of upstream, which has reached `version`.
    async fn compare<F: Fetch>(
        &self,
        fetch: &F,
        served: &ServedResource,
        version: ResourceVersion,
    ) -> Latest {
        let Some(snapshot) = served.cache.snapshot() else {
            return Latest::Unknown;
        };
        if !self.account_for_comparison(snapshot.objects.len()) {
            return Latest::Unknown;
        }
        let Ok(census) = census(fetch, &Collection::all(&served.cache.kind().gvr)).await else {
            return Latest::Unknown;
        };
        if census.version < version {
            self.doubt.notify_one();
            return Latest::Unknown;
        }
        let census = Arc::new(census);
        loop {
            let Some(snapshot) = served.cache.snapshot() else {
                return Latest::Unknown;
            };
            if snapshot.resource_version >= census.version {
                return Latest::At(census.version);
            }
            // Events are in flight: compare again after each of them.
            let next = ResourceVersion(snapshot.resource_version.0 + 1);
            if matches(&census, &snapshot).await && served.cache.prove(&snapshot, census.version) {
                self.state().proof = Some(Proof {
                    epoch: snapshot.epoch,
                    sequence: snapshot.sequence,
                    version: census.version,
                });
                return Latest::Proven(snapshot, census.version);
            }
            if !wait_until_fresh(served, next, ANSWER_WAIT).await {
                return Latest::Unknown;
            }
        }
    }

    /// The delay before the next comparison may start; `None` if it could not start before `until`.
    fn comparison_delay(&self, until: Instant) -> Option<Duration> {
        let now = Instant::now();
        let at = self.state().compare_at.unwrap_or(now).max(now);
        (at < until).then(|| at - now)
    }

    /// Delays the comparison after this one in proportion to `objects`; false if there are too many objects to compare.
    fn account_for_comparison(&self, objects: usize) -> bool {
        if objects > CENSUS_MAX {
            return false;
        }
        let cost = u32::try_from(objects.max(COMPARED_MIN)).unwrap_or(u32::MAX);
        let delay = Duration::from_secs(1) * cost / COMPARED_PER_SECOND;
        self.state().compare_at = Some(Instant::now() + delay);
        true
    }
}

async fn matches(census: &Arc<ObjectVersions>, snapshot: &Arc<Snapshot>) -> bool {
    if snapshot.objects.len() <= COMPARED_INLINE_MAX {
        return census.matches(snapshot);
    }
    let (census, snapshot) = (Arc::clone(census), Arc::clone(snapshot));
    let matches = spawn_blocking(move || census.matches(&snapshot));
    // A comparison that panicked proves nothing.
    matches.await.unwrap_or(false)
}

#[cfg(test)]
mod tests;
