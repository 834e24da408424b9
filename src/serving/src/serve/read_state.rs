//! Chooses the state that a request is answered from: fresh enough, at the right version, or none, so that upstream answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fresh::{FreshError, WAIT, wait_until_fresh};
use super::negotiated_read::NegotiatedRead;
use super::resources::Latest;
use super::service::Service;
use crate::cache::{CatchUp, Snapshot};
use crate::fairness::Peer;
use crate::protocol::request::{EndMarker, Freshness, ListRead, WatchStart};
use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::view::{self, ServedResource, TooManyViews};
use crate::watch::{Start, can_catch_up};

/// How long to wait for a version before asking upstream. A busy resource reaches a version that exists within this time; if it
/// takes longer, the resource is quiet or the version is in the future.
const PASSING_WAIT: Duration = Duration::from_millis(60);

/// Number of events that are undone before the task yields.
const REWIND_BATCH: usize = 64;

/// A snapshot and the version it represents: its own, or a later one at which it was proven to be unchanged.
pub(super) struct ReadState {
    snapshot: Arc<Snapshot>,
    version: ResourceVersion,
}

/// Why memory does not answer a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadRefusal {
    /// It cannot be served now; the Status is the response.
    Answer(Status),
    /// Upstream has to answer.
    Forward,
}

impl Service {
    /// The snapshot to list from. All waits end within [`WAIT`], as on kube-apiserver.
    pub(super) async fn list_state(
        &self,
        read: ListRead,
        served: &ServedResource,
        peer: Peer,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        let until = Instant::now() + WAIT;
        let state = match read {
            ListRead::Cached => current(served).map_err(ReadRefusal::Answer)?,
            ListRead::AtLeast(version) => self
                .at_least(version, served, until)
                .await
                .map_err(ReadRefusal::Answer)?,
            ListRead::AtLeastNow(version) => {
                wait_for_passing(version, served).await?;
                current(served).map_err(ReadRefusal::Answer)?
            }
            ListRead::Latest => self
                .latest(served, until)
                .await
                .ok_or(ReadRefusal::Forward)?,
            ListRead::Exact(version) => return self.exact(version, served, peer).await,
        };
        Ok(state.into_snapshot())
    }

    /// The state at exactly this version, for a comparison: waits until memory has it, and keeps nothing for other requests.
    pub(super) async fn compared_state(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
        peer: Peer,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        let state = self
            .at_least(version, served, Instant::now() + WAIT)
            .await
            .map_err(|_| ReadRefusal::Forward)?;
        if state.snapshot.resource_version > version {
            return match served.cache.state_at(version) {
                Some(state) => Ok(state),
                None => self.rewound(version, served, peer).await,
            };
        }
        Ok(ReadState { version, ..state }.into_snapshot())
    }

    /// Waits for the state that a watch's initial events must not be older than; `None` if any state will do.
    pub(super) async fn watch_state(
        &self,
        start: WatchStart,
        served: &ServedResource,
    ) -> Result<Option<ReadState>, Status> {
        let until = Instant::now() + WAIT;
        let WatchStart::Initial { freshness, .. } = start else {
            return Ok(None);
        };
        match freshness {
            Freshness::Any => Ok(None),
            Freshness::AtLeast(version) => self.at_least(version, served, until).await.map(Some),
            Freshness::Latest => self
                .latest(served, until)
                .await
                .ok_or_else(unknown_version)
                .map(Some),
        }
    }

    /// Joins a view and determines where the watch starts, not before `state`. The view is joined before the newest state is read,
    /// so that no event is missed. A watch for which the views have no room, in all or for this client, is forwarded.
    pub(super) async fn watch_start(
        &self,
        read: &NegotiatedRead<'_>,
        selector: &Selector,
        start: WatchStart,
        state: Option<ReadState>,
    ) -> Result<(view::ViewSubscription, Start), ReadRefusal> {
        let served = read.served;
        let join = || {
            let entry = served
                .hub
                .join_as(selector, read.format, read.authorized.peer);
            entry.map_err(|TooManyViews| ReadRefusal::Forward)
        };
        match start {
            WatchStart::Initial { marker, .. } => {
                let entry = join()?;
                let newest = current(served).map_err(ReadRefusal::Answer)?;
                let is_exact = read.authorized.request.at.is_some();
                // The newest state is at least as fresh as an older one that was proven fresh.
                let ReadState { snapshot, version } = state
                    .filter(|state| is_exact || state.version > newest.version)
                    .unwrap_or(newest);
                let marker = match marker {
                    EndMarker::Sent => view::Marker::InitialEventsEnd,
                    EndMarker::Omitted => view::Marker::None,
                };
                let start = Start::Initial {
                    snapshot,
                    version,
                    marker,
                };
                Ok((entry, start))
            }
            WatchStart::FromNow { freshness } => {
                let entry = join()?;
                let version = match freshness {
                    Freshness::Latest => {
                        match self.query_latest(served, Instant::now() + WAIT).await {
                            Latest::At(version) | Latest::Proven(_, version) => version,
                            Latest::Unknown => return Err(ReadRefusal::Answer(unknown_version())),
                        }
                    }
                    Freshness::Any | Freshness::AtLeast(_) => entry.reached.version,
                };
                let sequence = entry.reached.through;
                Ok((entry, Start::After { sequence, version }))
            }
            WatchStart::After(version) => {
                let entry = join()?;
                let start = match served.cache.resume_after(version) {
                    Ok(sequence) => Start::After { sequence, version },
                    Err(too_old) => match catch_up(version, selector, served) {
                        Some(catch_up) => Start::CatchUp(catch_up),
                        None => {
                            let status = Status::expired_watch(version, too_old.floor);
                            return Err(ReadRefusal::Answer(status));
                        }
                    },
                };
                Ok((entry, start))
            }
        }
    }

