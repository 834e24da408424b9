//! The first events of a watch whose version the history no longer reaches: the latest state of what changed since, in the order of
//! versions, then a bookmark. Which versions can catch up is decided by the cache.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::initial::push_event;
use super::limits::FrameLimits;
use crate::admission::ListPermit;
use crate::cache::{CatchUp, Chunk, Lagged};
use crate::protocol::BufList;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::selector::Selector;
use crate::view::walk::Walk;
use crate::view::{Marker, ProjectionError, ServedResource, View};

/// Whether a watch with this selector can catch up: no change of an object can make it match, or no longer match. Otherwise an object that
/// does not match may have matched at the client's version, and without that state it is not known whether the client has it.
#[must_use]
pub fn can_catch_up(selector: &Selector) -> bool {
    selector.labels.is_empty() && selector.shard.is_none() && selector.fields.is_about_key()
}

/// Why a catch-up cannot be continued. The client has to list.
#[derive(Debug, thiserror::Error)]
pub(super) enum CatchUpError {
    #[error("the deletions are no longer kept")]
    Evicted(#[from] Lagged),
    #[error("an object cannot be projected")]
    Projection(#[from] ProjectionError),
}

/// One event to send: the latest state of an object, or its deletion.
#[derive(Debug)]
struct LatestState {
    kind: EventKind,
    object: Object,
}

impl LatestState {
    /// A deletion comes before a new object of the same version: they have the same key if they come from a relist.
    fn order(&self) -> (ResourceVersion, bool) {
        let is_deleted = self.kind == EventKind::Deleted;
        (self.object.resource_version(), !is_deleted)
    }
}

impl Ord for LatestState {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for LatestState {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LatestState {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for LatestState {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchUpPhase {
    ReadDeletions,
    SearchObjects,
    Send,
    Over,
}

/// The progress of a client's catch-up.
#[derive(Debug)]
pub(super) struct CatchUpEvents {
    catch_up: CatchUp,
    phase: CatchUpPhase,
    /// Created for the first frame, which is the first step that knows the view's selector.
    walk: Option<Walk>,
    /// What is to be sent. A heap, because sorting everything at once would delay other tasks.
    queue: BinaryHeap<Reverse<LatestState>>,
    /// Whether a bookmark follows the last event.
    bookmark: bool,
    /// Released with the last frame, so that a waiting list can start.
    permit: Option<ListPermit>,
}

impl CatchUpEvents {
    pub(super) fn new(catch_up: CatchUp, bookmark: bool) -> Self {
        Self {
            catch_up,
            phase: CatchUpPhase::ReadDeletions,
            walk: None,
            queue: BinaryHeap::new(),
            bookmark,
            permit: None,
        }
    }

    /// Holds the permit until the last frame is made.
    pub(super) fn hold(&mut self, permit: Option<ListPermit>) {
        self.permit = permit;
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == CatchUpPhase::Over
    }

    /// The next frame and its number of events. Without a frame, either all are sent or the search is not complete. One call
    /// searches about `limits.cost` objects, or makes at most about `limits.initial_len` bytes and `limits.slices` slices.
    ///
    /// # Errors
    /// The rest of the catch-up is lost; see [`CatchUpError`].
    pub(super) fn next_frame(
        &mut self,
        view: &View,
        served: &ServedResource,
        limits: &FrameLimits,
    ) -> Result<(Option<BufList>, u64), CatchUpError> {
        if let Some(permit) = &self.permit {
            permit.resume_work();
        }
        match self.phase {
            CatchUpPhase::ReadDeletions => self.read_deletions(view.selector(), limits.cost)?,
            CatchUpPhase::SearchObjects => self.search(view.selector(), served, limits.cost),
            CatchUpPhase::Send => {
                let (buf, count) = self.take_events(view, served, limits)?;
                let frame = (!buf.is_empty()).then_some(buf);
                if let (Some(permit), Some(_)) = (&self.permit, &frame) {
                    permit.gave_frame();
                }
                return Ok((frame, count));
            }
            CatchUpPhase::Over => {}
        }
        Ok((None, 0))
    }

    fn read_deletions(&mut self, selector: &Selector, count: usize) -> Result<(), Lagged> {
        let Self { queue, .. } = self;
        let has_more = self.catch_up.read_deletions(count, |object| {
            if selector.matches(object) {
                queue.push(Reverse(LatestState {
                    kind: EventKind::Deleted,
                    object: object.clone(),
                }));
            }
        })?;
        if !has_more {
            self.phase = CatchUpPhase::SearchObjects;
        }
        Ok(())
    }

    /// Adds the objects with a later version than the client's.
    fn search(&mut self, selector: &Selector, served: &ServedResource, cost_max: usize) {
        let after = self.catch_up.after();
        let objects = &self.catch_up.snapshot().objects;
        let walk = self
            .walk
            .get_or_insert_with(|| Walk::new(objects, selector, served.cache.kind(), None));
        let shows_all = selector.is_scope();
        let mut cost = 0;
        while cost < cost_max {
            if shows_all && let Some(chunk) = walk.next_chunk(objects) {
                cost += add_changed(&mut self.queue, chunk, after);
                continue;
            }
            let Some(object) = walk.next(objects) else {
                self.phase = CatchUpPhase::Send;
                return;
            };
            cost += 1;
            if object.resource_version() > after && selector.matches(object) {
                self.queue.push(latest(object));
            }
        }
    }

    /// The next events, in the order of versions, and at the end the bookmark.
    fn take_events(
        &mut self,
        view: &View,
        served: &ServedResource,
        limits: &FrameLimits,
    ) -> Result<(BufList, u64), ProjectionError> {
        let (mut buf, mut count) = (BufList::default(), 0);
        while buf.len() < limits.initial_len && buf.count() < limits.slices {
            let Some(Reverse(LatestState { kind, object })) = self.queue.pop() else {
                self.phase = CatchUpPhase::Over;
                self.permit = None;
                if self.bookmark {
                    let version = self.catch_up.snapshot().resource_version;
                    let template = served.hub.bookmark();
                    buf.push(view.bookmark(&template, version, Marker::None)?);
                }
                break;
            };
            push_event(&mut buf, &object, kind, view)?;
            count += 1;
        }
        Ok((buf, count))
    }
}

/// Adds the objects of a chunk with a version after `after`; returns how many objects were looked at.
fn add_changed(
    queue: &mut BinaryHeap<Reverse<LatestState>>,
    chunk: &Arc<Chunk>,
    after: ResourceVersion,
) -> usize {
    if chunk.newest_version() <= after {
        return 1;
    }
    let changed = chunk.objects().iter();
    queue.extend(
        changed
            .filter(|object| object.resource_version() > after)
            .map(latest),
    );
    chunk.objects().len()
}

/// ADDED although the client may know the object: it is not known whether the object existed at the client's version. Clients must expect
/// ADDED for objects that they know, as it is what a list gives them, but may ignore MODIFIED for others (decision 44).
fn latest(object: &Object) -> Reverse<LatestState> {
    Reverse(LatestState {
        kind: EventKind::Added,
        object: object.clone(),
    })
}
