//! Checks whether upstream still has the history that a cache was filled from.
//!
//! After etcd is restored from a backup the watch continues as if nothing had happened, and the cache holds objects that no longer exist.
//! The check notices it by versions that are lower than one that clients have, by another cluster uid, and by samples of upstream's objects
//! (decision 19). A check that could not be made is made again soon.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::cache::Snapshot;
use crate::metrics::Contradiction;
use crate::resource::{Gvr, Object, ObjectKey, ResourceVersion, random};
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{Collection, Fetch, Sample, cluster_uid, sample};
use crate::upstream::reflector::Failure;
use crate::view::ServedResource;

/// The mean time between checks while the watch is not reconnected.
const PERIOD: Duration = Duration::from_secs(60);
/// Checks after a reconnect are delayed at random by up to this time, because many caches reconnect together.
const SPREAD: Duration = Duration::from_secs(1);
/// A contradiction must still hold after this time.
const CONFIRMED_AFTER: Duration = Duration::from_secs(1);
/// Objects in a sample.
const SAMPLE_LEN: u32 = 20;
/// How many objects are searched for the newest one.
const NEWEST_AMONG: usize = 50_000;
/// The first pause before a check that could not be made is made again. It doubles each time, at most this often.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRIES_DOUBLED_MAX: u32 = 6;
/// How long to wait until the watch passes a version. On a quiet resource the next bookmark does, which comes within a minute.
const STREAM_WAIT: Duration = Duration::from_secs(90);
/// The period doubles with each contradiction, at most this many times: otherwise an upstream whose versions carry no meaning would be
/// listed every minute.
const DOUBLED_MAX: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckReason {
    /// The watch was opened again, or upstream seems to be behind a version that clients have.
    Reconnected,
    /// The period has passed.
    Periodic,
}

/// Which object is read by name if one page does not hold all objects.
#[derive(Clone, Debug)]
enum ObjectChoice {
    /// The object that was written last, which a restored backup is the least likely to have.
    Newest,
    Random,
    Key(ObjectKey),
}

impl ObjectChoice {
    fn of(reason: CheckReason) -> Self {
        if reason == CheckReason::Reconnected || random().is_multiple_of(2) {
            Self::Newest
        } else {
            Self::Random
        }
    }
}

/// A contradiction that a check has found.
#[derive(Debug)]
struct ConsistencyFinding {
    contradiction: Contradiction,
    /// The object that was read by name.
    key: Option<ObjectKey>,
}

/// What a check has found out.
#[derive(Debug)]
enum ConsistencyOutcome {
    /// Nothing contradicts the cache. Upstream has written an object at this version.
    Consistent(ResourceVersion),
    Contradicted(ConsistencyFinding),
    /// Upstream could not be read.
    Unread,
    /// The cache did not reach the version of a list without the object.
    Unreached,
}

impl ConsistencyOutcome {
    const fn contradicted(contradiction: Contradiction, key: Option<ObjectKey>) -> Self {
        Self::Contradicted(ConsistencyFinding { contradiction, key })
    }
}

/// What has a cache checked before the period is over.
#[derive(Debug)]
pub(super) struct CheckTriggers {
    /// How often the watch was opened. The first connection fills the cache, and needs no check.
    pub(super) connections: watch::Receiver<u64>,
    /// Upstream seems to be behind a version that clients have.
    pub(super) doubt: Arc<Notify>,
}

/// When the next check is due.
struct CheckSchedule {
    triggers: CheckTriggers,
    /// Connections that were checked.
    seen: u64,
    period: Duration,
    /// The reason of a check that could not be made, and how often it was tried.
    unmade: Option<(CheckReason, u32)>,
}

impl CheckSchedule {
    /// Waits until a check is due.
    async fn next(&mut self) -> CheckReason {
        let (wait, unmade) = match self.unmade {
            Some((reason, tries)) => (RETRY_PAUSE * (1 << tries.min(RETRIES_DOUBLED_MAX)), reason),
            None => (
                self.period * 3 / 4 + jitter(self.period / 2),
                CheckReason::Periodic,
            ),
        };
        let (seen, connections) = (self.seen, &mut self.triggers.connections);
        let reconnected = async {
            let count = connections.wait_for(|count| *count > seen).await;
            count.map(|count| *count).ok()
        };
        let reason = tokio::select! {
            count = reconnected => match count {
                Some(count) => {
                    self.seen = count;
                    CheckReason::Reconnected
                }
                // The driver has dropped its recorder: it has ended, and so does the check.
                None => std::future::pending().await,
            },
            () = self.triggers.doubt.notified() => CheckReason::Reconnected,
            () = sleep(wait.min(self.period)) => return unmade,
        };
        self.unmade = None;
        sleep(jitter(SPREAD)).await;
        reason
    }

