//! What joining looks at: which views there are, and from where on they show events. Nothing is evaluated here, so that the
//! lock around it is never held for long.

use std::hash::{BuildHasher as _, Hash};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use super::HubPosition;
use crate::fairness::Peer;
use crate::resource::Encoding;
use crate::view::projection::Projection;
use crate::view::selector::Selector;
use crate::view::selector_index::{Hasher, Placement, TooManyViews, weight};
use crate::view::shared::{EmptyViews, View, ViewCore, ViewParts, ViewWriter};

/// Who shares a view: those who select alike and want the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ViewKey<'a> {
    pub(super) selector: &'a Selector,
    pub(super) cut: Option<Projection>,
}

impl<'a> ViewKey<'a> {
    fn of(core: &'a ViewCore) -> Self {
        Self {
            selector: core.selector(),
            cut: core.cut(),
        }
    }
}

/// Whether a view is refused where views as dear as it have no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewRoom {
    /// For this client.
    Bounded(Peer),
    Unbounded,
}

#[derive(Debug)]
struct KnownView {
    /// Of its wish. Selectors may be long, and a table that grows needs all hashes.
    hash: u64,
    core: Arc<ViewCore>,
    view: Weak<View>,
}

/// Views that came or went since the last dispatch.
#[derive(Debug, Default)]
pub(super) struct ViewChanges {
    pub(super) arrived: Vec<ViewWriter>,
    pub(super) left: Vec<Arc<ViewCore>>,
}

impl ViewChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.left.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct ViewDirectory {
    by_wish: HashTable<KnownView>,
    hasher: Hasher,
    placement: Placement,
    changes: ViewChanges,
    departures: Arc<EmptyViews>,
    /// What history and snapshot hold. It is ahead of the views while a batch is laid out.
    pub(super) published: HubPosition,
    /// What is in the views.
    pub(super) reached: HubPosition,
    /// Lines laid out since somebody asked.
    pub(super) laid_out: u64,
    /// Seats are dealt over the shards in turn.
    pub(super) waiters: usize,
    pub(super) closed: bool,
    /// Whoever is ended by closing must list again.
    pub(super) expired: bool,
}

impl ViewDirectory {
    pub(super) fn new(hasher: &Hasher) -> Self {
        Self {
            by_wish: HashTable::new(),
            hasher: hasher.clone(),
            placement: Placement::new(hasher.clone()),
            changes: ViewChanges::default(),
            departures: Arc::default(),
            published: HubPosition::default(),
            reached: HubPosition::default(),
            laid_out: 0,
            waiters: 0,
            closed: false,
            expired: false,
        }
    }

    /// The view of these watchers; made if nobody has it.
    pub(super) fn enter(
        &mut self,
        wish: ViewKey<'_>,
        source: Encoding,
        room: ViewRoom,
    ) -> Result<Arc<View>, TooManyViews> {
        let hash = self.hasher.hash_one(wish);
        // One that could not show an event is for those who met it.
        let is_open = |known: &KnownView| self.closed || !known.core.is_closed();
        let same = |known: &KnownView| {
            ViewKey::of(&known.core) == wish && known.view.strong_count() > 0 && is_open(known)
        };
        let known = self.by_wish.find(hash, same);
        // The last watcher may leave between the two looks.
        if let Some(view) = known.and_then(|known| known.view.upgrade()) {
            return Ok(view);
        }
        self.note_departures();
        let place = self.placement.place(wish.selector);
        let weight = weight(wish.selector, &place);
        let opener = match room {
            ViewRoom::Bounded(peer) if !self.placement.has_room(&place, weight, peer) => {
                return Err(TooManyViews);
            }
            ViewRoom::Bounded(peer) => peer,
            ViewRoom::Unbounded => Peer::UNKNOWN,
        };
        self.placement.add(&place, weight, opener);
        let parts = ViewParts {
            selector: wish.selector.clone(),
            cut: wish.cut,
            source,
            place,
            weight,
            opener,
            from: self.published.through,
        };
        let (writer, view) = ViewWriter::new(parts, &self.departures);
        let known = KnownView {
            hash,
            core: Arc::clone(writer.core()),
            view: Arc::downgrade(&view),
        };
        self.by_wish.insert_unique(hash, known, |known| known.hash);
        self.changes.arrived.push(writer);
        Ok(view)
    }

    /// Forgets the views that nobody watches any more: what they weigh is free at once.
    fn note_departures(&mut self) {
        for core in self.departures.take() {
            self.forget(&core);
            self.changes.left.push(core);
        }
    }

    /// Nobody enters this view any more, and it weighs nothing.
    pub(super) fn forget(&mut self, core: &Arc<ViewCore>) {
        let hash = self.hasher.hash_one(ViewKey::of(core));
        let same = |known: &KnownView| Arc::ptr_eq(&known.core, core);
        if let Ok(known) = self.by_wish.find_entry(hash, same) {
            known.remove();
            let (weight, opener) = core.weight();
            self.placement.remove(core.place(), weight, opener);
        }
    }

    /// What came and went since this was asked last.
    pub(super) fn take_changes(&mut self) -> ViewChanges {
        self.note_departures();
        std::mem::take(&mut self.changes)
    }

    /// Views that have a watcher and can be entered.
    pub(super) fn view_count(&mut self) -> usize {
        self.note_departures();
        self.by_wish.len()
    }

    /// What the views have in common with their watchers.
    pub(super) fn views(&self) -> impl Iterator<Item = &Arc<ViewCore>> {
        self.by_wish.iter().map(|known| &known.core)
    }
}
