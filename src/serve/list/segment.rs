//! A page taken in runs: a whole chunk where the page shows all of it, else a bounded number of objects. Pure.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::step::Budget;
use super::{ListBody, PageItems, SnapshotPage};
use crate::cache::{BlockFormat, Chunk};
use crate::resource::Object;

/// Bytes of a run of single objects, about: short enough that others get their turn (a millisecond), long enough that
/// cutting costs little (4 % more bytes than one piece of 2 MiB; at 128 KiB it would be 10 %).
const RUN_LEN: usize = 512 << 10;

/// Some of a page's items, in order.
#[derive(Debug)]
pub(super) enum PageSegment {
    /// All objects of a chunk, which may have been compressed already.
    Chunk(Arc<Chunk>, BlockFormat),
    /// So many bytes of objects.
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

/// Objects of a run that is not whole yet.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialSegment {
    objects: Vec<Object>,
    len: usize,
}

impl ListBody {
    /// Goes on a little with the next run: it is there when it is whole, `None` when there are no more. By chunk only if blocks are
    /// kept of the form that is wanted.
    pub(super) fn next_run(&mut self, budget: &mut Budget) -> Poll<Option<PageSegment>> {
        let (page, run) = (&mut self.page, &mut self.partial_run);
        let kept = self.form.block_format().filter(|_| page.shows_all());
        if let Some(kept) = kept.filter(|_| run.objects.is_empty())
            && let Some(chunk) = page.next_chunk()
        {
            return Poll::Ready(Some(PageSegment::Chunk(chunk, kept)));
        }
        while run.len < RUN_LEN
            && !(kept.is_some() && !run.objects.is_empty() && page.is_at_chunk())
        {
            if budget.is_spent() {
                return Poll::Pending;
            }
            budget.look();
            match page.look() {
                None => break,
                Some(None) => {}
                Some(Some(object)) => {
                    run.len += object.frame_len();
                    run.objects.push(object);
                }
            }
        }
        let PartialSegment { objects, len } = mem::take(run);
        Poll::Ready((!objects.is_empty()).then_some(PageSegment::Objects(objects, len)))
    }
}

impl SnapshotPage {
    /// The next items, if they are all of a chunk.
    pub(super) fn next_whole_chunk(&mut self) -> Option<Arc<Chunk>> {
        self.shows_all().then(|| self.next_chunk()).flatten()
    }

    /// True if every object of the range is on the page.
    pub(super) fn shows_all(&self) -> bool {
        match &self.items {
            PageItems::Rest { selector, .. } => selector.is_scope(),
            PageItems::Found(_) => false,
        }
    }

    /// The next chunk, if all of it is in scope; whatever of it the selector shows.
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
