//! What a consistent read must have seen: one small request upstream, shared by all who ask meanwhile.
//!
//! kube-apiserver can force etcd to tell how far it is; a client of its API cannot. So the version is learnt by a list
//! of one item, and the cache is fresh once its stream has passed it. A quiet resource's stream passes nothing while
//! other resources move the version on: then the names and versions of all objects are compared (decision 3).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cache::{Epoch, Sequence, Snapshot, WatchCache};
use crate::resource::ResourceVersion;
use crate::serve::resources::Latest;
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{CENSUS_MAX, Fetch, ObjectVersions, census, newest_version};
use crate::view::ServedResource;

/// A busy resource's stream passes the version in a few milliseconds; after this it counts as quiet.
const STREAM_WAIT: Duration = Duration::from_millis(60);
/// An answer takes at most so long, everything included: as long as kube-apiserver would wait (docs/PROTOCOL.md §10).
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// A resource's objects are compared at most at this rate: large resources seldom, small ones almost at will.
const COMPARED_PER_SECOND: u32 = 10_000;
/// A comparison costs at least as much as one of so many objects.
const COMPARED_MIN: usize = 100;
/// Comparing more objects than this takes longer than a task may hold its thread.
const COMPARED_APART: usize = 1_000;

/// The freshness of one resource: of the cache that it has now.
#[derive(Debug, Default)]
pub(super) struct ResourceFreshness {
    inquiry: Mutex<Option<Arc<Inquiry>>>,
}

impl ResourceFreshness {
    /// Asks upstream, or waits for an answer that is asked for after this call. At most one question is under way, and all
    /// who come meanwhile share the next one. It goes on when those who wait for it leave.
    pub(super) async fn latest<F: Fetch>(&self, fetch: &Arc<F>, served: &ServedResource) -> Latest {
        if served.hub.is_closed() {
            return Latest::Unknown;
        }
        let answer = self.inquiry(&served.cache).join(fetch, served);
        match tokio::time::timeout(ANSWER_WAIT, answer).await {
            Ok(Ok(latest)) => latest,
            Ok(Err(_)) | Err(_) => Latest::Unknown,
        }
    }

    /// The questions about this cache; what was learnt of one before it is dropped.
    fn inquiry(&self, cache: &Arc<WatchCache>) -> Arc<Inquiry> {
        let mut inquiry = self.inquiry.lock().unwrap_or_else(PoisonError::into_inner);
        let known = inquiry.take().filter(|known| known.is_about(cache));
        let known = known.unwrap_or_else(|| Arc::new(Inquiry::new(cache)));
        Arc::clone(inquiry.insert(known))
    }
}

/// The questions about one cache.
#[derive(Debug)]
struct Inquiry {
    cache: Weak<WatchCache>,
    state: Mutex<InquiryState>,
}

#[derive(Debug, Default)]
struct InquiryState {
    /// Those who wait for the next question to be asked and answered.
    waiting: Vec<oneshot::Sender<Latest>>,
    /// Asks until nobody waits.
    task: Option<JoinHandle<()>>,
    proof: Option<Proof>,
    /// No comparison before this.
    compare_at: Option<Instant>,
}

/// That a state of the cache was upstream's at a version.
#[derive(Clone, Copy, Debug)]
struct Proof {
    epoch: Epoch,
    sequence: Sequence,
    version: ResourceVersion,
}

impl Inquiry {
    fn new(cache: &Arc<WatchCache>) -> Self {
        Self {
            cache: Arc::downgrade(cache),
            state: Mutex::default(),
        }
    }

    fn is_about(&self, cache: &Arc<WatchCache>) -> bool {
        std::ptr::eq(self.cache.as_ptr(), Arc::as_ptr(cache))
    }