    fn note_unmade(&mut self, reason: CheckReason) {
        let tries = self.unmade.map_or(0, |(_, tries)| tries + 1);
        self.unmade = Some((reason, tries));
    }
}

/// Checks a cache against upstream each time it is triggered and periodically, and returns when upstream contradicts the cache.
/// `before` is the number of contradictions of this resource so far. Sets `lag` if the watch has not reached a version that upstream had
/// written at the check before.
pub(super) async fn contradiction<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    triggers: CheckTriggers,
    lag: &Mutex<bool>,
    before: u64,
) -> Contradiction {
    let doublings = u32::try_from(before).map_or(DOUBLED_MAX, |before| before.min(DOUBLED_MAX));
    let mut schedule = CheckSchedule {
        triggers,
        seen: 1,
        period: PERIOD * (1 << doublings),
        unmade: None,
    };
    let mut cluster = None;
    // An object whose contradiction was neither confirmed nor cleared, because the repeated check failed or was interrupted.
    let mut doubted: Option<ObjectKey> = None;
    let mut written = ResourceVersion::default();
    loop {
        let reason = schedule.next().await;
        if reason == CheckReason::Periodic && served.cache.newest_given() < written {
            *lag.lock() = true;
        }
        let mut is_unread = false;
        if reason == CheckReason::Reconnected || cluster.is_none() {
            match cluster_uid(fetch).await {
                Ok(uid) if cluster.get_or_insert_with(|| uid.clone()) != &uid => {
                    return Contradiction::Cluster;
                }
                Ok(_) => {}
                Err(failure) => is_unread = may_be_read_later(&failure),
            }
        }
        let choice = doubted
            .clone()
            .map_or_else(|| ObjectChoice::of(reason), ObjectChoice::Key);
        let connections = &mut schedule.triggers.connections;
        match check(fetch, served, &choice, connections).await {
            ConsistencyOutcome::Contradicted(finding) => {
                // One of several API servers may lag behind the others.
                sleep(CONFIRMED_AFTER).await;
                // Check the same object again: a random one of many would hardly be missing, too.
                doubted = finding.key.or(doubted);
                let same = doubted.clone().map_or(choice, ObjectChoice::Key);
                match check(fetch, served, &same, connections).await {
                    ConsistencyOutcome::Contradicted(finding) => return finding.contradiction,
                    ConsistencyOutcome::Consistent(_) => doubted = None,
                    ConsistencyOutcome::Unread => is_unread = true,
                    ConsistencyOutcome::Unreached => {}
                }
            }
            ConsistencyOutcome::Consistent(version) => {
                doubted = None;
                written = version;
            }
            ConsistencyOutcome::Unread => is_unread = true,
            ConsistencyOutcome::Unreached => {}
        }
        match is_unread {
            true => schedule.note_unmade(reason),
            false => schedule.unmade = None,
        }
    }
}

/// Whether upstream may answer the same request later. A missing right or object is an answer.
pub(super) fn may_be_read_later(failure: &Failure) -> bool {
    match failure {
        Failure::Status(status) => !matches!(status.code, 403 | 404),
        Failure::Transport | Failure::Saturated => true,
        Failure::Protocol | Failure::TooLong | Failure::Unordered => false,
    }
}

/// Compares a page of upstream's objects with a state that was held before.
///
/// # Errors
/// Upstream cannot be read: then nothing is known of the state.
pub(super) async fn contradicts_upstream<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
) -> Result<Option<Contradiction>, Failure> {
    let Some(held) = HeldState::of(served) else {
        return Ok(None);
    };
    let collection = Collection::all(&served.cache.kind().gvr);
    let page = sample(fetch, &collection, SAMPLE_LEN).await?;
    Ok(held.contradicted_by(&page))
}

fn jitter(most: Duration) -> Duration {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random() % most.max(1))
}

/// Whether the cache reaches a version. If the watch is opened again, the wait ends: the version may never come, as after a restored backup,
/// and the new watch has to be checked.
async fn reaches(
    served: &ServedResource,
    version: ResourceVersion,
    connections: &mut watch::Receiver<u64>,
) -> bool {
    tokio::select! {
        // A version that is there already counts, whatever happened to the watch meanwhile.
        biased;
        is_reached = wait_until_fresh(served, version, STREAM_WAIT) => is_reached,
        _ = connections.changed() => false,
    }
}

