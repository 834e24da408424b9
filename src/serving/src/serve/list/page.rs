//! A page of a snapshot, whose items are found while it is read. Pure.

use std::sync::Arc;

use super::envelope::ListMeta;
use crate::cache::{Chunk, Snapshot};
use crate::resource::{Object, ResourceKind};
use crate::selector::Selector;
use crate::view::walk::{Walk, only_name};

/// The part of a snapshot that a list requests.
#[derive(Debug)]
pub struct PageRequest<'a> {
    /// The resource.
    pub kind: &'a ResourceKind,
    /// The namespace and the selectors.
    pub selector: &'a Selector,
    /// The first key, in the form that a continue token has: relative to the namespace and without a leading slash.
    pub start: Option<&'a str>,
    /// Maximum number of items.
    pub limit: Option<u64>,
}

/// Sending this many items costs less than waiting for a permit.
const SHORT_ITEMS: u64 = 100;

impl PageRequest<'_> {
    /// Whether the search is certain to visit so few objects that the list needs no permit: one, or those of a short page without selectors to
    /// evaluate.
    #[must_use]
    pub fn is_short(&self) -> bool {
        only_name(self.selector, self.kind, self.start).is_some()
            || self
                .limit
                .is_some_and(|limit| limit <= SHORT_ITEMS && self.selector.is_scope())
    }
}

/// One page: the metadata of its envelope, and its items.
#[derive(Clone, Debug)]
pub struct SnapshotPage {
    pub(super) meta: ListMeta,
    pub(super) items: PageItems,
}

#[derive(Clone, Debug)]
pub(super) enum PageItems {
    /// All matching objects from a position on; they are found while the list is sent.
    Rest {
        snapshot: Arc<Snapshot>,
        walk: Walk,
        selector: Selector,
    },
    /// The items of a limited page, in reverse order.
    Found(Vec<Object>),
}

impl SnapshotPage {
    /// Evaluates the next object in scope; `Some(None)` if the selector does not match it.
    pub(super) fn look(&mut self) -> Option<Option<Object>> {
        match &mut self.items {
            PageItems::Found(items) => items.pop().map(Some),
            PageItems::Rest {
                snapshot,
                walk,
                selector,
            } => {
                let object = walk.next(&snapshot.objects)?;
                Some(selector.matches(object).then(|| object.clone()))
            }
        }
    }

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

    pub(super) fn is_at_chunk(&self) -> bool {
        match &self.items {
            PageItems::Rest { snapshot, walk, .. } => walk.is_at_chunk(&snapshot.objects),
            PageItems::Found(_) => false,
        }
    }
}
