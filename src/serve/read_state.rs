//! From which state a request is answered: fresh enough, at the right version, or not from memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Service;
use super::fresh::{FreshError, WAIT, wait_until_fresh};
use crate::cache::Snapshot;
use crate::fairness::Peer;
use crate::protocol::request::{EndMarker, Freshness, ListRead, ReadRefusal, WatchStart};
use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::serve::resources::{Latest, Resources};
use crate::view::selector::Selector;
use crate::view::{self, ObjectFormat, ServedResource, TooManyViews};
use crate::watch::Start;

/// A busy resource passes a version that exists within this; what takes longer is a quiet resource or the future.
const PASSING: Duration = Duration::from_millis(60);

/// So many events are undone before other tasks have their turn.
const UNDONE_TOGETHER: usize = 64;

/// A state, and the version it stands for: the snapshot's own, or a later one at which it was proven unchanged.
pub(super) struct ReadState {
    snapshot: Arc<Snapshot>,
    version: ResourceVersion,
}

impl<R: Resources> Service<R> {
    /// The state that a list is read from, unless it is an exact one. Whatever has to be waited for, it is within
    /// kube-apiserver's patience.
    pub(super) async fn list_state(
        &self,
        read: ListRead,
        served: &ServedResource,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        let until = Instant::now() + WAIT;
        let state = match read {
            ListRead::Cached => current(served).map_err(ReadRefusal::Answer)?,
            ListRead::AtLeast(version) => self
                .at_least(version, served, until)
                .await
                .map_err(ReadRefusal::Answer)?,
            ListRead::AtLeastNow(version) => {
                passes(version, served).await?;
                current(served).map_err(ReadRefusal::Answer)?
            }
            ListRead::Latest => self
                .latest(served, until)
                .await
                .ok_or(ReadRefusal::Forward)?,
            ListRead::Exact(version) => return self.exact(version, served).await,
        };
        if state.version == state.snapshot.resource_version {
            return Ok(state.snapshot);
        }
        Ok(Arc::new(Snapshot {
            resource_version: state.version,
            ..(*state.snapshot).clone()
        }))
    }

    /// Waits for the state that a stream's initial events must not be older than; `None` if any will do.
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
            Freshness::Latest => {
                let latest = self.latest(served, until).await;
                latest.ok_or_else(unknown_version).map(Some)
            }
        }
    }

    /// Where a stream begins, which must not be before `state`. The view is joined before the newest state is looked at, so
    /// nothing falls between. What costs more than the open watches leave to this client is forwarded.
    pub(super) async fn watch_start(
        &self,
        (selector, rendition, peer): (&Selector, ObjectFormat, Peer),
        start: WatchStart,
        state: Option<ReadState>,
        served: &ServedResource,
    ) -> Result<(view::ViewSubscription, Start), ReadRefusal> {
        let join = || {
            let entry = served.hub.join_as(selector, rendition, peer);
            entry.map_err(|TooManyViews| ReadRefusal::Forward)
        };
        match start {
            WatchStart::Initial { marker, .. } => {
                let entry = join()?;
                let newest = current(served).map_err(ReadRefusal::Answer)?;
                // What was proven of an older version holds for the newest state all the more.
                let ReadState { snapshot, version } = state
                    .filter(|state| state.version > newest.version)
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
                    Freshness::Latest => match self.ask(served, Instant::now() + WAIT).await {
                        Latest::At(version) | Latest::Proven(_, version) => version,
                        Latest::Unknown => return Err(ReadRefusal::Answer(unknown_version())),
                    },
                    Freshness::Any | Freshness::AtLeast(_) => entry.reached.version,
                };
                let sequence = entry.reached.through;
                Ok((entry, Start::After { sequence, version }))
            }
            WatchStart::After(version) => {
                let entry = join()?;
                let too_old = |too_old: crate::cache::VersionTooOld| {
                    Status::expired_watch(version, too_old.floor)
                };
                let sequence = served.cache.resume_after(version);
                let sequence = sequence.map_err(|e| ReadRefusal::Answer(too_old(e)))?;
                Ok((entry, Start::After { sequence, version }))
            }
        }
    }

    /// A state that is not older than `version`.
    ///
    /// The version may be ahead of a quiet resource's own stream, because it came from another resource's write or from
    /// a read that was proven fresh: then upstream is asked, rather than waiting for a bookmark.
    async fn at_least(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
        until: Instant,
    ) -> Result<ReadState, Status> {
        if !wait_until_fresh(served, version, PASSING).await {
            match self.latest(served, until).await {
                Some(state) if state.version >= version => return Ok(state),
                _ if wait_until_fresh(served, version, left(until)).await => {}
                _ => return Err(FreshError::new(version, served).into_status()),
            }
        }
        current(served)
    }

    /// A state that reflects every write that was finished when it was asked for; `None` if that cannot be told in time.
    async fn latest(&self, served: &ServedResource, until: Instant) -> Option<ReadState> {
        match self.ask(served, until).await {
            Latest::At(version) => {
                wait_until_fresh(served, version, left(until))
                    .await
                    .then_some(())?;
                current(served).ok()
            }
            Latest::Proven(snapshot, version) => Some(ReadState { snapshot, version }),
            Latest::Unknown => None,
        }
    }

    async fn ask(&self, served: &ServedResource, until: Instant) -> Latest {
        let latest = timeout_at(until, self.resources().latest(served)).await;
        latest.unwrap_or(Latest::Unknown)
    }

    /// The state at exactly this version. What memory does not reach, on either side, upstream may know or refuse.
    async fn exact(
        &self,
        version: ResourceVersion,
        served: &ServedResource,
    ) -> Result<Arc<Snapshot>, ReadRefusal> {
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let turn = timeout_at(Instant::now() + WAIT, self.rewinding.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(ReadRefusal::Forward);
        };
        // Somebody may have wanted the same in the meantime.
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let rewind = served.cache.rewind(version);
        let mut rewind = rewind.map_err(|_| ReadRefusal::Forward)?;
        while rewind.step(UNDONE_TOGETHER) {
            tokio::task::yield_now().await;
        }
        let state = Arc::new(rewind.finish());
        served.cache.keep(&state);
        Ok(state)
    }
}

/// Whether the state at exactly this version costs nothing; waits a moment for one that is about to be reached.
pub(super) async fn is_at_hand(
    version: ResourceVersion,
    served: &ServedResource,
) -> Result<bool, ReadRefusal> {
    passes(version, served).await?;
    Ok(served.cache.state_at(version).is_some())
}

/// Waits a moment for a version; what takes longer is for upstream.
async fn passes(version: ResourceVersion, served: &ServedResource) -> Result<(), ReadRefusal> {
    let passes = wait_until_fresh(served, version, PASSING).await;
    passes.then_some(()).ok_or(ReadRefusal::Forward)
}

fn left(until: Instant) -> Duration {
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
