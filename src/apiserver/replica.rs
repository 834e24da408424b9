//! Further API servers over the same store, as in a control plane of several. Each has watch caches of its own, which may stand
//! still as those of a slow API server do.

use crate::net::TcpListener;
use tokio::sync::watch;

use super::auth::Auth;
use super::caches::Caches;
use super::storage::StoredChange;
use super::store::Publisher;
use super::{Apiserver, StartError};
use crate::resource::ResourceVersion;
use crate::shutdown::Drain;

/// More changes than this are not held back: the replica catches up.
const HELD_MAX: usize = 100_000;

impl Apiserver {
    /// Starts another server over the same store, without authentication. It holds the current objects and no history, as an
    /// API server that has just started.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn replica(&self, listener: TcpListener) -> Result<Self, StartError> {
        let store = self.store();
        let auth = Auth::new(None, self.catalogue(), store)?;
        let lagging = watch::Sender::new(false);
        let mut served = Vec::new();
        store.add_replica(|storage| {
            let caches = Caches::of(storage);
            served = caches.served();
            Box::new(LaggingCaches {
                caches,
                lagging: lagging.subscribe(),
                held: Vec::new(),
            })
        });
        let replica = Self::serve(listener, (store, served), (auth, None), Drain::new())?;
        Ok(Self { lagging, ..replica })
    }

    /// Whether the caches of this replica stand still. Afterwards they catch up, within about a second.
    pub fn set_lagging(&self, lagging: bool) {
        self.lagging.send_replace(lagging);
    }
}

/// What a replica's caches have not received yet.
#[derive(Debug)]
enum HeldInput {
    Changes(Vec<StoredChange>),
    Progress(usize, ResourceVersion),
    Compact(usize, ResourceVersion),
}

/// The caches of a replica, and what is held back from them.
#[derive(Debug)]
struct LaggingCaches {
    caches: Caches,
    lagging: watch::Receiver<bool>,
    held: Vec<HeldInput>,
}

impl LaggingCaches {
    fn receive(&mut self, input: HeldInput) {
        let is_lagging = *self.lagging.borrow();
        let is_progress = matches!(input, HeldInput::Progress(..));
        // A progress without a change adds nothing to a cache that will receive a later one.
        if !(is_lagging && is_progress) {
            self.held.push(input);
        }
        if is_lagging && self.held.len() < HELD_MAX {
            return;
        }
        for input in self.held.drain(..) {
            match input {
                HeldInput::Changes(changes) => self.caches.publish(&changes),
                HeldInput::Progress(kind, revision) => self.caches.progress(kind, revision),
                HeldInput::Compact(kind, revision) => self.caches.compact(kind, revision),
            }
        }
    }
}

impl Publisher for LaggingCaches {
    fn publish(&mut self, changes: &[StoredChange]) {
        self.receive(HeldInput::Changes(changes.to_vec()));
    }

    fn progress(&mut self, kind_index: usize, revision: ResourceVersion) {
        self.receive(HeldInput::Progress(kind_index, revision));
    }

    fn compact(&mut self, kind_index: usize, revision: ResourceVersion) {
        self.receive(HeldInput::Compact(kind_index, revision));
    }
}