    fn state(&self) -> MutexGuard<'_, InquiryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join<F: Fetch>(
        self: &Arc<Self>,
        fetch: &Arc<F>,
        served: &ServedResource,
    ) -> oneshot::Receiver<Latest> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        state.waiting.push(sender);
        // A task that panicked has dropped those who waited for it; it is replaced.
        if state.task.as_ref().is_none_or(JoinHandle::is_finished) {
            let asking = Arc::clone(self).ask_all(Arc::clone(fetch), served.clone());
            state.task = Some(tokio::spawn(asking));
        }
        answer
    }

    /// Asks until nobody waits any more.
    async fn ask_all<F: Fetch>(self: Arc<Self>, fetch: Arc<F>, served: ServedResource) {
        while let Some(waiting) = self.take_waiting() {
            let answer = tokio::time::timeout(ANSWER_WAIT, self.ask(&*fetch, &served)).await;
            let latest = answer.unwrap_or(Latest::Unknown);
            for sender in waiting {
                // Who has left needs no answer.
                let _ = sender.send(latest.clone());
            }
        }
    }

    fn take_waiting(&self) -> Option<Vec<oneshot::Sender<Latest>>> {
        let mut state = self.state();
        state.waiting.retain(|sender| !sender.is_closed());
        if state.waiting.is_empty() {
            state.task = None;
            return None;
        }
        Some(std::mem::take(&mut state.waiting))
    }

    async fn ask<F: Fetch>(&self, fetch: &F, served: &ServedResource) -> Latest {
        let until = Instant::now() + ANSWER_WAIT;
        let before = served.hub.reached().version;
        let Ok(version) = newest_version(fetch, &served.cache.kind().gvr).await else {
            return Latest::Unknown;
        };
        // Upstream has another history than the cache, as after a restored backup; until that is settled, it answers itself.
        if version < before {
            return Latest::Unknown;
        }
        if wait_until_fresh(served, version, STREAM_WAIT).await {
            return Latest::At(version);
        }
        if let Some(latest) = self.proven_before(served, version) {
            return latest;
        }
        // Forwarding at once would send a whole herd upstream; those who wait share one comparison.
        let Some(delay) = self.delay_of_comparison(until) else {
            return Latest::Unknown;
        };
        if wait_until_fresh(served, version, delay).await {
            return Latest::At(version);
        }
        self.compare(fetch, served).await
    }

    /// The last proof, if nothing was written anywhere since.
    fn proven_before(&self, served: &ServedResource, version: ResourceVersion) -> Option<Latest> {
        let proof = self.state().proof?;
        let snapshot = served.cache.snapshot()?;
        let holds = proof.version >= version
            && proof.epoch == snapshot.epoch
            && proof.sequence == snapshot.sequence
            && served.cache.prove(&snapshot, proof.version);
        holds.then_some(Latest::Proven(snapshot, proof.version))
    }

    async fn compare<F: Fetch>(&self, fetch: &F, served: &ServedResource) -> Latest {
        let Some(snapshot) = served.cache.snapshot() else {
            return Latest::Unknown;
        };
        if !self.account_for_comparison(snapshot.objects.len()) {
            return Latest::Unknown;
        }
        let Ok(census) = census(fetch, &served.cache.kind().gvr).await else {
            return Latest::Unknown;
        };
        let census = Arc::new(census);
        loop {
            let Some(snapshot) = served.cache.snapshot() else {
                return Latest::Unknown;
            };
            if snapshot.resource_version >= census.version {
                return Latest::At(census.version);
            }
            // Events are on their way: look again with each of them.
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

    /// How long the next comparison has to wait; `None` if it could not begin in time.
    fn delay_of_comparison(&self, until: Instant) -> Option<Duration> {
        let now = Instant::now();
        let at = self.state().compare_at.unwrap_or(now).max(now);
        (at < until).then(|| at - now)
    }

    /// Delays the comparison after this one; false if so many objects are not compared at all.
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
    if snapshot.objects.len() <= COMPARED_APART {
        return census.matches(snapshot);
    }
    let (census, snapshot) = (Arc::clone(census), Arc::clone(snapshot));
    let matches = tokio::task::spawn_blocking(move || census.matches(&snapshot));
    // A failed comparison proves nothing.
    matches.await.unwrap_or(false)
}

#[cfg(test)]
mod tests;
