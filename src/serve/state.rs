//! From which state a request is answered: fresh enough, at the right version, or not from memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Service;
use super::fresh::{FreshError, WAIT, wait_until};
use crate::cache::Snapshot;
use crate::fairness::Peer;
use crate::protocol::request::{Freshness, ListRead, Marker, Refusal, WatchStart};
use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::serve::resources::{Latest, Resources};
use crate::view::selector::Selector;
use crate::view::{self, Crowded, Rendition, Served};
use crate::watch::Start;

/// A busy resource passes a version that exists within this; what takes longer is a quiet resource or the future.
const PASSING: Duration = Duration::from_millis(60);

/// So many events are undone before other tasks have their turn.
const UNDONE_TOGETHER: usize = 64;

/// A state, and the version it stands for: the snapshot's own, or a later one at which it was proven unchanged.
pub(super) struct State {
    snapshot: Arc<Snapshot>,
    version: ResourceVersion,
}

impl<R: Resources> Service<R> {
    /// The state that a list is read from, unless it is an exact one. Whatever has to be waited for, it is within
    /// kube-apiserver's patience.
    pub(super) async fn list_state(
        &self,
        read: ListRead,
        served: &Served,
    ) -> Result<Arc<Snapshot>, Refusal> {
        let until = Instant::now() + WAIT;
        let state = match read {
            ListRead::Cached => current(served).map_err(Refusal::Answer)?,
            ListRead::AtLeast(version) => self
                .at_least(version, served, until)
                .await
                .map_err(Refusal::Answer)?,
            ListRead::AtLeastNow(version) => {
                passes(version, served).await?;
                current(served).map_err(Refusal::Answer)?
            }
            ListRead::Latest => self.latest(served, until).await.ok_or(Refusal::Forward)?,
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
        served: &Served,
    ) -> Result<Option<State>, Status> {
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
        (selector, rendition, peer): (&Selector, Rendition, Peer),
        start: WatchStart,
        state: Option<State>,
        served: &Served,
    ) -> Result<(view::Entry, Start), Refusal> {
        let join = || {
            let entry = served.hub.join_as(selector, rendition, peer);
            entry.map_err(|Crowded| Refusal::Forward)
        };
        match start {
            WatchStart::Initial { marker, .. } => {
                let entry = join()?;
                let newest = current(served).map_err(Refusal::Answer)?;
                // What was proven of an older version holds for the newest state all the more.
                let State { snapshot, version } = state
                    .filter(|state| state.version > newest.version)
                    .unwrap_or(newest);
                let marker = match marker {
                    Marker::Sent => view::Marker::InitialEventsEnd,
                    Marker::Omitted => view::Marker::None,
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
                        Latest::Unknown => return Err(Refusal::Answer(unknown_version())),
                    },
                    Freshness::Any | Freshness::AtLeast(_) => entry.reached.version,
                };
                let sequence = entry.reached.through;
                Ok((entry, Start::After { sequence, version }))
            }
            WatchStart::After(version) => {
                let entry = join()?;
                let too_old =
                    |too_old: crate::cache::TooOld| Status::expired_watch(version, too_old.floor);
                let sequence = served.cache.resume_after(version);
                let sequence = sequence.map_err(|e| Refusal::Answer(too_old(e)))?;
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
        served: &Served,
        until: Instant,
    ) -> Result<State, Status> {
        if !wait_until(served, version, PASSING).await {
            match self.latest(served, until).await {
                Some(state) if state.version >= version => return Ok(state),
                _ if wait_until(served, version, left(until)).await => {}
                _ => return Err(FreshError::new(version, served).into_status()),
            }
        }
        current(served)
    }

    /// A state that reflects every write that was finished when it was asked for; `None` if that cannot be told in time.
    async fn latest(&self, served: &Served, until: Instant) -> Option<State> {
        match self.ask(served, until).await {
            Latest::At(version) => {
                wait_until(served, version, left(until))
                    .await
                    .then_some(())?;
                current(served).ok()
            }
            Latest::Proven(snapshot, version) => Some(State { snapshot, version }),
            Latest::Unknown => None,
        }
    }

    async fn ask(&self, served: &Served, until: Instant) -> Latest {
        let latest = timeout_at(until, self.resources().latest(served)).await;
        latest.unwrap_or(Latest::Unknown)
    }

    /// The state at exactly this version. What memory does not reach, on either side, upstream may know or refuse.
    async fn exact(
        &self,
        version: ResourceVersion,
        served: &Served,
    ) -> Result<Arc<Snapshot>, Refusal> {
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let turn = timeout_at(Instant::now() + WAIT, self.rewinding.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(Refusal::Forward);
        };
        // Somebody may have wanted the same in the meantime.
        if let Some(state) = served.cache.state_at(version) {
            return Ok(state);
        }
        let rewind = served.cache.rewind(version);
        let mut rewind = rewind.map_err(|_| Refusal::Forward)?;
        while rewind.step(UNDONE_TOGETHER) {
            tokio::task::yield_now().await;
        }
        let state = Arc::new(rewind.finish());
        served.cache.keep(&state);
        Ok(state)
    }
}

/// Whether the state at exactly this version costs nothing; waits a moment for one that is about to be reached.
pub(super) async fn is_at_hand(version: ResourceVersion, served: &Served) -> Result<bool, Refusal> {
    passes(version, served).await?;
    Ok(served.cache.state_at(version).is_some())
}

/// Waits a moment for a version; what takes longer is for upstream.
async fn passes(version: ResourceVersion, served: &Served) -> Result<(), Refusal> {
    let passes = wait_until(served, version, PASSING).await;
    passes.then_some(()).ok_or(Refusal::Forward)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn unknown_version() -> Status {
    Status::internal_error("the current resource version is not known")
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
