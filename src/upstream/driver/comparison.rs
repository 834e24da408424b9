//! Compares the held state with upstream's, when watches bring nothing: silence is no evidence of anything.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::fetch::Fetch;
use super::object_versions::{CENSUS_MAX, census};
use super::probe::newest_version;
use super::request::Collection;
use crate::resource::ResourceVersion;
use crate::upstream::object_versions::ObjectVersions;
use crate::upstream::reflector::Comparison;
use crate::upstream::sink::Sink;

/// The time for a comparison. Most of them read one object; [`CENSUS_MAX`] names and versions take a second or two.
const COMPARISON_TIME_MAX: Duration = Duration::from_secs(10);

/// A comparison that is under way.
pub(super) type UpstreamStateFuture = Pin<Box<dyn Future<Output = UpstreamState> + Send>>;

/// What upstream has.
#[derive(Debug)]
pub(super) enum UpstreamState {
    /// It cannot be read, or is too large to be compared.
    Unknown,
    /// It is at this version.
    At(ResourceVersion),
    /// Its version is newer than the held one, and it has these objects.
    Objects(ObjectVersions),
}

/// Reads upstream's version, and unless it is the held one, the names and versions of all objects.
pub(super) fn upstream_state<F: Fetch>(
    fetch: &Arc<F>,
    collection: &Collection,
    held: Option<ResourceVersion>,
) -> UpstreamStateFuture {
    let (fetch, collection) = (Arc::clone(fetch), collection.clone());
    let read = async move {
        let newest = newest_version(&*fetch, &collection).await.ok()?;
        if held.is_some_and(|held| newest.version <= held) {
            return Some(UpstreamState::At(newest.version));
        }
        if newest.remaining >= CENSUS_MAX {
            return None;
        }
        let objects = census(&*fetch, &collection).await.ok()?;
        Some(UpstreamState::Objects(objects))
    };
    Box::pin(async move {
        let read = timeout(COMPARISON_TIME_MAX, read).await;
        read.ok().flatten().unwrap_or(UpstreamState::Unknown)
    })
}

impl UpstreamState {
    /// Compares it with the state of a sink, which is at the version `held`.
    pub(super) fn compare<S: Sink>(&self, sink: &S, held: Option<ResourceVersion>) -> Comparison {
        let is_equal = match self {
            Self::Unknown => None,
            Self::At(version) => Some(Some(*version) == held),
            Self::Objects(objects) => sink.matches(objects),
        };
        match is_equal {
            Some(true) => Comparison::Equal,
            Some(false) => Comparison::Different,
            None => Comparison::Unknown,
        }
    }
}
