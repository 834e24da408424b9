//! Lists from a snapshot: which objects are on the page, and the body that streams them. Pure but for the body trait.

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
use crate::view::selector::Selector;
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

/// Bytes of one body frame, about: what a socket buffer takes at once.
const FRAME_LEN: usize = 128 << 10;
/// Slices of one body frame: `writev` takes 64 from hyper, chunk head and end among them.
const FRAME_SLICES: usize = 60;
/// Answers up to this length carry Content-Length, as Go's server does it (docs/PROTOCOL.md §3.8).
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
#[derive(Clone, Debug)]
pub struct SnapshotPage {
    meta: ListMeta,
    items: PageItems,
}

#[derive(Clone, Debug)]
enum PageItems {
    /// Everything from here on that matches, found while it is sent.
    Rest {
        snapshot: Arc<Snapshot>,
        walk: Walk,
        selector: Selector,
    },
    /// The items of a limited page, last one first.
    Found(Vec<Object>),
}

impl SnapshotPage {
    /// Looks at the next object in scope; `Some(None)` if it is not on the page.
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

/// How items are written.
#[derive(Clone, Copy, Debug)]
struct ItemFormat {
    layout: Layout,
    /// How the cache's objects are written.
    source: Encoding,
    /// What is done to the items, if anything.
    cut: Option<Projection>,
    indented: bool,
}

impl ItemFormat {
    /// Items of `kind` as `rendition` has them, not indented.
    fn new(kind: &ResourceKind, rendition: ObjectFormat) -> Self {
        Self {
            layout: kind.layout,
            source: kind.encoding,
            cut: Projection::new(rendition, kind),
            indented: false,
        }
    }

    /// How items are written.
    fn encoding(self) -> Encoding {
        self.cut.map_or(self.source, |cut| cut.rendition().encoding)
    }

    /// Under what name lengths of items are kept.
    fn length_form(self) -> LengthForm {
        let Some(rendition) = self.cut.map(|cut| cut.rendition()) else {
            return LengthForm::Whole;
        };
        match (rendition.form, rendition.managed_fields) {
            (ObjectPart::Whole, ManagedFields::Kept) => LengthForm::Whole,
            (ObjectPart::Whole, ManagedFields::Dropped) => LengthForm::WithoutManagedFields,
            (ObjectPart::Metadata(_), ManagedFields::Kept) => LengthForm::Metadata,
            (ObjectPart::Metadata(_), ManagedFields::Dropped) => {
                LengthForm::MetadataWithoutManagedFields
            }
        }
    }

    /// Length of one item that is not indented.
    fn item_len(self, object: &Object) -> Result<usize, ProjectionError> {
        match self.cut {
            None => Ok(object.list_item_bytes(self.layout).len()),
            Some(cut) => Ok(cut.list_item(object)?.len()),
        }
    }