    /// A state that is not older than `version`.
    ///
    /// The version may be ahead of a quiet resource's own events, because it comes from a write to another resource or from a read
    /// that was proven fresh. Then ask upstream instead of waiting for a bookmark.
    async fn at_least(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
        until: Instant,
    ) -> Result<ReadState, Status> {
        if !wait_until_fresh(served, version, PASSING_WAIT).await {
            match self.latest(served, until).await {
                Some(state) if state.version >= version => return Ok(state),
                _ if wait_until_fresh(served, version, time_left(until)).await => {}
                _ => return Err(FreshError::new(version, served).into_status()),
            }
        }
        current(served)
    }

    /// A state that includes every write that was completed before this call; `None` if that cannot be proven in time.
    async fn latest(&self, served: &ServedResource, until: Instant) -> Option<ReadState> {
        match self.query_latest(served, until).await {
            Latest::At(version) => {
                wait_until_fresh(served, version, time_left(until))
                    .await
                    .then_some(())?;
                current(served).ok()
            }
            Latest::Proven(snapshot, version) => Some(ReadState { snapshot, version }),
            Latest::Unknown => None,
        }
    }

    pub(super) async fn query_latest(&self, served: &ServedResource, until: Instant) -> Latest {
        let latest = timeout_at(until, self.resources.latest(served)).await;
        latest.unwrap_or(Latest::Unknown)
    }

    /// The state at exactly this version. Versions that memory does not reach are forwarded: upstream may have them or knows the
    /// error.
    async fn exact(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
        peer: Peer,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let state = self.rewound(version, served, peer).await?;
        served.cache.keep(&state);
        Ok(state)
    }

    /// An older state, for which events are undone.
    async fn rewound(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
        peer: Peer,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        let permit = timeout_at(Instant::now() + WAIT, self.rewinding.acquire(peer)).await;
        let Ok(Some(_permit)) = permit else {
            return Err(ReadRefusal::Forward);
        };
        // Another request may have rewound to this version while this one waited.
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let mut rewind = served
            .cache
            .rewind(version)
            .map_err(|_| ReadRefusal::Forward)?;
        while rewind.step(REWIND_BATCH) {
            tokio::task::yield_now().await;
        }
        Ok(Arc::new(rewind.finish()))
    }
}

impl ReadState {
    fn into_snapshot(self) -> Arc<Snapshot> {
        if self.version == self.snapshot.resource_version {
            return self.snapshot;
        }
        Arc::new(Snapshot {
            resource_version: self.version,
            ..(*self.snapshot).clone()
        })
    }
}

impl From<Arc<Snapshot>> for ReadState {
    fn from(snapshot: Arc<Snapshot>) -> Self {
        Self {
            version: snapshot.resource_version,
            snapshot,
        }
    }
}

/// Whether the state at exactly this version is in memory, without undoing events. Waits briefly for a version that is about to be
/// reached.
pub(super) async fn is_retained(
    version: ResourceVersion,
    served: &ServedResource,
) -> Result<bool, ReadRefusal> {
    wait_for_passing(version, served).await?;
    Ok(served.cache.state_at(version).is_some())
}

/// Waits up to [`PASSING_WAIT`] for a version; if that is not enough, the request is forwarded.
async fn wait_for_passing(
    version: ResourceVersion,
    served: &ServedResource,
) -> Result<(), ReadRefusal> {
    wait_until_fresh(served, version, PASSING_WAIT)
        .await
        .then_some(())
        .ok_or(ReadRefusal::Forward)
}

/// Whether a watch starts with objects of a snapshot, so that it costs as much as a list may.
pub(super) fn reads_snapshot(
    start: WatchStart,
    selector: &Selector,
    served: &ServedResource,
) -> bool {
    match start {
        WatchStart::Initial { .. } => true,
        WatchStart::FromNow { .. } => false,
        WatchStart::After(version) => {
            served.cache.resume_after(version).is_err()
                && catch_up(version, selector, served).is_some()
        }
    }
}

/// The start of a watch whose version the history no longer reaches, if it can catch up.
fn catch_up(
    version: ResourceVersion,
    selector: &Selector,
    served: &ServedResource,
) -> Option<CatchUp> {
    can_catch_up(selector)
        .then(|| served.cache.catch_up(version))
        .flatten()
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn unknown_version() -> Status {
    Status::internal_error("the current resource version is not known")
}

fn current(served: &ServedResource) -> Result<ReadState, Status> {
    let snapshot = served
        .cache
        .snapshot()
        .ok_or_else(|| Status::initializing(1))?;
    Ok(ReadState {
        version: snapshot.resource_version,
        snapshot,
    })
}
