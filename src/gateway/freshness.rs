//! What a consistent read must have seen: one small request upstream, shared by all who ask meanwhile.
//!
//! kube-apiserver can force etcd to tell how far it is; a client of its API cannot. So the version is learnt by a list
//! of one item, and the cache is fresh once its stream has passed it. A quiet resource's stream passes nothing while
//! other resources move the version on: then the names and versions of all objects are compared (protocol.md §7.7 H1).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::cache::Snapshot;
use crate::downstream::resources::Latest;
use crate::downstream::serve::wait_until;
use crate::resource::ResourceVersion;
use crate::upstream::client::Client;
use crate::upstream::driver::{census, probe};
use crate::view::Served;

/// A busy resource's stream passes the version in a few milliseconds; after this it counts as quiet.
const STREAM_WAIT: Duration = Duration::from_millis(60);
/// As long as kube-apiserver would wait (protocol.md §10).
const COMPARE_WAIT: Duration = Duration::from_secs(3);

/// The last answer, and from when on it was asked for.
#[derive(Debug)]
struct Told {
    asked_at: Instant,
    latest: Answer,
}

#[derive(Clone, Debug)]
enum Answer {
    At(ResourceVersion),
    Proven(Arc<Snapshot>, ResourceVersion),
    Unknown,
}

/// The freshness of one resource's cache.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    told: Mutex<Option<Told>>,
}

impl Freshness {
    /// Asks upstream, or waits for who asks already: an answer serves all who came before it was asked for, so at
    /// most one request is on its way and one batch of readers waits for the next.
    pub(super) async fn latest(&self, client: &Client, served: &Served) -> Latest {
        let came_at = Instant::now();
        let mut told = self.told.lock().await;
        if let Some(told) = told.as_ref().filter(|told| told.asked_at >= came_at) {
            return told.latest.clone().into();
        }
        let asked_at = Instant::now();
        let latest = ask(client, served, told.as_ref().map(|told| &told.latest)).await;
        *told = Some(Told {
            asked_at,
            latest: latest.clone(),
        });
        latest.into()
    }
}

impl From<Answer> for Latest {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::At(version) => Self::At(version),
            Answer::Proven(snapshot, version) => Self::Proven(snapshot, version),
            Answer::Unknown => Self::Unknown,
        }
    }
}

async fn ask(client: &Client, served: &Served, before: Option<&Answer>) -> Answer {
    let gvr = &served.cache.kind().gvr;
    let Ok(probe) = probe(client, gvr).await else {
        return Answer::Unknown;
    };
    if wait_until(served, probe.version, STREAM_WAIT).await {
        return Answer::At(probe.version);
    }
    // Nothing was written anywhere since the last proof.
    if let (Some(Answer::Proven(snapshot, version)), Some(current)) =
        (before, served.cache.snapshot())
        && *version >= probe.version
        && snapshot.sequence == current.sequence
        && served.cache.prove(&current, *version)
    {
        return Answer::Proven(current, *version);
    }
    compare(client, served).await
}

async fn compare(client: &Client, served: &Served) -> Answer {
    let Ok(census) = census(client, &served.cache.kind().gvr).await else {
        return Answer::Unknown;
    };
    let give_up_at = Instant::now() + COMPARE_WAIT;
    loop {
        let Some(snapshot) = served.cache.snapshot() else {
            return Answer::Unknown;
        };
        if snapshot.resource_version >= census.version {
            return Answer::At(census.version);
        }
        if census.matches(&snapshot) && served.cache.prove(&snapshot, census.version) {
            return Answer::Proven(snapshot, census.version);
        }
        // Events are on their way: look again with each of them.
        let next = ResourceVersion(snapshot.resource_version.0 + 1);
        let left = give_up_at.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_until(served, next, left).await {
            return Answer::Unknown;
        }
    }
}
