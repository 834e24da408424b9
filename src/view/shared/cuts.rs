//! The frames that were cut out of one event, shared by all views that show it alike.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::cache::Event;
use crate::resource::EventKind;
use crate::view::projection::{Projection, ProjectionError};

/// See the module. There are few forms, and three kinds of events: a search through all is short.
#[derive(Debug, Default)]
pub(in crate::view) struct Projections(SmallVec<[ProjectedFrame; 2]>);

#[derive(Debug)]
struct ProjectedFrame {
    cut: Projection,
    kind: EventKind,
    frame: Result<Bytes, ProjectionError>,
}

impl Projections {
    /// The event's frame in this form, and whether it had to be made.
    pub(super) fn frame(
        &mut self,
        event: &Event,
        kind: EventKind,
        cut: Projection,
    ) -> (Result<Bytes, ProjectionError>, bool) {
        let mut made = self.0.iter();
        if let Some(made) = made.find(|made| made.cut == cut && made.kind == kind) {
            return (made.frame.clone(), false);
        }
        let frame = cut.frame(&event.frame(kind));
        self.0.push(ProjectedFrame {
            cut,
            kind,
            frame: frame.clone(),
        });
        (frame, true)
    }

    /// Forgets them: another event follows.
    pub(in crate::view) fn clear(&mut self) {
        self.0.clear();
    }
}
