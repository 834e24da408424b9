//! The directory that joining consults: which views there are, and from where on they show events. No selector is evaluated here, so
//! that the lock around it is only held briefly.

use std::hash::{BuildHasher as _, Hash};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use super::HubPosition;
use crate::fairness::Peer;
use crate::resource::Encoding;
use crate::selector::Selector;
use crate::view::end_schedule::EndSchedule;
use crate::view::projection::Projection;
use crate::view::selector_index::{Hasher, Placement, TooManyViews, weight};
use crate::view::shared::{EmptyViews, View, ViewCore, ViewParts, ViewWriter};

/// The parameters of a view. Watches with equal ones share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ViewKey<'a> {
    pub(super) selector: &'a Selector,
    pub(super) projection: Option<Projection>,
}

impl<'a> ViewKey<'a> {
    fn of(core: &'a ViewCore) -> Self {
        Self {
            selector: core.selector(),
            projection: core.projection(),
        }
    }
}

/// Whether a new view is refused if there is no room for its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewRoom {
    /// Refused if this client's share, or the maximum for all, has no room.
    Bounded(Peer),
    Unbounded,
}

#[derive(Debug)]
struct KnownView {
    /// Hash of the view's key. Stored because selectors may be long, and a growing table needs all hashes.
    hash: u64,
    core: Arc<ViewCore>,
    view: Weak<View>,
}

/// Views that were created, or lost their last watch, since the changes were last taken.
#[derive(Debug, Default)]
pub(super) struct ViewChanges {
    pub(super) added: Vec<ViewWriter>,
    pub(super) unwatched: Vec<Arc<ViewCore>>,
}

impl ViewChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.unwatched.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct ViewDirectory {
    by_key: HashTable<KnownView>,
    hasher: Hasher,
    placement: Placement,
    changes: ViewChanges,
    empty_views: Arc<EmptyViews>,
    /// How far history and snapshot have got. Ahead of `reached` while a batch is laid out.
    pub(super) published: HubPosition,
    /// How far the views have got.
    pub(super) reached: HubPosition,
    /// Number of watches that have joined, which distributes waiters over the shards.
    pub(super) waiters: usize,
    pub(super) closed: bool,
    /// Whether it was closed because nobody watched.
    pub(super) abandoned: bool,
    /// Whether watches that end because of `closed` must list again.
    pub(super) expired: bool,
    /// When the watches end, if that is known.
    pub(super) end_schedule: Option<Arc<EndSchedule>>,
}

impl ViewDirectory {
    pub(super) fn new(hasher: &Hasher) -> Self {
        Self {
            by_key: HashTable::new(),
            hasher: hasher.clone(),
            placement: Placement::new(hasher.clone()),
            changes: ViewChanges::default(),
            empty_views: Arc::default(),
            published: HubPosition::default(),
            reached: HubPosition::default(),
            waiters: 0,
            closed: false,
            abandoned: false,
            expired: false,
            end_schedule: None,
        }
    }

    /// The view with this key, which is created if there is none.
    pub(super) fn enter(
        &mut self,
        key: ViewKey<'_>,
        source: Encoding,
        room: ViewRoom,
    ) -> Result<Arc<View>, TooManyViews> {
        let hash = self.hasher.hash_one(key);
        let known = self.by_key.find(hash, |known| {
            ViewKey::of(&known.core) == key
                && known.view.strong_count() > 0
                // A view that could not show an event is only for the watches that have it already.
                && (self.closed || !known.core.is_closed())
        });
        // The last watch may drop the view between the lookup and the upgrade.
        if let Some(view) = known.and_then(|known| known.view.upgrade()) {
            return Ok(view);
        }
        self.forget_empty_views();
        let position = self.placement.position_for(key.selector);
        let weight = weight(key.selector, &position);
        let opener = match room {
            ViewRoom::Bounded(peer) if !self.placement.has_room(&position, weight, peer) => {
                return Err(TooManyViews);
            }
            ViewRoom::Bounded(peer) => peer,
            ViewRoom::Unbounded => Peer::UNKNOWN,
        };
        self.placement.add(&position, weight, opener);
        let parts = ViewParts {
            selector: key.selector.clone(),
            projection: key.projection,
            source,
            position,
            weight,
            opener,
            from: self.published.through,
        };
        let (writer, view) = ViewWriter::new(parts, &self.empty_views);
        let known = KnownView {
            hash,
            core: Arc::clone(writer.core()),
            view: Arc::downgrade(&view),
        };
        self.by_key.insert_unique(hash, known, |known| known.hash);
        self.changes.added.push(writer);
        Ok(view)
    }

    /// Forgets the views that no watch holds any more, which frees their weight at once.
    fn forget_empty_views(&mut self) {
        for core in self.empty_views.take() {
            self.forget(&core);
            self.changes.unwatched.push(core);
        }
    }

    /// Removes a view: no other watch joins it, and its weight is free.
    pub(super) fn forget(&mut self, core: &Arc<ViewCore>) {
        let hash = self.hasher.hash_one(ViewKey::of(core));
        if let Ok(known) = self
            .by_key
            .find_entry(hash, |known| Arc::ptr_eq(&known.core, core))
        {
            known.remove();
            let (weight, opener) = core.weight();
            self.placement.remove(core.position(), weight, opener);
        }
    }

    /// Takes the views that were created, or lost their last watch, since the last call.
    pub(super) fn take_changes(&mut self) -> ViewChanges {
        self.forget_empty_views();
        std::mem::take(&mut self.changes)
    }

    /// Number of views that have a watch and can be joined.
    pub(super) fn view_count(&mut self) -> usize {
        self.forget_empty_views();
        self.by_key.len()
    }

    /// The shared state of all views.
    pub(super) fn views(&self) -> impl Iterator<Item = &Arc<ViewCore>> {
        self.by_key.iter().map(|known| &known.core)
    }
}
