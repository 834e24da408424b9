//! The initial events of a watch: the snapshot's matching objects as ADDED events, then the bookmark that marks their end.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::initial_block::{InitialBlockReader, InitialBlocks};
use super::limits::FrameLimits;
use crate::admission::ListPermit;
use crate::cache::{Chunk, DeflateBlock, Snapshot};
use crate::protocol::BufList;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::view::walk::Walk;
use crate::view::{Marker, ProjectionError, ServedResource, View};

/// The next of the first events of a watch, and their number.
#[derive(Debug)]
pub(super) enum FirstFrame {
    Events(BufList, u64),
    /// Compressed, the same for all clients.
    Block(DeflateBlock, u64),
    /// All are sent, or there is more to search.
    Nothing,
    /// A block is being compressed.
    Waits,
}

/// The progress of a client's initial events.
#[derive(Debug)]
pub(super) struct InitialEvents {
    snapshot: Arc<Snapshot>,
    /// Created for the first frame, which is the first step that knows the view's selector.
    walk: Option<Walk>,
    /// A chunk of which every object is to be sent, and the number of its objects that were sent already.
    partial_chunk: Option<(Arc<Chunk>, usize)>,
    version: ResourceVersion,
    marker: Marker,
    done: bool,
    /// For a client that gets compressed events.
    blocks: Option<Box<InitialBlockReader>>,
    /// Released with the last frame, so that a waiting list can start.
    permit: Option<ListPermit>,
}

impl InitialEvents {
    pub(super) fn new(snapshot: Arc<Snapshot>, version: ResourceVersion, marker: Marker) -> Self {
        Self {
            snapshot,
            walk: None,
            partial_chunk: None,
            version,
            marker,
            done: false,
            blocks: None,
            permit: None,
        }
    }

    /// Sends chunks of which every object is shown as compressed blocks.
    pub(super) fn compress(&mut self, blocks: Arc<dyn InitialBlocks>) {
        self.blocks = Some(Box::new(InitialBlockReader::new(blocks)));
    }

    /// Whether a block is being compressed.
    pub(super) fn waits(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.waits())
    }

    /// Wakes `waker` when the block that is being compressed is there; returns whether it is there already.
    pub(super) fn arm(&mut self, waker: &Waker) -> bool {
        self.blocks.as_mut().is_some_and(|blocks| blocks.arm(waker))
    }

    /// Holds the permit until the last frame is made.
    pub(super) fn hold(&mut self, permit: Option<ListPermit>) {
        self.permit = permit;
    }

    /// Whether all initial events are sent.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The next frame. One call makes at most about `limits.initial_len` bytes and `limits.slices` slices, and spends at most about `limits.cost`.
    ///
    /// # Errors
    /// An object cannot be projected to the view's form. The events found by this call are lost; the watch ends.
    pub(super) fn next_frame(
        &mut self,
        view: &View,
        served: &ServedResource,
        limits: &FrameLimits,
    ) -> Result<FirstFrame, ProjectionError> {
        if self.done {
            return Ok(FirstFrame::Nothing);
        }
        if let Some(permit) = &self.permit {
            permit.resume_work();
        }
        let selector = view.selector();
        let walk = self.walk.get_or_insert_with(|| {
            Walk::new(&self.snapshot.objects, selector, served.cache.kind(), None)
        });
        let shows_all = view.projection().is_none() && selector.is_scope();
        let (mut buf, mut count, mut cost) = (BufList::default(), 0, 0);
        while buf.len() < limits.initial_len && buf.count() < limits.slices && cost < limits.cost {
            if self.partial_chunk.is_none() && shows_all {
                let chunk = walk.next_chunk(&self.snapshot.objects);
                self.partial_chunk = chunk.map(|chunk| (Arc::clone(chunk), 0));
            }
            if let (Some((chunk, 0)), Some(blocks)) = (&self.partial_chunk, &mut self.blocks) {
                if !buf.is_empty() {
                    break;
                }
                match blocks.next(chunk, limits.block_min) {
                    Poll::Pending => return Ok(FirstFrame::Waits),
                    Poll::Ready(Some(block)) => {
                        let count = chunk.objects().len() as u64;
                        let next = walk.next_chunk(&self.snapshot.objects);
                        self.partial_chunk = next.map(|chunk| (Arc::clone(chunk), 0));
                        self.permit.iter().for_each(ListPermit::gave_frame);
                        let is_last = self.partial_chunk.is_none()
                            && walk.count_ahead(&self.snapshot.objects) == 0;
                        self.permit.take_if(|_| is_last);
                        return Ok(FirstFrame::Block(block, count));
                    }
                    Poll::Ready(None) => {}
                }
            }
            if let Some((chunk, sent)) = self.partial_chunk.take() {
                let mut added = buf.push_added(&chunk, sent, limits.initial_len);
                if added == 0 {
                    // This object has no ADDED frame that could be shared, so it is written alone.
                    push_event(&mut buf, &chunk.objects()[sent], EventKind::Added, view)?;
                    added = 1;
                }
                count += added as u64;
                let sent = sent + added;
                self.partial_chunk = (sent < chunk.objects().len()).then_some((chunk, sent));
                continue;
            }
            let Some(object) = walk.next(&self.snapshot.objects) else {
                self.done = true;
                self.permit = None;
                if self.marker == Marker::InitialEventsEnd {
                    let template = served.hub.bookmark();
                    buf.push(view.bookmark(&template, self.version, self.marker)?);
                }
                break;
            };
            let is_shown = selector.matches(object);
            cost += view.cost(object.frame_len(), is_shown);
            if is_shown {
                push_event(&mut buf, object, EventKind::Added, view)?;
                count += 1;
            }
        }
        if buf.is_empty() {
            return Ok(FirstFrame::Nothing);
        }
        self.permit.iter().for_each(ListPermit::gave_frame);
        Ok(FirstFrame::Events(buf, count))
    }
}

/// Appends an event of the object, as the view shows it.
pub(super) fn push_event(
    buf: &mut BufList,
    object: &Object,
    kind: EventKind,
    view: &View,
) -> Result<(), ProjectionError> {
    if let Some(projection) = view.projection() {
        buf.push(projection.frame(&object.frame(kind))?);
    } else if let Some(frame) = object.frame_of(kind) {
        buf.push(frame);
    } else {
        let (head, tail) = object.frame_pieces(kind);
        buf.push(head);
        buf.push(tail);
    }
    Ok(())
}
