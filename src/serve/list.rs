//! Lists from a snapshot: which objects are on the page, and the body that streams them. Pure apart from implementing the body
//! trait.
//!
//! [`PageSearch`] finds the page, [`PageMeasurement`] its length, which protobuf needs, and [`ListBody`] writes it. All three work
//! in steps of bounded cost, so that a long list does not block other requests.

mod compressed;
mod envelope;
mod measure;
mod search;
mod segment;
mod separators;
mod step;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::cache::{BlockFormat, Chunk, LengthForm, Snapshot};
use crate::protocol::BufList;
use crate::protocol::ItemRange;
use crate::resource::{Encoding, Layout, Object, ResourceKind};
use crate::selector::Selector;
use crate::view::walk::Walk;
use crate::view::{
    ManagedFields, MetaVersion, ObjectFormat, ObjectPart, Projection, ProjectionError,
};
pub use compressed::{BlockCounts, CompressedList, LengthCheck};
use envelope::{Envelope, IndentedItem, ListMeta};
pub use measure::PageMeasurement;
pub use search::PageSearch;
use segment::PartialSegment;
use separators::ItemSeparators;
use step::Budget;

/// Approximate length of one body frame: what a socket buffer takes at once.
const FRAME_LEN: usize = 128 << 10;
/// Maximum number of slices in a body frame: hyper passes 64 to one `writev`, including the head and the end of the HTTP chunk.
const FRAME_SLICES: usize = 60;
/// Responses up to this length have a Content-Length, as with Go's server (docs/PROTOCOL.md §3.8).
const SIZED_LEN_MAX: usize = 2048;

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

/// One page: the metadata of its envelope, and its items.
#[derive(Clone, Debug)]
pub struct SnapshotPage {
    meta: ListMeta,
    items: PageItems,
}

#[derive(Clone, Debug)]
enum PageItems {
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
    fn look(&mut self) -> Option<Option<Object>> {
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
}

/// The format of items in a list.
#[derive(Clone, Copy, Debug)]
struct ItemFormat {
    layout: Layout,
    /// The encoding of the objects in the cache.
    source: Encoding,
    /// The projection that is applied to the items, if any.
    projection: Option<Projection>,
    indented: bool,
}

impl ItemFormat {
    /// The items of `kind` in this format, not indented.
    fn new(kind: &ResourceKind, format: ObjectFormat) -> Self {
        Self {
            layout: kind.layout,
            source: kind.encoding,
            projection: Projection::new(format, kind),
            indented: false,
        }
    }

    /// The encoding in which items are written.
    fn encoding(self) -> Encoding {
        self.projection
            .map_or(self.source, |projection| projection.rendition().encoding)
    }

    /// The form under which the lengths of items are kept with their chunk.
    fn length_form(self) -> LengthForm {
        let Some(format) = self.projection.map(|projection| projection.rendition()) else {
            return LengthForm::Whole;
        };
        match (format.form, format.managed_fields) {
            (ObjectPart::Whole, ManagedFields::Kept) => LengthForm::Whole,
            (ObjectPart::Whole, ManagedFields::Dropped) => LengthForm::WithoutManagedFields,
            (ObjectPart::Metadata(_), ManagedFields::Kept) => LengthForm::Metadata,
            (ObjectPart::Metadata(_), ManagedFields::Dropped) => {
                LengthForm::MetadataWithoutManagedFields
            }
        }
    }

    /// Length of one item, without indentation.
    fn item_len(self, object: &Object) -> Result<usize, ProjectionError> {
        match self.projection {
            None => Ok(object.list_item_bytes(self.layout).len()),
            Some(projection) => Ok(projection.list_item(object)?.len()),
        }
    }

    /// One item; in JSON without its opening brace. Not indented.
    fn item(self, object: &Object) -> Result<Bytes, ProjectionError> {
        match self.projection {
            None => Ok(object.list_item(self.layout)),
            Some(projection) => projection.list_item(object),
        }
    }

    /// One item as it is sent, in parts of bounded length.
    fn parts(
        self,
        object: &Object,
    ) -> Result<impl Iterator<Item = Bytes> + use<>, ProjectionError> {
        let item = self.item(object)?;
        let (plain, indented) = match self.indented {
            true => (None, Some(IndentedItem::new(item))),
            false => (Some(item), None),
        };
        Ok(plain.into_iter().chain(indented.into_iter().flatten()))
    }

