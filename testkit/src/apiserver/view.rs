//! What one server shows of the store: the newest state, or one that stands still, as an API server that lags behind etcd does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::history::{EventsAfter, KindState, Objects};
use super::query::Consistency;
use super::status::Status;
use super::store::{State, Store};

/// How long a read waits for a version.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// A server's view of the store.
#[derive(Debug)]
pub(super) struct View {
    pub(super) store: Arc<Store>,
    /// The revision at which the server started: it has no history from before.
    floor: u64,
    /// The revision at which the view stands still.
    frozen: watch::Sender<Option<u64>>,
}

/// Events that a watch has not sent.
pub(super) struct NewEvents {
    pub(super) events: EventsAfter,
    /// The version up to which there is nothing else, if these are all.
    pub(super) reached: u64,
}

/// How many events a watch takes at once.
pub(super) const BATCH_COUNT: usize = 128;

impl View {
    /// A view whose history begins at `floor`.
    pub(super) fn new(store: Arc<Store>, floor: u64) -> Self {
        Self {
            store,
            floor,
            frozen: watch::Sender::new(None),
        }
    }

    /// Lets the view stand still, or catch up.
    pub(super) fn freeze(&self, is_frozen: bool) {
        let revision = is_frozen.then(|| self.store.revision());
        self.frozen.send_replace(revision);
    }

    pub(super) fn frozen(&self) -> watch::Receiver<Option<u64>> {
        self.frozen.subscribe()
    }

    fn reached(&self, state: &State) -> u64 {
        self.frozen.borrow().unwrap_or(state.revision)
    }

    fn floor(&self, kind: &KindState) -> u64 {
        kind.floor().max(self.floor)
    }

    /// Waits until the view has reached what a read needs, for at most 3 s.
    ///
    /// # Errors
    /// 504.
    pub(super) async fn wait_for(&self, consistency: Consistency) -> Result<(), Status> {
        let wanted = match consistency {
            Consistency::Cached => return Ok(()),
            Consistency::Latest => self.store.revision(),
            Consistency::AtLeast(version) | Consistency::Exactly(version) => version,
        };
        let mut revisions = self.store.subscribe();
        let mut frozen = self.frozen.subscribe();
        let give_up_at = Instant::now() + WAIT_MAX;
        loop {
            let reached = self.reached(&self.store.locked());
            if reached >= wanted {
                return Ok(());
            }
            let changed = async {
                tokio::select! {
                    _ = revisions.changed() => {}
                    _ = frozen.changed() => {}
                }
            };
            if timeout_at(give_up_at, changed).await.is_err() {
                return Err(Status::version_too_large(wanted, reached));
            }
        }
    }

    /// Reads a kind's objects with their version; `None` if that version is too old.
    pub(super) fn read<T>(
        &self,
        kind_index: usize,
        exactly: Option<u64>,
        read: impl FnOnce(&Objects, u64) -> T,
    ) -> Option<T> {
        let state = self.store.locked();
        let kind = &state.kinds[kind_index];
        let version = exactly.unwrap_or_else(|| self.reached(&state));
        if exactly.is_some_and(|version| version < self.floor(kind)) {
            return None;
        }
        if version == state.revision {
            return Some(read(&kind.objects, version));
        }
        kind.objects_at(version)
            .map(|objects| read(&objects, version))
    }

    /// The error for a watch from a version whose history is gone.
    pub(super) fn check_start(&self, kind_index: usize, version: u64) -> Result<(), Status> {
        let state = self.store.locked();
        let floor = self.floor(&state.kinds[kind_index]);
        if version < floor {
            return Err(Status::expired_watch(version, floor));
        }
        Ok(())
    }

    /// What happened to a kind after a version.
    pub(super) fn events_after(&self, kind_index: usize, version: u64) -> NewEvents {
        let state = self.store.locked();
        let reached = self.reached(&state);
        let mut events = state.kinds[kind_index].events_after(version, BATCH_COUNT);
        if let EventsAfter::Events(events) = &mut events {
            events.retain(|event| event.version() <= reached);
        }
        NewEvents { events, reached }
    }

    /// Notices events of a kind.
    pub(super) fn subscribe(&self, kind_index: usize) -> watch::Receiver<()> {
        self.store.locked().kinds[kind_index].changed.subscribe()
    }
}
