//! Divides a page into segments: a whole chunk where the page shows all of it, else a bounded number of objects. Pure.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::page::SnapshotPage;
use super::step::Budget;
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

impl PartialSegment {
    /// Does one step of the page's next segment. Ready once the segment is complete, with `None` at the end. Whole chunks are
    /// returned only if blocks are kept in the list's format.
    pub(super) fn next(
        &mut self,
        page: &mut SnapshotPage,
        format: Option<BlockFormat>,
        budget: &mut Budget,
    ) -> Poll<Option<PageSegment>> {
        let format = format.filter(|_| page.shows_all());
        if let Some(format) = format.filter(|_| self.objects.is_empty())
            && let Some(chunk) = page.next_chunk()
        {
            return Poll::Ready(Some(PageSegment::Chunk(chunk, format)));
        }
        while self.len < SEGMENT_LEN
            && !(format.is_some() && !self.objects.is_empty() && page.is_at_chunk())
        {
            if budget.is_spent() {
                return Poll::Pending;
            }
            budget.look();
            match page.look() {
                None => break,
                Some(None) => {}
                Some(Some(object)) => {
                    self.len += object.frame_len();
                    self.objects.push(object);
                }
            }
        }
        let Self { objects, len } = mem::take(self);
        Poll::Ready((!objects.is_empty()).then_some(PageSegment::Objects(objects, len)))
    }
}
