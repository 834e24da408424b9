//! Checks whether upstream still has the history that a cache was filled from.
//!
//! After etcd is restored from a backup the watch continues as if nothing had happened, and the cache holds objects that no longer exist.
//! The check notices it by versions that are lower than before, by another cluster uid, and by samples of upstream's objects (decision 19).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::cache::Snapshot;
use crate::metrics::Contradiction;
use crate::resource::{Gvr, Object, ObjectKey, ResourceVersion, random};
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{Collection, Fetch, Sample, SampleEntry, cluster_uid, sample};
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
/// How long to wait until the watch passes a version. On a quiet resource the next bookmark does, which comes within a minute.
const STREAM_WAIT: Duration = Duration::from_secs(90);
/// The period doubles with each contradiction, at most this many times: otherwise an upstream whose versions carry no meaning would be
/// listed every minute.
const DOUBLED_MAX: u32 = 6;

/// Why a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckReason {
    /// The watch was opened again.
    Reconnected,
    /// The period has passed.
    Periodic,
}

/// Which object is read by name if one page does not hold all objects.
#[derive(Clone, Debug)]
enum ObjectChoice {
    /// The object that was written last, which a restored backup is the least likely to have.
    Newest,
    /// A random object.
    Random,
    /// This object.
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

/// What a check has found out, unless something kept it from an answer.
#[derive(Debug)]
enum ConsistencyOutcome {
    /// Nothing contradicts the cache.
    Consistent,
    Contradicted(ConsistencyFinding),
}

impl ConsistencyOutcome {
    const fn contradicted(contradiction: Contradiction, key: Option<ObjectKey>) -> Self {
        Self::Contradicted(ConsistencyFinding { contradiction, key })
    }
}

/// Checks a cache against upstream each time `connections` grows and periodically, and returns when upstream contradicts the cache.
/// `before` is the number of contradictions of this resource so far.
pub(super) async fn contradiction<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    mut connections: watch::Receiver<u64>,
    before: u64,
) -> Contradiction {
    // The first connection fills the cache.
    let mut seen = 1;
    let mut cluster = None;
    // An object whose contradiction was neither confirmed nor cleared, because the repeated check failed or was interrupted.
    let mut doubted: Option<ObjectKey> = None;
    let doublings = u32::try_from(before).map_or(DOUBLED_MAX, |before| before.min(DOUBLED_MAX));
    loop {
        let wait = (PERIOD * 3 / 4 + jitter(PERIOD / 2)) * (1 << doublings);
        let reconnected = connections.wait_for(|count| *count > seen);
        let reconnected = tokio::time::timeout(wait, reconnected).await;
        let reason = match reconnected.map(|count| count.map(|count| *count)) {
            Ok(Ok(count)) => {
                seen = count;
                CheckReason::Reconnected
            }
            // The driver has dropped its recorder: it has ended, and so does the check.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => CheckReason::Periodic,
        };
        if reason == CheckReason::Reconnected {
            sleep(jitter(SPREAD)).await;
        }
        if (reason == CheckReason::Reconnected || cluster.is_none())
            && let Ok(uid) = cluster_uid(fetch).await
            && cluster.get_or_insert_with(|| uid.clone()) != &uid
        {
            return Contradiction::Cluster;
        }
        let choice = doubted
            .clone()
            .map_or_else(|| ObjectChoice::of(reason), ObjectChoice::Key);
        let finding = match check(fetch, served, &choice, &mut connections).await {
            Some(ConsistencyOutcome::Contradicted(finding)) => finding,
            Some(ConsistencyOutcome::Consistent) => {
                doubted = None;
                continue;
            }
            None => continue,
        };
        // One of several API servers may lag behind the others.
        sleep(CONFIRMED_AFTER).await;
        // Check the same object again: a random one of many would hardly be missing, too.
        doubted = finding.key.or(doubted);
        let same = doubted.clone().map_or(choice, ObjectChoice::Key);
        match check(fetch, served, &same, &mut connections).await {
            Some(ConsistencyOutcome::Contradicted(finding)) => return finding.contradiction,
            Some(ConsistencyOutcome::Consistent) => doubted = None,
            None => {}
        }
    }
}