    /// Whether items are sent exactly as they are in memory.
    fn is_as_kept(self) -> bool {
        self.projection.is_none() && !self.indented
    }

    /// The format under which compressed blocks are kept with their chunk; `None` for rare formats, which are not kept.
    fn block_format(self) -> Option<BlockFormat> {
        let metadata = |encoding| ObjectFormat {
            encoding,
            form: ObjectPart::Metadata(MetaVersion::V1),
            managed_fields: ManagedFields::Kept,
        };
        match self.projection {
            _ if self.indented => None,
            None => Some(BlockFormat::Whole),
            Some(projection) if projection.rendition() == metadata(self.source) => {
                Some(BlockFormat::Metadata)
            }
            // A resource has one cache for each encoding, so only metadata is ever converted to another one.
            Some(projection) => (projection.rendition() == metadata(Encoding::Protobuf))
                .then_some(BlockFormat::Translated),
        }
    }
}

/// Streams a page: the envelope's head, the items as they are in memory or projected from it, and the envelope's tail.
#[derive(Clone, Debug)]
pub struct ListBody {
    page: SnapshotPage,
    form: ItemFormat,
    envelope: Envelope,
    phase: ListPhase,
    /// The error that ended the list early: an object that cannot be written in the format.
    error: Option<ProjectionError>,
    /// Number of items sent, for metrics.
    items: usize,
    /// The next frame, as far as it is complete.
    partial_frame: BufList,
    /// The next segment, as far as it is found, if the list is compressed.
    partial_segment: PartialSegment,
    /// The rest of an item that is being indented.
    partial_item: Option<IndentedItem>,
    /// A chunk that is sent as it is or projected as a whole, and the index of its first object that is not sent yet.
    partial_chunk: Option<(Arc<Chunk>, usize)>,
    /// Set if chunks can be projected as a whole.
    separators: Option<ItemSeparators>,
}

/// The part of the list that is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPhase {
    Head,
    Items,
    End,
}

impl ListBody {
    /// The body of a page; `items_len` is the length of its items as [`PageMeasurement`] returns it.
    #[must_use]
    pub fn new(
        page: SnapshotPage,
        kind: &ResourceKind,
        format: ObjectFormat,
        items_len: usize,
    ) -> Self {
        let form = ItemFormat::new(kind, format);
        let envelope = Envelope::new(&page.meta, kind, format, items_len);
        let separators = ItemSeparators::new(form.projection, &envelope);
        Self {
            page,
            form,
            envelope,
            phase: ListPhase::Head,
            error: None,
            items: 0,
            partial_frame: BufList::default(),
            partial_segment: PartialSegment::default(),
            partial_item: None,
            partial_chunk: None,
            separators,
        }
    }

    /// Indents the list by two spaces per level (docs/PROTOCOL.md §5.6). For JSON only.
    #[must_use]
    pub fn indented(mut self) -> Self {
        self.form.indented = true;
        self.separators = None;
        self.envelope = self.envelope.indented();
        self
    }

    /// Does one step of the next frame. Ready once the frame is complete, with `None` at the end of the list.
    pub fn step(&mut self) -> Poll<Option<BufList>> {
        match self.phase {
            ListPhase::Head => self.partial_frame.push(self.envelope.head.clone()),
            ListPhase::Items => {}
            ListPhase::End => return Poll::Ready(None),
        }
        self.phase = ListPhase::Items;
        let mut frame = std::mem::take(&mut self.partial_frame);
        let mut budget = Budget::default();
        while frame.len() < FRAME_LEN && frame.count() < FRAME_SLICES {
            if budget.is_spent() {
                self.partial_frame = frame;
                return Poll::Pending;
            }
            match self.push_next(&mut frame, &mut budget) {
                Ok(true) => continue,
                Ok(false) => frame.push(self.tail()),
                // Break the list off without its tail. A list that left the object out would tell the client that it is deleted.
                Err(error) => self.error = Some(error),
            }
            self.phase = ListPhase::End;
            break;
        }
        Poll::Ready(Some(frame))
    }

