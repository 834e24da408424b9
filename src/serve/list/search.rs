//! Which objects are on a page. With a limit they are looked for beforehand, because the envelope says where the next page
//! begins, and in steps, because a selector may match none of very many. Pure.

use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::envelope::ListMeta;
use super::step::Budget;
use super::{PageItems, PageRequest, SnapshotPage};
use crate::cache::Snapshot;
use crate::protocol::continue_token::ContinueToken;
use crate::resource::Object;
use crate::view::selector::Selector;
use crate::view::walk::{Walk, prefix_of};

/// A page that is being decided.
#[derive(Debug)]
pub struct PageSearch {
    snapshot: Arc<Snapshot>,
    walk: Walk,
    selector: Selector,
    limited: Option<LimitedSearch>,
}

/// How far the search for a limited page has come.
#[derive(Debug)]
struct LimitedSearch {
    limit: usize,
    /// Objects in scope from the page's first on.
    ahead: usize,
    items: Vec<Object>,
    /// Key of the last object looked at.
    last: Option<String>,
}

impl PageSearch {
    /// Begins to look for the page's items. Without a limit nothing is looked at.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, request: &PageRequest<'_>) -> Self {
        let selector = request.selector;
        let walk = Walk::new(&snapshot.objects, selector, request.kind, request.start);
        let limited = request.limit.map(|limit| LimitedSearch {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            ahead: walk.count_ahead(&snapshot.objects),
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

    /// Goes on a little; the page when it is decided.
    pub fn step(&mut self) -> Poll<SnapshotPage> {
        let Some(limited) = &mut self.limited else {
            return Poll::Ready(self.unlimited());
        };
        let mut budget = Budget::default();
        let mut last = None;
        // Whether objects lie behind the page, matching or not (docs/PROTOCOL.md §3.3).
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
        let (limit, ahead) = (limited.limit, limited.ahead);
        let last = limited.last.take().filter(|_| more);
        let mut items = mem::take(&mut limited.items);
        items.reverse();
        let is_filtered = !self.selector.labels.is_empty() || !self.selector.fields.is_empty();
        let prefix_len = prefix_of(&self.selector).len();
        let version = self.snapshot.resource_version;
        let meta = ListMeta {
            remaining: (last.is_some() && !is_filtered).then(|| ahead - limit),
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

    /// Of a page behind which there is nothing.
    fn meta(&self) -> ListMeta {
        ListMeta {
            version: self.snapshot.resource_version,
            continue_token: None,
            remaining: None,
            shard: self.selector.shard.as_ref().map(ToString::to_string),
        }
    }
}