/// Compares versions and a few objects.
async fn check<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    choice: &ObjectChoice,
    connections: &mut watch::Receiver<u64>,
) -> ConsistencyOutcome {
    let Some(held) = HeldState::of(served) else {
        return ConsistencyOutcome::Consistent(ResourceVersion::default());
    };
    let before = &held.snapshot;
    let gvr = &served.cache.kind().gvr;
    let Ok(page) = sample(fetch, &Collection::all(gvr), SAMPLE_LEN).await else {
        return ConsistencyOutcome::Unread;
    };
    if let Some(contradiction) = held.contradicted_by(&page) {
        return ConsistencyOutcome::contradicted(contradiction, None);
    }
    let written = page.entries.iter().map(|entry| entry.version).max();
    let consistent = ConsistencyOutcome::Consistent(written.unwrap_or_default());
    let (all, cached, key) = if page.is_complete {
        let missing = before.objects.iter().find(|object| lacks(&page, object));
        let Some(missing) = missing else {
            return consistent;
        };
        (page, missing, None)
    } else {
        let Some(object) = chosen(before, choice) else {
            return consistent;
        };
        let key = Some(ObjectKey::from(object.key()));
        let Ok(single) = sample(fetch, &named(gvr, object), SAMPLE_LEN).await else {
            return ConsistencyOutcome::Unread;
        };
        if let Some(contradiction) = held.contradicted_by(&single) {
            return ConsistencyOutcome::contradicted(contradiction, key);
        }
        (single, object, key)
    };
    if !all.is_complete || !lacks(&all, cached) {
        return consistent;
    }
    // The watch delivers a deletion before it passes the version of a list without the object.
    if !reaches(served, all.version, connections).await {
        return ConsistencyOutcome::Unreached;
    }
    let after = served
        .cache
        .snapshot()
        .filter(|after| after.epoch == before.epoch);
    let still = after
        .as_ref()
        .and_then(|after| after.objects.object_at(cached.key()));
    let is_same = still.is_some_and(|still| {
        still.uid() == cached.uid() && still.resource_version() == cached.resource_version()
    });
    match is_same {
        true => ConsistencyOutcome::contradicted(Contradiction::Missing, key),
        false => consistent,
    }
}

/// What a cache held, and the newest version that clients had, before upstream was asked.
struct HeldState {
    snapshot: Arc<Snapshot>,
    /// The snapshot is upstream's state at this version, except for what came and went.
    given: ResourceVersion,
}

impl HeldState {
    fn of(served: &ServedResource) -> Option<Self> {
        // The snapshot last: it has everything up to the version then.
        let given = served.cache.newest_given();
        let snapshot = served.cache.snapshot()?;
        Some(Self {
            given: given.max(snapshot.resource_version),
            snapshot,
        })
    }

    /// How a sample that was read afterwards contradicts the state. A consistent list is never older than what an API server has said before,
    /// unless the history is another one.
    fn contradicted_by(&self, sample: &Sample) -> Option<Contradiction> {
        if sample.version < self.given {
            Some(Contradiction::Older)
        } else {
            self.lacks_listed(sample).then_some(Contradiction::Listed)
        }
    }

    /// Whether upstream lists an object that the snapshot must hold in the same state: its last write is not newer.
    fn lacks_listed(&self, sample: &Sample) -> bool {
        sample.entries.iter().any(|entry| {
            let is_same = self
                .snapshot
                .objects
                .object(entry.key.as_str())
                .is_some_and(|object| {
                    object.resource_version() == entry.version && object.uid() == entry.uid
                });
            entry.version <= self.given && !is_same
        })
    }
}

fn lacks(sample: &Sample, object: &Object) -> bool {
    !sample.entries.iter().any(|entry| object.key() == entry.key)
}

fn chosen<'a>(snapshot: &'a Snapshot, choice: &ObjectChoice) -> Option<&'a Object> {
    let objects = &snapshot.objects;
    match choice {
        ObjectChoice::Newest => objects
            .iter()
            .take(NEWEST_AMONG)
            .max_by_key(|object| object.resource_version()),
        ObjectChoice::Random => {
            let count = u64::try_from(objects.len()).unwrap_or(u64::MAX);
            let at = usize::try_from(random() % count.max(1)).unwrap_or_default();
            objects.iter().nth(at)
        }
        ObjectChoice::Key(key) => objects.object(key.as_str()),
    }
}

/// The collection with this object alone.
fn named(gvr: &Gvr, object: &Object) -> Collection {
    let namespace = object.key().namespace();
    Collection {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        field_selector: format!("metadata.name={}", object.key().name()),
        ..Collection::all(gvr)
    }
}

#[cfg(test)]
mod tests;
