//! The initial events of a watch: the snapshot's objects as ADDED, then the marker.

use std::sync::Arc;

use super::FrameLimits;
use crate::admission::ListPermit;
use crate::cache::{Chunk, Snapshot};
use crate::protocol::BufList;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::view::walk::Walk;
use crate::view::{Marker, ProjectionError, ServedResource, View};

/// How far a client's initial events have come.
#[derive(Debug)]
pub(super) struct InitialEvents {
    snapshot: Arc<Snapshot>,
    /// Begun with the first frame.
    walk: Option<Walk>,
    /// A chunk that is shown whole, and how many of its objects are.
    begun: Option<(Arc<Chunk>, usize)>,
    version: ResourceVersion,
    marker: Marker,
    done: bool,
    place: Option<ListPermit>,
}

impl InitialEvents {
    pub(super) fn new(snapshot: Arc<Snapshot>, version: ResourceVersion, marker: Marker) -> Self {
        Self {
            snapshot,
            walk: None,
            begun: None,
            version,
            marker,
            done: false,
            place: None,
        }
    }

    /// Holds the right to be sent, until all is.
    pub(super) fn hold(&mut self, place: Option<ListPermit>) {
        self.place = place;
    }

    /// Whether all is sent.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The next frame and the number of its events; no frame when all is sent, or none was found so far.
    ///
    /// # Errors
    /// An object cannot be cut.
    pub(super) fn next_frame(
        &mut self,
        view: &View,
        served: &ServedResource,
        limits: &FrameLimits,
    ) -> Result<(Option<BufList>, u64), ProjectionError> {
        if self.done {
            return Ok((None, 0));
        }
        if let Some(place) = &self.place {
            place.is_at_work();
        }
        let selector = view.selector();
        let walk = self.walk.get_or_insert_with(|| {
            Walk::new(&self.snapshot.objects, selector, served.cache.kind(), None)
        });
        let shows_all = view.cut().is_none() && selector.is_scope();
        let (mut pieces, mut count, mut cost) = (BufList::default(), 0, 0);
        while pieces.len() < limits.initial_len
            && pieces.count() < limits.slices
            && cost < limits.cost
        {
            if self.begun.is_none() && shows_all {
                let chunk = walk.next_chunk(&self.snapshot.objects);
                self.begun = chunk.map(|chunk| (Arc::clone(chunk), 0));
            }
            if let Some((chunk, shown)) = self.begun.take() {
                let mut more = pieces.push_added(&chunk, shown, limits.initial_len);
                if more == 0 {
                    push_added(&mut pieces, &chunk.objects()[shown], view)?;
                    more = 1;
                }
                count += more as u64;
                let shown = shown + more;
                self.begun = (shown < chunk.objects().len()).then_some((chunk, shown));
                continue;
            }
            let Some(object) = walk.next(&self.snapshot.objects) else {
                self.done = true;
                self.place = None;
                if self.marker == Marker::InitialEventsEnd {
                    let shape = served.hub.bookmark();
                    pieces.push(view.bookmark(&shape, self.version, self.marker)?);
                }
                break;
            };
            let is_shown = selector.matches(object);
            cost += view.cost(object.frame_len(), is_shown);
            if is_shown {
                push_added(&mut pieces, object, view)?;
                count += 1;
            }
        }
        let frame = (!pieces.is_empty()).then_some(pieces);
        if let (Some(place), Some(_)) = (&self.place, &frame) {
            place.gave_frame();
        }
        Ok((frame, count))
    }
}

fn push_added(pieces: &mut BufList, object: &Object, view: &View) -> Result<(), ProjectionError> {
    if let Some(cut) = view.cut() {
        pieces.push(cut.frame(&object.frame(EventKind::Added))?);
    } else if let Some(frame) = object.frame_of(EventKind::Added) {
        pieces.push(frame);
    } else {
        let (head, tail) = object.frame_pieces(EventKind::Added);
        pieces.push(head);
        pieces.push(tail);
    }
    Ok(())
}
