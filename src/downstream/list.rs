//! Lists from a snapshot: which objects are on the page, and the body that streams them. Pure but for the body trait.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Pieces;
use super::continue_token::ContinueToken;
use super::walk::{Walk, prefix_of};
use crate::cache::{ObjectMap, Snapshot};
use crate::resource::{Layout, Object, ResourceKind, ResourceVersion};
use crate::view::selector::Selector;
use crate::view::{Form, Partial};

/// Bytes of one body frame, about: what a socket buffer takes at once.
const FRAME_LEN: usize = 128 << 10;
/// Slices of one body frame: `writev` takes 64 from hyper, chunk head and end among them.
const FRAME_SLICES: usize = 60;
/// Answers up to this length carry Content-Length, as Go's server does it (protocol.md §3.8).
const SIZED_LEN_MAX: usize = 2048;

/// Which part of a snapshot a list asks for.
#[derive(Debug)]
pub struct PageRequest<'a> {
    /// The resource.
    pub kind: &'a ResourceKind,
    /// Namespace and selectors.
    pub selector: &'a Selector,
    /// The key to go on after, as a continue token has it: without leading slash, relative to the namespace.
    pub start: Option<&'a str>,
    /// Items at most.
    pub limit: Option<u64>,
}

/// One page: what its envelope says, and its items.
#[derive(Debug)]
pub struct Page {
    version: ResourceVersion,
    continue_token: Option<String>,
    remaining: Option<usize>,
    items: Items,
}

#[derive(Debug)]
enum Items {
    /// Everything from here on that matches, found while it is sent.
    Rest {
        snapshot: Arc<Snapshot>,
        walk: Walk,
        selector: Selector,
    },
    /// The items of a limited page, last one first.
    Found(Vec<Arc<Object>>),
}

impl Page {
    /// Decides the page. Without a limit nothing is looked at yet.
    #[must_use]
    pub fn of(snapshot: Arc<Snapshot>, request: &PageRequest<'_>) -> Self {
        let selector = request.selector;
        let walk = Walk::new(&snapshot.objects, selector, request.kind, request.start);
        let version = snapshot.resource_version;
        let Some(limit) = request.limit else {
            let items = Items::Rest {
                snapshot,
                walk,
                selector: selector.clone(),
            };
            return Self {
                version,
                continue_token: None,
                remaining: None,
                items,
            };
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let ahead = walk.count_ahead(&snapshot.objects);
        let found = limited(&snapshot.objects, walk, selector, limit);
        let unfiltered = selector.labels.is_empty() && selector.fields.is_empty();
        let more = found.last.filter(|_| found.more);
        let remaining = (more.is_some() && unfiltered).then(|| ahead - limit);
        let prefix_len = prefix_of(selector).len();
        let continue_token =
            more.map(|last| ContinueToken::after(&last[prefix_len..], version).encode());
        let mut items = found.items;
        items.reverse();
        Self {
            version,
            continue_token,
            remaining,
            items: Items::Found(items),
        }
    }

    fn next(&mut self) -> Option<Arc<Object>> {
        match &mut self.items {
            Items::Found(items) => items.pop(),
            Items::Rest {
                snapshot,
                walk,
                selector,
            } => loop {
                let object = walk.next(&snapshot.objects)?;
                if selector.matches(object) {
                    return Some(Arc::clone(object));
                }
            },
        }
    }

    fn metadata(&self, layout: Layout) -> String {
        let token = self.continue_token.as_deref();
        let mut remaining = String::new();
        if let Some(count) = self.remaining {
            remaining = format!(",\"remainingItemCount\":{count}");
        }
        let version = self.version;
        match (layout, token) {
            (Layout::Typed, None) => format!("{{\"resourceVersion\":\"{version}\"{remaining}}}"),
            (Layout::Typed, Some(token)) => {
                format!("{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"{remaining}}}")
            }
            (Layout::Dynamic, token) => {
                let token = token.unwrap_or("");
                format!("{{\"continue\":\"{token}\"{remaining},\"resourceVersion\":\"{version}\"}}")
            }
        }
    }
}

struct Limited {
    items: Vec<Arc<Object>>,
    /// Key of the last object looked at.
    last: Option<String>,
    /// Objects lie behind it, matching or not (protocol.md §3.3).
    more: bool,
}

