//! Finds the objects of a page. A limited page is searched before its response starts, because the envelope contains the continue
//! token. It is searched in steps, because a selector may match few objects among very many. Pure.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::envelope::ListMeta;
use super::page::{PageItems, PageRequest, SnapshotPage};
use super::step::Budget;
use crate::cache::Snapshot;
use crate::protocol::continue_token::ContinueToken;
use crate::resource::Object;
use crate::selector::Selector;
use crate::view::walk::{Walk, prefix_of};

/// The search for a page, in progress.
#[derive(Debug)]
pub struct PageSearch {
    snapshot: Arc<Snapshot>,
    walk: Walk,
    selector: Selector,
    limited: Option<LimitedSearch>,
}

/// The state of the search for a limited page.
#[derive(Debug)]
struct LimitedSearch {
    limit: usize,
    /// Number of objects in scope from the page's first one on.
    scope_count: usize,
    items: Vec<Object>,
    /// Key of the last object evaluated.
    last: Option<String>,
}

impl PageSearch {
    /// Starts the search for the page's items. Without a limit there is nothing to search.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, request: &PageRequest<'_>) -> Self {
        let selector = request.selector;
        let walk = Walk::new(&snapshot.objects, selector, request.kind, request.start);
        let limited = request.limit.map(|limit| LimitedSearch {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            scope_count: walk.count_ahead(&snapshot.objects),
            items: Vec::new(),
            last: None,
        });
        Self {
            snapshot,
            walk,
            selector: selector.clone(),
            limited,
        }
    }

    /// Does one step; ready with the page once it is complete.
    pub fn step(&mut self) -> Poll<SnapshotPage> {
        let Some(limited) = &mut self.limited else {
            return Poll::Ready(self.unlimited());
        };
        let mut budget = Budget::default();
        let mut last = None;
        // Whether there are objects after the page, matching or not (docs/PROTOCOL.md §3.3).
        let more = loop {
            if budget.is_spent() {
                break None;
            }
            let Some(object) = self.walk.next(&self.snapshot.objects) else {
                break Some(false);
            };
            if limited.items.len() == limited.limit {
                break Some(true);
            }
            budget.look();
            if self.selector.matches(object) {
                limited.items.push(object.clone());
            }
            last = Some(object);
        };
        if let Some(last) = last {
            limited.last = Some(last.key().to_string());
        }
        let Some(more) = more else {
            return Poll::Pending;
        };
        let (limit, scope_count) = (limited.limit, limited.scope_count);
        let last = limited.last.take().filter(|_| more);
        let mut items = mem::take(&mut limited.items);
        items.reverse();
        let is_filtered = !self.selector.labels.is_empty() || !self.selector.fields.is_empty();
        let prefix_len = prefix_of(&self.selector).len();
        let version = self.snapshot.resource_version;
        let meta = ListMeta {
            remaining: (last.is_some() && !is_filtered).then(|| scope_count - limit),
            continue_token: last
                .map(|key| ContinueToken::after(&key[prefix_len..], version).encode()),
            ..self.meta()
        };
        Poll::Ready(SnapshotPage {
            meta,
            items: PageItems::Found(items),
        })
    }

    fn unlimited(&self) -> SnapshotPage {
        SnapshotPage {
            meta: self.meta(),
            items: PageItems::Rest {
                snapshot: Arc::clone(&self.snapshot),
                walk: self.walk.clone(),
                selector: self.selector.clone(),
            },
        }
    }

    /// The metadata of a last page.
    fn meta(&self) -> ListMeta {
        ListMeta {
            version: self.snapshot.resource_version,
            continue_token: None,
            remaining: None,
            shard: self.selector.shard.as_ref().map(ToString::to_string),
        }
    }
}
