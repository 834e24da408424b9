//! Lists from a snapshot: which objects are on the page, and the body that streams them. Pure apart from implementing the body
//! trait.
//!
//! [`PageSearch`] finds the page, [`PageMeasurement`] its length, which protobuf needs, and [`ListBody`] writes it. All three work
//! in steps of bounded cost, so that a long list does not block other requests.

mod compressed;
mod envelope;
mod item_format;
mod limits;
mod measure;
mod page;
mod search;
mod segment;
mod separators;
mod step;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::cache::Chunk;
use crate::protocol::BufList;
use crate::protocol::ItemRange;
use crate::resource::ResourceKind;
use crate::view::{ObjectFormat, ProjectionError};
pub use compressed::{BlockCounts, CompressedList, LengthCheck};
use envelope::{Envelope, IndentedItem};
use item_format::ItemFormat;
use limits::{FRAME_LEN, FRAME_SLICES};
pub use measure::PageMeasurement;
pub use page::{PageRequest, SnapshotPage};
pub use search::PageSearch;
use segment::PartialSegment;
use separators::ItemSeparators;
use step::Budget;

/// Responses up to this length have a Content-Length, as with Go's server (docs/PROTOCOL.md §3.8).
const SIZED_LEN_MAX: usize = 2048;

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
    /// The next frame, as far as it is made.
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

    /// Number of items in the frames so far.
    #[must_use]
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Does one step of the next frame. Ready once the frame is complete, with `None` at the end of the list.
    pub fn step(&mut self) -> Poll<Option<BufList>> {
        match self.phase {
            ListPhase::Head => self.partial_frame.push(self.envelope.head.clone()),
            ListPhase::Items => {}
            ListPhase::End => {
                let last = std::mem::take(&mut self.partial_frame);
                return Poll::Ready(Some(last).filter(|last| !last.is_empty()));
            }
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
        let next = self
            .partial_chunk
            .take()
            .or_else(|| Some((self.page.next_whole_chunk()?, 0)));
        let Some((chunk, start)) = next else {
            return Ok(false);
        };
        let has_items = self.items > 0;
        let count = if let Some(separators) = &self.separators {
            if !chunk.has_metadata() {
                budget.read(&chunk);
            }
            let room = FRAME_LEN.saturating_sub(frame.len());
            let (items, count) = separators
                .items(&chunk, start, has_items, room)
                .ok_or(ProjectionError::NoMetadata)?;
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
    /// The body, which begins with `first`, if the list has to be streamed.
    pub fn sized(mut self, first: BufList) -> Result<(BufList, usize), Box<Self>> {
        if self.phase == ListPhase::End && self.error.is_none() && first.len() <= SIZED_LEN_MAX {
            Ok((first, self.items))
        } else {
            self.partial_frame = first;
            Err(Box::new(self))
        }
    }
}

impl Body for ListBody {
    type Data = BufList;
    type Error = ProjectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, ProjectionError>>> {
        let next =
            ready!(step::wake_if_pending(self.step(), context)).map(|frame| Ok(Frame::data(frame)));
        Poll::Ready(next.or_else(|| self.error.take().map(Err)))
    }

    fn is_end_stream(&self) -> bool {
        self.phase == ListPhase::End && self.partial_frame.is_empty() && self.error.is_none()
    }
}

#[cfg(test)]
mod tests;