fn limited(objects: &ObjectMap, mut walk: Walk, selector: &Selector, limit: usize) -> Limited {
    let mut found = Limited {
        items: Vec::new(),
        last: None,
        more: false,
    };
    while let Some(object) = walk.next(objects) {
        if found.items.len() == limit {
            found.more = true;
            break;
        }
        if selector.matches(object) {
            found.items.push(Arc::clone(object));
        }
        found.last = Some(object.key().to_string());
    }
    found
}

/// Streams a page: envelope, items as they are in memory, envelope.
#[derive(Debug)]
pub struct ListBody {
    page: Page,
    layout: Layout,
    /// Cuts the items, if only their metadata is wanted.
    partial: Option<Partial>,
    head: Option<Bytes>,
    tail: Option<Bytes>,
    /// What stands before the next item: `{` of the first, then `,{`.
    opening: &'static [u8],
    /// Items sent, for metrics.
    items: usize,
}

impl ListBody {
    /// The body of a page of this kind of object.
    #[must_use]
    pub fn new(page: Page, kind: &ResourceKind, form: Form) -> Self {
        if let Form::Metadata(version) = form {
            let layout = kind.layout;
            return Self::cut(page, Partial { version, layout });
        }
        let (list_kind, api_version) = (&kind.list_kind, kind.gvr.api_version());
        let metadata = page.metadata(kind.layout);
        let (head, tail) = match kind.layout {
            Layout::Typed => (
                format!(
                    "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
                ),
                "]}\n".into(),
            ),
            Layout::Dynamic => (
                format!("{{\"apiVersion\":\"{api_version}\",\"items\":["),
                format!("],\"kind\":\"{list_kind}\",\"metadata\":{metadata}}}\n"),
            ),
        };
        Self {
            page,
            layout: kind.layout,
            partial: None,
            head: Some(head.into()),
            tail: Some(Bytes::from(tail)),
            opening: b"{",
            items: 0,
        }
    }

    /// A list of nothing but metadata looks the same for all kinds of objects. Without items it has `null`.
    fn cut(page: Page, partial: Partial) -> Self {
        let metadata = page.metadata(Layout::Typed);
        let api_version = partial.version.api_version();
        let head = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":"
        );
        Self {
            page,
            layout: partial.layout,
            partial: Some(partial),
            head: Some(head.into()),
            tail: Some(Bytes::from_static(b"null}\n")),
            opening: b"[",
            items: 0,
        }
    }

    /// The next frame; `None` when the list is complete.
    fn next_frame(&mut self) -> Option<Pieces> {
        self.tail.as_ref()?;
        let mut pieces = Pieces::default();
        self.head
            .take()
            .into_iter()
            .for_each(|head| pieces.push(head));
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            let Some(object) = self.page.next() else {
                self.tail
                    .take()
                    .into_iter()
                    .for_each(|tail| pieces.push(tail));
                break;
            };
            pieces.push(Bytes::from_static(self.opening));
            self.items += 1;
            if let Some(partial) = self.partial {
                pieces.push(partial.of(&object).into());
                self.opening = b",";
                self.tail = Some(Bytes::from_static(b"]}\n"));
                continue;
            }
            pieces.push(match self.layout {
                Layout::Typed => object.item_tail(),
                Layout::Dynamic => object.whole_tail(),
            });
            self.opening = b",{";
        }
        Some(pieces)
    }

    /// The whole list in one piece, with the number of its items, if it is short enough to carry its length; else the body to stream.
    ///
    /// # Errors
    /// The body, with its first frame made already, when the list is longer.
    pub fn sized(mut self) -> Result<(Pieces, usize), Box<(Pieces, Self)>> {
        let first = self.next_frame().unwrap_or_default();
        if self.tail.is_none() && first.len() <= SIZED_LEN_MAX {
            Ok((first, self.items))
        } else {
            Err(Box::new((first, self)))
        }
    }
}

/// A [`ListBody`] with its first frame made ahead.
#[derive(Debug)]
pub struct StreamedList {
    first: Option<Pieces>,
    rest: ListBody,
}

impl StreamedList {
    /// Items sent so far.
    #[must_use]
    pub fn items(&self) -> usize {
        self.rest.items
    }
}

impl From<Box<(Pieces, ListBody)>> for StreamedList {
    fn from(streamed: Box<(Pieces, ListBody)>) -> Self {
        let (first, rest) = *streamed;
        Self {
            first: Some(first),
            rest,
        }
    }
}

impl Body for StreamedList {
    type Data = Pieces;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        let next = self.first.take().or_else(|| self.rest.next_frame());
        Poll::Ready(next.map(|pieces| Ok(Frame::data(pieces))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.tail.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests;
