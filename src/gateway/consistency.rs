//! Whether upstream still has the history that a cache was filled from.
//!
//! After an etcd is restored from a backup the watch goes on as if nothing had happened, and the cache holds objects that no
//! longer exist. Versions that are lower than before tell, and samples of upstream's objects (decision 19).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::cache::Snapshot;
use crate::metrics::Contradiction;
use crate::resource::{Gvr, Object, ObjectKey, random};
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{Collection, Fetch, Sample, SampleEntry, cluster_uid, sample};
use crate::view::ServedResource;

/// About so often samples are taken when nothing else asks for them.
const PERIOD: Duration = Duration::from_secs(60);
/// Caches that reconnect together are checked within this.
const SPREAD: Duration = Duration::from_secs(1);
/// A contradiction counts if it is still there after this.
const CONFIRMED_AFTER: Duration = Duration::from_secs(1);
/// Objects of a sample.
const SAMPLE_LEN: u32 = 20;
/// The newest object is looked for among so many.
const NEWEST_AMONG: usize = 50_000;
/// A quiet resource's stream passes a version with its next bookmark, which comes within a minute.
const STREAM_WAIT: Duration = Duration::from_secs(90);
/// The period doubles with each contradiction, so often at most: an upstream whose versions mean nothing is not listed
/// every minute.
const DOUBLED_MAX: u32 = 6;

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckReason {
    /// The watch was connected again.
    Reconnected,
    /// Time has passed.
    Periodic,
}

/// The object that is asked for by its name, where a page does not hold all of them.
#[derive(Clone, Debug)]
enum ObjectChoice {
    /// The one written last, which a restored backup is the least likely to have.
    Newest,
    /// Any.
    Random,
    /// This one.
    Key(ObjectKey),
}

impl ObjectChoice {
    fn of(occasion: CheckReason) -> Self {
        if occasion == CheckReason::Reconnected || random().is_multiple_of(2) {
            Self::Newest
        } else {
            Self::Random
        }
    }
}

/// What a check has found.
#[derive(Debug)]
struct ConsistencyFinding {
    contradiction: Contradiction,
    /// The object that was asked for by its name.
    key: Option<ObjectKey>,
}

impl ConsistencyFinding {
    const fn of(contradiction: Contradiction) -> Self {
        Self {
            contradiction,
            key: None,
        }
    }
}

/// Checks one cache against upstream, whenever the count of its `connections` has grown and now and then, until upstream
/// contradicts it. `before` is how many contradictions the resource has seen.
pub(super) async fn contradiction<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    mut connections: watch::Receiver<u64>,
    before: u64,
) -> Contradiction {
    // The first connection is the one that the cache is filled from.
    let mut seen = 1;
    let mut cluster = None;
    let doubled = u32::try_from(before).map_or(DOUBLED_MAX, |before| before.min(DOUBLED_MAX));
    loop {
        let wait = (PERIOD * 3 / 4 + jitter(PERIOD / 2)) * (1 << doubled);
        let reconnected = connections.wait_for(|count| *count > seen);
        let reconnected = tokio::time::timeout(wait, reconnected).await;
        let occasion = match reconnected.map(|count| count.map(|count| *count)) {
            Ok(Ok(count)) => {
                seen = count;
                CheckReason::Reconnected
            }
            // Without its tally the driver is over, and so is this.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => CheckReason::Periodic,
        };
        if occasion == CheckReason::Reconnected {
            sleep(jitter(SPREAD)).await;
        }
        if (occasion == CheckReason::Reconnected || cluster.is_none())
            && let Ok(uid) = cluster_uid(fetch).await
            && cluster.get_or_insert_with(|| uid.clone()) != &uid
        {
            return Contradiction::Cluster;
        }
        let choice = ObjectChoice::of(occasion);
        if let Some(finding) = check(fetch, served, &choice).await {
            // One of several servers may have answered from a state of its own.
            sleep(CONFIRMED_AFTER).await;
            // The same object: among many, another one would hardly differ too.
            let same = finding.key.map_or(choice, ObjectChoice::Key);
            if let Some(finding) = check(fetch, served, &same).await {
                return finding.contradiction;
            }
        }
    }
}

fn jitter(most: Duration) -> Duration {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random() % most.max(1))
}

/// Compares versions and a few objects. What cannot be read contradicts nothing.
async fn check<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    choice: &ObjectChoice,
) -> Option<ConsistencyFinding> {
    let before = served.cache.snapshot()?;
    let gvr = &served.cache.kind().gvr;
    let page = sample(fetch, &Collection::all(gvr), SAMPLE_LEN)
        .await
        .ok()?;
    if let Some(contradiction) = differs(&page, &before) {
        return Some(ConsistencyFinding::of(contradiction));
    }
    let (all, held, key) = if page.is_complete {
        let missing = before.objects.iter().find(|object| lacks(&page, object));
        (page, missing?, None)
    } else {
        let object = chosen(&before, choice)?;
        let key = Some(ObjectKey::from(object.key()));
        let one = sample(fetch, &named(gvr, object), SAMPLE_LEN).await.ok()?;
        if let Some(contradiction) = differs(&one, &before) {
            return Some(ConsistencyFinding { contradiction, key });
        }
        (one, object, key)
    };
    // The stream tells of a deletion before it passes the version of a list that lacks the object.
    let is_lacking = all.is_complete && lacks(&all, held);
    if !is_lacking || !wait_until_fresh(served, all.version, STREAM_WAIT).await {
        return None;
    }
    let after = served.cache.snapshot()?;
    let still = after.objects.object_at(held.key())?;
    let is_same = still.uid() == held.uid() && still.resource_version() == held.resource_version();
    let contradiction = Contradiction::Missing;
    (after.epoch == before.epoch && is_same).then_some(ConsistencyFinding { contradiction, key })
}

/// How a sample contradicts a snapshot that was taken before it was asked for. A consistent list is never older than anything
/// that was told before, unless the history is another one.
fn differs(sample: &Sample, snapshot: &Snapshot) -> Option<Contradiction> {
    if sample.version < snapshot.resource_version {
        Some(Contradiction::Older)
    } else {
        lists_otherwise(sample, snapshot).then_some(Contradiction::Listed)
    }
}

/// Whether upstream lists an object that the snapshot must have held just so: last written no later than the snapshot.
fn lists_otherwise(sample: &Sample, snapshot: &Snapshot) -> bool {
    let known = snapshot.resource_version;
    let differs = |entry: &SampleEntry| {
        let held = snapshot.objects.object(entry.key.as_str());
        let is_same = held.is_some_and(|object| {
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
            let some = objects.iter().take(NEWEST_AMONG);
            some.max_by_key(|object| object.resource_version())
        }
        ObjectChoice::Random => {
            let count = u64::try_from(objects.len()).unwrap_or(u64::MAX);
            let at = usize::try_from(random() % count.max(1)).unwrap_or_default();
            objects.iter().nth(at)
        }
        ObjectChoice::Key(key) => objects.object(key.as_str()),
    }
}

/// A collection of this object alone.
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