    /// Processes the next chunk or object and appends its items that are on the page; false at the end.
    fn push_next(
        &mut self,
        frame: &mut BufList,
        budget: &mut Budget,
    ) -> Result<bool, ProjectionError> {
        if let Some(part) = self.partial_item.as_mut().and_then(Iterator::next) {
            frame.push(part);
            return Ok(true);
        }
        if self.push_chunk(frame, budget)? {
            return Ok(true);
        }
        budget.look();
        let object = match self.page.look() {
            Some(Some(object)) => object,
            Some(None) => return Ok(true),
            None => return Ok(false),
        };
        if self.form.projection.is_some() {
            budget.write(&object);
        }
        let item = self.form.item(&object)?;
        frame.push(self.before_next());
        self.items += 1;
        if self.form.indented {
            self.partial_item = Some(IndentedItem::new(item));
        } else {
            frame.push(item);
        }
        Ok(true)
    }

    /// Appends the next items of a chunk as a whole; false if the next object has to be processed by itself.
    ///
    /// # Errors
    /// An object cannot be projected.
    fn push_chunk(
        &mut self,
        frame: &mut BufList,
        budget: &mut Budget,
    ) -> Result<bool, ProjectionError> {
        if !self.form.is_as_kept() && self.separators.is_none() {
            return Ok(false);
        }
        let next = self.partial_chunk.take();
        let next = next.or_else(|| Some((self.page.next_whole_chunk()?, 0)));
        let Some((chunk, start)) = next else {
            return Ok(false);
        };
        let has_items = self.items > 0;
        let count = if let Some(separators) = &self.separators {
            if !chunk.has_metadata() {
                budget.read(&chunk);
            }
            let room = FRAME_LEN.saturating_sub(frame.len());
            let items = separators.items(&chunk, start, (has_items, room));
            let (items, count) = items.ok_or(ProjectionError::NoMetadata)?;
            frame.push(items);
            count
        } else {
            if !has_items {
                frame.push(self.envelope.opening.clone());
            }
            let range = ItemRange {
                chunk: &chunk,
                layout: self.form.layout,
                start,
                separator: &self.envelope.separator,
                has_items,
            };
            frame.push_items(range, FRAME_LEN)
        };
        self.items += count;
        let next = start + count;
        self.partial_chunk = (next < chunk.objects().len()).then_some((chunk, next));
        Ok(true)
    }

    /// The bytes before the next item.
    fn before_next(&self) -> Bytes {
        match self.items {
            0 => self.envelope.opening.clone(),
            _ => self.envelope.separator.clone(),
        }
    }

    /// The bytes after the last item.
    fn tail(&self) -> Bytes {
        match self.items {
            0 => self.envelope.empty_tail.clone(),
            _ => self.envelope.tail.clone(),
        }
    }

    /// The complete list and its number of items, if `first` is all of it and short enough to be sent with a Content-Length.
    ///
    /// # Errors
    /// The body and its first frame, if the list has to be streamed.
    pub fn sized(self, first: BufList) -> Result<(BufList, usize), Box<(BufList, Self)>> {
        if self.phase == ListPhase::End && self.error.is_none() && first.len() <= SIZED_LEN_MAX {
            Ok((first, self.items))
        } else {
            Err(Box::new((first, self)))
        }
    }
}

/// A [`ListBody`] whose first frame is already made.
#[derive(Debug)]
pub struct StreamedList {
    first: Option<BufList>,
    rest: ListBody,
}

impl StreamedList {
    /// Number of items sent so far.
    #[must_use]
    pub fn items(&self) -> usize {
        self.rest.items
    }
}

impl From<Box<(BufList, ListBody)>> for StreamedList {
    fn from(streamed: Box<(BufList, ListBody)>) -> Self {
        let (first, rest) = *streamed;
        Self {
            first: Some(first),
            rest,
        }
    }
}

impl Body for StreamedList {
    type Data = BufList;
    type Error = ProjectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, ProjectionError>>> {
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(step::wake_if_pending(self.rest.step(), context)),
        };
        let next = next.map(|frame| Ok(Frame::data(frame)));
        Poll::Ready(next.or_else(|| self.rest.error.take().map(Err)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.phase == ListPhase::End && self.rest.error.is_none()
    }
}

#[cfg(test)]
mod tests;
