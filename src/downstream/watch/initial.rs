//! The initial events of a watch: the snapshot's objects as ADDED, then the marker.

use std::sync::Arc;

use bytes::Bytes;

use super::{FRAME_LEN, FRAME_SLICES};
use crate::cache::Snapshot;
use crate::downstream::Pieces;
use crate::downstream::walk::Walk;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::view::selector::Selector;
use crate::view::{Marker, Served};

/// How far a client's initial events have come.
#[derive(Debug)]
pub(super) struct Initial {
    snapshot: Arc<Snapshot>,
    /// Begun with the first frame.
    walk: Option<Walk>,
    version: ResourceVersion,
    marker: Marker,
    done: bool,
}

impl Initial {
    pub(super) fn new(snapshot: Arc<Snapshot>, version: ResourceVersion, marker: Marker) -> Self {
        Self {
            snapshot,
            walk: None,
            version,
            marker,
            done: false,
        }
    }

    /// The next frame and the number of its events; no frame when all is sent.
    pub(super) fn next_frame(
        &mut self,
        selector: &Selector,
        served: &Served,
    ) -> (Option<Pieces>, u64) {
        if self.done {
            return (None, 0);
        }
        let walk = self.walk.get_or_insert_with(|| {
            Walk::new(&self.snapshot.objects, selector, served.cache.kind(), None)
        });
        let (mut pieces, mut count) = (Pieces::default(), 0);
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            let Some(object) = walk.next(&self.snapshot.objects) else {
                self.done = true;
                if self.marker == Marker::InitialEventsEnd {
                    pieces.push(served.hub.bookmark().line(self.version, self.marker));
                }
                break;
            };
            if selector.matches(object) {
                push_added(&mut pieces, object);
                count += 1;
            }
        }
        ((!pieces.is_empty()).then_some(pieces), count)
    }
}

fn push_added(pieces: &mut Pieces, object: &Object) {
    if let Some(line) = object.line_of(EventKind::Added) {
        pieces.push(line);
    } else {
        pieces.push(Bytes::from_static(EventKind::Added.line_head().as_bytes()));
        pieces.push(object.line_tail());
    }
}
