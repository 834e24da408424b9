//! The projected frames of one event, shared by all views that show it in the same form and as the same kind of event.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::cache::Event;
use crate::resource::EventKind;
use crate::view::projection::{Projection, ProjectionError};

/// The projected frames of one event. There are few forms and three kinds of events, so a linear search is short. The first two frames
/// need no allocation.
#[derive(Debug, Default)]
pub(in crate::view) struct ProjectedFrames(SmallVec<[ProjectedFrame; 2]>);

#[derive(Debug)]
struct ProjectedFrame {
    projection: Projection,
    kind: EventKind,
    frame: Result<Bytes, ProjectionError>,
}

impl ProjectedFrames {
    /// The frame of the event as `kind` in this form, and whether this call had to project it. A failure is kept, too, so that it is
    /// not tried again for each view.
    pub(super) fn frame(
        &mut self,
        event: &Event,
        kind: EventKind,
        projection: Projection,
    ) -> (Result<Bytes, ProjectionError>, bool) {
        let mut frames = self.0.iter();
        if let Some(projected) =
            frames.find(|projected| projected.projection == projection && projected.kind == kind)
        {
            return (projected.frame.clone(), false);
        }
        let frame = projection.frame(&event.frame(kind));
        self.0.push(ProjectedFrame {
            projection,
            kind,
            frame: frame.clone(),
        });
        (frame, true)
    }

    /// Forgets all frames, before another event.
    pub(in crate::view) fn clear(&mut self) {
        self.0.clear();
    }
}
