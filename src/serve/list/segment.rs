//! Divides a page into segments: a whole chunk where the page shows all of it, else a bounded number of objects. Pure.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::step::Budget;
use super::{ListBody, PageItems, SnapshotPage};
use crate::cache::{BlockFormat, Chunk};
use crate::resource::Object;

/// Approximate length of a segment of single objects, in bytes. Short enough that compressing it takes about a millisecond; long
/// enough that separate blocks cost little (4 % more bytes than one block of 2 MiB; at 128 KiB it would be 10 %).
const SEGMENT_LEN: usize = 512 << 10;

/// Consecutive items of a page.
#[derive(Debug)]
pub(super) enum PageSegment {
    /// All objects of a chunk, which may already be compressed in this format.
    Chunk(Arc<Chunk>, BlockFormat),
    /// Objects, and their length in bytes.
    Objects(Vec<Object>, usize),
}

impl PageSegment {
    pub(super) fn objects(&self) -> &[Object] {
        match self {
            Self::Chunk(chunk, _) => chunk.objects(),
            Self::Objects(objects, _) => objects,
        }
    }
}

/// The objects of a segment that is not complete yet.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialSegment {
    objects: Vec<Object>,
    len: usize,
}

impl ListBody {
    /// Does one step of the next segment. Ready once the segment is complete, with `None` at the end. Whole chunks are returned
    /// only in a format whose blocks are kept.
    pub(super) fn next_segment(&mut self, budget: &mut Budget) -> Poll<Option<PageSegment>> {
        let (page, segment) = (&mut self.page, &mut self.partial_segment);
        let format = self.form.block_format().filter(|_| page.shows_all());
        if let Some(format) = format.filter(|_| segment.objects.is_empty())
            && let Some(chunk) = page.next_chunk()
        {
            return Poll::Ready(Some(PageSegment::Chunk(chunk, format)));
        }
        while segment.len < SEGMENT_LEN
            && !(format.is_some() && !segment.objects.is_empty() && page.is_at_chunk())
        {
            if budget.is_spent() {
                return Poll::Pending;
            }
            budget.look();
            match page.look() {
                None => break,
                Some(None) => {}
                Some(Some(object)) => {
                    segment.len += object.frame_len();
                    segment.objects.push(object);
                }
            }
        }
        let PartialSegment { objects, len } = mem::take(segment);
        Poll::Ready((!objects.is_empty()).then_some(PageSegment::Objects(objects, len)))
    }
}

impl SnapshotPage {
    /// The next chunk, if all of its objects are on the page.
    pub(super) fn next_whole_chunk(&mut self) -> Option<Arc<Chunk>> {
        self.shows_all().then(|| self.next_chunk()).flatten()
    }

    /// True if all objects in scope are on the page.
    pub(super) fn shows_all(&self) -> bool {
        match &self.items {
            PageItems::Rest { selector, .. } => selector.is_scope(),
            PageItems::Found(_) => false,
        }
    }

    /// The next chunk, if all of its objects are in scope; the selector may match only some of them.
    pub(super) fn next_chunk(&mut self) -> Option<Arc<Chunk>> {
        match &mut self.items {
            PageItems::Rest { snapshot, walk, .. } => walk.next_chunk(&snapshot.objects).cloned(),
            PageItems::Found(_) => None,
        }
    }

    fn is_at_chunk(&self) -> bool {
        match &self.items {
            PageItems::Rest { snapshot, walk, .. } => walk.is_at_chunk(&snapshot.objects),
            PageItems::Found(_) => false,
        }
    }
}
