//! From which state a request is answered: fresh enough, at the right version, or not from memory.

use std::sync::Arc;
use std::time::Duration;

use super::Service;
use super::fresh::{FreshError, WAIT, wait_until};
use crate::cache::{RewindError, Snapshot};
use crate::downstream::request::{Freshness, ListRead, Marker, Refusal, WatchStart};
use crate::downstream::resources::{Latest, Resources};
use crate::downstream::status::Status;
use crate::downstream::watch::Start;
use crate::resource::ResourceVersion;
use crate::view::selector::Selector;
use crate::view::{self, Rendition, Served};

/// A busy resource passes a version that exists within this; what takes longer is a quiet resource or the future.
const PASSING: Duration = Duration::from_millis(60);

/// A state, and the version it stands for: the snapshot's own, or a later one at which it was proven unchanged.
struct State {
    snapshot: Arc<Snapshot>,
    version: ResourceVersion,
}

impl<R: Resources> Service<R> {
    /// The state that a list is read from.
    pub(super) async fn list_state(
        &self,
        read: ListRead,
        served: &Served,
    ) -> Result<Arc<Snapshot>, Refusal> {
        let state = match read {
            ListRead::Cached => current(served).map_err(Refusal::Answer)?,
            ListRead::AtLeast(version) => self
                .at_least(version, served)
                .await
                .map_err(Refusal::Answer)?,
            ListRead::AtLeastNow(version) => {
                if !wait_until(served, version, PASSING).await {
                    return Err(Refusal::Forward);
                }
                current(served).map_err(Refusal::Answer)?
            }
            ListRead::Latest => self.latest(served).await.ok_or(Refusal::Forward)?,
            ListRead::Exact(version) => return exact(version, served).await,
        };
        if state.version == state.snapshot.resource_version {
            return Ok(state.snapshot);
        }
        Ok(Arc::new(Snapshot {
            resource_version: state.version,
            ..(*state.snapshot).clone()
        }))
    }

    /// Where a stream begins. The view is joined before the state is looked at, so nothing falls between.
    pub(super) async fn watch_start(
        &self,
        selector: &Selector,
        rendition: Rendition,
        start: WatchStart,
        served: &Served,
    ) -> Result<(view::Entry, Start), Status> {
        let unknown = || Status::internal_error("the current resource version is not known");
        match start {
            WatchStart::Initial { freshness, marker } => {
                let proven = match freshness {
                    Freshness::Any => None,
                    Freshness::AtLeast(version) => Some(self.at_least(version, served).await?),
                    Freshness::Latest => Some(self.latest(served).await.ok_or_else(unknown)?),
                };
                let entry = served.hub.join_as(selector, rendition);
                let newest = current(served)?;
                // What was proven of an older version holds for the newest state all the more.
                let State { snapshot, version } = proven
                    .filter(|proven| proven.version > newest.version)
                    .unwrap_or(newest);
                let marker = match marker {
                    Marker::Sent => view::Marker::InitialEventsEnd,
                    Marker::Omitted => view::Marker::None,
                };
                Ok((
                    entry,
                    Start::Initial {
                        snapshot,
                        version,
                        marker,
                    },
                ))
            }
            WatchStart::FromNow { freshness } => {
                let entry = served.hub.join_as(selector, rendition);
                let version = match freshness {
                    Freshness::Latest => match self.resources().latest(served).await {
                        Latest::At(version) | Latest::Proven(_, version) => version,
                        Latest::Unknown => return Err(unknown()),
                    },
                    Freshness::Any | Freshness::AtLeast(_) => entry.reached.version,
                };
                let sequence = entry.reached.through;
                Ok((entry, Start::After { sequence, version }))
            }
            WatchStart::After(version) => {
                let entry = served.hub.join_as(selector, rendition);
                let too_old =
                    |too_old: crate::cache::TooOld| Status::expired_watch(version, too_old.floor);
                let sequence = served.cache.resume_after(version).map_err(too_old)?;
                Ok((entry, Start::After { sequence, version }))
            }
        }
    }

    /// A state that is not older than `version`, within kube-apiserver's patience.
    ///
    /// The version may be ahead of a quiet resource's own stream, because it came from another resource's write or from
    /// a read that was proven fresh: then upstream is asked, rather than waiting for a bookmark.
    async fn at_least(&self, version: ResourceVersion, served: &Served) -> Result<State, Status> {
        if !wait_until(served, version, PASSING).await {
            match self.latest(served).await {
                Some(state) if state.version >= version => return Ok(state),
                _ if wait_until(served, version, WAIT - PASSING).await => {}
                _ => return Err(FreshError::new(version, served).into_status()),
            }
        }
        current(served)
    }

    /// A state that reflects every write that was finished when it was asked for; `None` if that cannot be told.
    async fn latest(&self, served: &Served) -> Option<State> {
        match self.resources().latest(served).await {
            Latest::At(version) => {
                wait_until(served, version, WAIT).await.then_some(())?;
                current(served).ok()
            }
            Latest::Proven(snapshot, version) => Some(State { snapshot, version }),
            Latest::Unknown => None,
        }
    }
}

/// The state at exactly this version. What memory does not reach, on either side, upstream may know or refuse.
async fn exact(version: ResourceVersion, served: &Served) -> Result<Arc<Snapshot>, Refusal> {
    if !wait_until(served, version, PASSING).await {
        return Err(Refusal::Forward);
    }
    let snapshot = current(served).map_err(Refusal::Answer)?.snapshot;
    match snapshot.rewound(served.cache.history(), version) {
        Ok(objects) => Ok(Arc::new(Snapshot {
            objects,
            resource_version: version,
            ..(*snapshot).clone()
        })),
        Err(RewindError::Evicted | RewindError::Unknown | RewindError::Future) => {
            Err(Refusal::Forward)
        }
    }
}

fn current(served: &Served) -> Result<State, Status> {
    let snapshot = served
        .cache
        .snapshot()
        .ok_or_else(|| Status::initializing(1))?;
    Ok(State {
        version: snapshot.resource_version,
        snapshot,
    })
}