/// Compares a page of upstream's objects with a state that was held before. An upstream that cannot be read contradicts nothing.
pub(super) async fn contradicts_upstream<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
) -> Option<Contradiction> {
    let snapshot = served.cache.snapshot()?;
    let collection = Collection::all(&served.cache.kind().gvr);
    let page = sample(fetch, &collection, SAMPLE_LEN).await.ok()?;
    differs(&page, &snapshot)
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

/// Compares versions and a few objects. `None` if something cannot be read, or if the cache does not reach the version of a list
/// without the object.
async fn check<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    choice: &ObjectChoice,
    connections: &mut watch::Receiver<u64>,
) -> Option<ConsistencyOutcome> {
    let before = served.cache.snapshot()?;
    let gvr = &served.cache.kind().gvr;
    let page = sample(fetch, &Collection::all(gvr), SAMPLE_LEN)
        .await
        .ok()?;
    if let Some(contradiction) = differs(&page, &before) {
        return Some(ConsistencyOutcome::contradicted(contradiction, None));
    }
    let (all, cached, key) = if page.is_complete {
        let missing = before.objects.iter().find(|object| lacks(&page, object));
        let Some(missing) = missing else {
            return Some(ConsistencyOutcome::Consistent);
        };
        (page, missing, None)
    } else {
        let Some(object) = chosen(&before, choice) else {
            return Some(ConsistencyOutcome::Consistent);
        };
        let key = Some(ObjectKey::from(object.key()));
        let single = sample(fetch, &named(gvr, object), SAMPLE_LEN).await.ok()?;
        if let Some(contradiction) = differs(&single, &before) {
            return Some(ConsistencyOutcome::contradicted(contradiction, key));
        }
        (single, object, key)
    };
    if !all.is_complete || !lacks(&all, cached) {
        return Some(ConsistencyOutcome::Consistent);
    }
    // The watch delivers a deletion before it passes the version of a list without the object.
    if !reaches(served, all.version, connections).await {
        return None;
    }
    let after = served.cache.snapshot()?;
    let still = after.objects.object_at(cached.key());
    let is_same = still.is_some_and(|still| {
        still.uid() == cached.uid() && still.resource_version() == cached.resource_version()
    });
    if after.epoch == before.epoch && is_same {
        Some(ConsistencyOutcome::contradicted(
            Contradiction::Missing,
            key,
        ))
    } else {
        Some(ConsistencyOutcome::Consistent)
    }
}

/// How a sample contradicts a snapshot that was taken before the sample was requested. A consistent list is never older than data that the
/// API server has sent before, unless the history is another one.
fn differs(sample: &Sample, snapshot: &Snapshot) -> Option<Contradiction> {
    if sample.version < snapshot.resource_version {
        Some(Contradiction::Older)
    } else {
        lists_another_state(sample, snapshot).then_some(Contradiction::Listed)
    }
}

/// Whether upstream lists an object that the snapshot must hold in the same state: its last write is not newer than the snapshot.
fn lists_another_state(sample: &Sample, snapshot: &Snapshot) -> bool {
    let known = snapshot.resource_version;
    let differs = |entry: &SampleEntry| {
        let cached = snapshot.objects.object(entry.key.as_str());
        let is_same = cached.is_some_and(|object| {
            object.resource_version() == entry.version && object.uid() == entry.uid
        });
        entry.version <= known && !is_same
    };
    sample.entries.iter().any(differs)
}

fn lacks(sample: &Sample, object: &Object) -> bool {
    let is_it = |entry: &SampleEntry| object.key() == entry.key;
    !sample.entries.iter().any(is_it)
}

fn chosen<'a>(snapshot: &'a Snapshot, choice: &ObjectChoice) -> Option<&'a Object> {
    let objects = &snapshot.objects;
    match choice {
        ObjectChoice::Newest => {
            let searched = objects.iter().take(NEWEST_AMONG);
            searched.max_by_key(|object| object.resource_version())
        }
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