    /// One item, in JSON without its opening brace; not indented yet.
    fn item(self, object: &Object) -> Result<Bytes, ProjectionError> {
        match self.cut {
            None => Ok(object.list_item(self.layout)),
            Some(cut) => cut.list_item(object),
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

    /// Whether items are sent as they are in memory.
    fn is_as_kept(self) -> bool {
        self.cut.is_none() && !self.indented
    }

    /// Under what name blocks of this form are kept. Of rare forms none are.
    fn block_format(self) -> Option<BlockFormat> {
        let metadata = |encoding| ObjectFormat {
            encoding,
            form: ObjectPart::Metadata(MetaVersion::V1),
            managed_fields: ManagedFields::Kept,
        };
        match self.cut {
            _ if self.indented => None,
            None => Some(BlockFormat::Whole),
            Some(cut) if cut.rendition() == metadata(self.source) => Some(BlockFormat::Metadata),
            // A resource has a cache for each encoding that it has; metadata alone is translated.
            Some(cut) => {
                (cut.rendition() == metadata(Encoding::Protobuf)).then_some(BlockFormat::Translated)
            }
        }
    }
}

/// Streams a page: envelope, items as they are in memory or cut out of it, envelope.
#[derive(Clone, Debug)]
pub struct ListBody {
    page: SnapshotPage,
    form: ItemFormat,
    envelope: Envelope,
    place: ListPhase,
    /// Why it cannot go on: an object that cannot be made fit for it.
    broken: Option<ProjectionError>,
    /// Items sent, for metrics.
    items: usize,
    /// What of the next frame is made.
    partial_frame: BufList,
    /// What of the next run is found, where the list is compressed.
    partial_run: PartialSegment,
    /// The rest of an item that is indented.
    begun_item: Option<IndentedItem>,
    /// A chunk that is sent as it is, or cut as a whole, and the first object of it that is not sent yet.
    begun: Option<(Arc<Chunk>, usize)>,
    /// How chunks are cut as a whole, where they can be.
    spliced: Option<ItemSeparators>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPhase {
    Head,
    Items,
    End,
}

impl ListBody {
    /// The body of a page of this kind of object, whose items are so long together, as [`PageMeasurement`] says.
    #[must_use]
    pub fn new(
        page: SnapshotPage,
        kind: &ResourceKind,
        rendition: ObjectFormat,
        items_len: usize,
    ) -> Self {
        let form = ItemFormat::new(kind, rendition);
        let envelope = Envelope::new(&page.meta, kind, rendition, items_len);
        let spliced = ItemSeparators::new(form.cut, &envelope);
        Self {
            page,
            form,
            envelope,
            place: ListPhase::Head,
            broken: None,
            items: 0,
            partial_frame: BufList::default(),
            partial_run: PartialSegment::default(),
            begun_item: None,
            begun: None,
            spliced,
        }
    }

    /// The same list with two blanks before what stands inside something, for people (docs/PROTOCOL.md §5.6). For JSON only.
    #[must_use]
    pub fn indented(mut self) -> Self {
        self.form.indented = true;
        self.spliced = None;
        self.envelope = self.envelope.indented();
        self
    }

    /// Goes on a little with the next frame: it is there when it is whole, `None` when the list is complete.
    pub fn step(&mut self) -> Poll<Option<BufList>> {
        match self.place {
            ListPhase::Head => self.partial_frame.push(self.envelope.head.clone()),
            ListPhase::Items => {}
            ListPhase::End => return Poll::Ready(None),
        }
        self.place = ListPhase::Items;
        let mut pieces = std::mem::take(&mut self.partial_frame);
        let mut budget = Budget::default();
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            if budget.is_spent() {
                self.partial_frame = pieces;
                return Poll::Pending;
            }
            match self.push_next(&mut pieces, &mut budget) {
                Ok(true) => continue,
                Ok(false) => pieces.push(self.tail()),
                // A list without its end is no list; one that left an object out would say that it is gone.
                Err(error) => self.broken = Some(error),
            }
            self.place = ListPhase::End;
            break;
        }
        Poll::Ready(Some(pieces))
    }

    /// Looks at what is next, a chunk or one object, and adds what of it is on the page; false if there is no more.
    fn push_next(
        &mut self,
        pieces: &mut BufList,
        budget: &mut Budget,
    ) -> Result<bool, ProjectionError> {
        if let Some(part) = self.begun_item.as_mut().and_then(Iterator::next) {
            pieces.push(part);
            return Ok(true);
        }
        if self.push_chunk(pieces, budget)? {
            return Ok(true);
        }
        budget.look();
        let object = match self.page.look() {
            Some(Some(object)) => object,
            Some(None) => return Ok(true),
            None => return Ok(false),
        };
        if self.form.cut.is_some() {
            budget.write(&object);
        }
        let item = self.form.item(&object)?;
        pieces.push(self.before_next());
        self.items += 1;
        if self.form.indented {
            self.begun_item = Some(IndentedItem::new(item));
        } else {
            pieces.push(item);
        }
        Ok(true)
    }

    /// Adds the next items as they lie in their chunk; false if the next one is to be looked at by itself.
    ///
    /// # Errors
    /// One of them cannot be cut.
    fn push_chunk(
        &mut self,
        pieces: &mut BufList,
        budget: &mut Budget,
    ) -> Result<bool, ProjectionError> {
        if !self.form.is_as_kept() && self.spliced.is_none() {
            return Ok(false);
        }
        let next = self.begun.take();
        let next = next.or_else(|| Some((self.page.next_whole_chunk()?, 0)));
        let Some((chunk, start)) = next else {
            return Ok(false);
        };
        let is_begun = self.items > 0;
        let count = if let Some(spliced) = &self.spliced {
            if !chunk.has_metadata() {
                budget.read(&chunk);
            }
            let room = FRAME_LEN.saturating_sub(pieces.len());
            let items = spliced.items(&chunk, start, (is_begun, room));
            let (items, count) = items.ok_or(ProjectionError::NoMetadata)?;
            pieces.push(items);
            count
        } else {
            if !is_begun {
                pieces.push(self.envelope.opening.clone());
            }
            let stretch = ItemRange {
                chunk: &chunk,
                layout: self.form.layout,
                start,
                between: &self.envelope.between,
                is_begun,
            };
            pieces.push_items(stretch, FRAME_LEN)
        };
        self.items += count;
        let next = start + count;
        self.begun = (next < chunk.objects().len()).then_some((chunk, next));
        Ok(true)
    }

    /// What stands before the next item.
    fn before_next(&self) -> Bytes {
        match self.items {
            0 => self.envelope.opening.clone(),
            _ => self.envelope.between.clone(),
        }
    }

    /// What stands after the items that were sent.
    fn tail(&self) -> Bytes {
        match self.items {
            0 => self.envelope.empty_tail.clone(),
            _ => self.envelope.tail.clone(),
        }
    }

    /// The whole list in one piece, with the number of its items, if its first frame is that and short enough to carry its length;
    /// else the body to stream.
    ///
    /// # Errors
    /// The body, with its first frame, when the list is longer.
    pub fn sized(self, first: BufList) -> Result<(BufList, usize), Box<(BufList, Self)>> {
        if self.place == ListPhase::End && self.broken.is_none() && first.len() <= SIZED_LEN_MAX {
            Ok((first, self.items))
        } else {
            Err(Box::new((first, self)))
        }
    }
}

/// A [`ListBody`] with its first frame made ahead.
#[derive(Debug)]
pub struct StreamedList {
    first: Option<BufList>,
    rest: ListBody,
}

impl StreamedList {
    /// Items sent so far.
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
            None => ready!(step::in_turn(self.rest.step(), context)),
        };
        let next = next.map(|pieces| Ok(Frame::data(pieces)));
        Poll::Ready(next.or_else(|| self.rest.broken.take().map(Err)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.place == ListPhase::End && self.rest.broken.is_none()
    }
}

#[cfg(test)]
mod tests;
