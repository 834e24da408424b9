//! The initial events of a watch: the snapshot's objects as ADDED, then the marker.

use std::sync::Arc;

use bytes::Bytes;

use super::{FRAME_LEN, FRAME_SLICES};
use crate::cache::{Place, Snapshot};
use crate::downstream::Pieces;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::view::selector::Selector;
use crate::view::{Marker, Served};

/// How far a client's initial events have come.
#[derive(Debug)]
pub(super) struct Initial {
    snapshot: Arc<Snapshot>,
    place: Place,
    prefix: String,
    version: ResourceVersion,
    marker: Marker,
    done: bool,
}

impl Initial {
    pub(super) fn new(snapshot: Arc<Snapshot>, version: ResourceVersion, marker: Marker) -> Self {
        Self {
            snapshot,
            place: Place::default(),
            prefix: String::new(),
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
        self.seek(selector);
        let (mut pieces, mut count) = (Pieces::default(), 0);
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            let object = self.snapshot.objects.next(&mut self.place);
            let Some(object) =
                object.filter(|object| object.key().as_str().starts_with(&self.prefix))
            else {
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

    /// Starts at the selector's namespace: the rest need not be looked at.
    fn seek(&mut self, selector: &Selector) {
        if let (Some(namespace), true) = (&selector.namespace, self.prefix.is_empty()) {
            self.prefix = format!("{namespace}/");
            self.place = self.snapshot.objects.place_from(&self.prefix);
        }
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
