//! A list as one gzip member: the envelope uncompressed, the items in deflate blocks. Blocks of whole chunks are compressed once
//! for all clients.
//!
//! A client's body holds its position in the snapshot and one frame. [`BlockCompressor`] compresses the blocks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::item_format::ItemFormat;
use super::limits::{FRAME_LEN, FRAME_SLICES};
use super::segment::PageSegment;
use super::step::{Budget, wake_if_pending};
use super::{ListBody, ListPhase};
use crate::cache::DeflateBlock;
use crate::protocol::BufList;
use crate::protocol::gzip::GzipMember;
use crate::resource::Object;
use crate::serve::gzip::{BlockCompressor, CompressError, Encoder};

/// How many blocks of a list were compressed for it, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Blocks that were compressed for this list.
    pub made: usize,
    /// Blocks that were kept already, or were compressed for another list at the same time.
    pub shared: usize,
}

/// Streams a compressed list.
#[derive(Debug)]
pub struct CompressedList {
    list: ListBody,
    compressor: BlockCompressor,
    /// `None` once the trailer is written.
    member: Option<GzipMember>,
    pending_block: Option<PendingBlock>,
    counts: BlockCounts,
}

/// A block that is being compressed.
struct PendingBlock(Pin<Box<dyn Future<Output = BlockResult> + Send>>);

/// The block, whether it was compressed for this list, and the rest of the segment that is not in it.
type BlockResult = Result<(DeflateBlock, bool, Option<SegmentRest>), CompressError>;

/// Approximate input length of a block that is made for one list: more than a segment has, unless its objects are indented.
const BLOCK_LEN: usize = 1 << 20;

/// The rest of a segment that is not compressed yet. Indentation can make objects thousands of times longer than they are in
/// memory, and a long block would keep the compressor from other clients.
struct SegmentRest {
    objects: std::vec::IntoIter<Object>,
    /// The remaining parts of the current object.
    parts: Box<dyn Iterator<Item = Bytes> + Send>,
    has_items: bool,
}

impl SegmentRest {
    fn new(objects: Vec<Object>) -> Self {
        Self {
            objects: objects.into_iter(),
            parts: Box::new(std::iter::empty()),
            has_items: false,
        }
    }

    /// Writes items, with separators, until there is enough for a block; returns whether there may be more.
    fn write(
        &mut self,
        form: ItemFormat,
        separator: &[u8],
        encoder: &mut Encoder,
    ) -> Result<bool, CompressError> {
        while encoder.len() < BLOCK_LEN as u64 {
            if let Some(part) = self.parts.next() {
                encoder.write(&part);
                continue;
            }
            let Some(object) = self.objects.next() else {
                return Ok(false);
            };
            if std::mem::replace(&mut self.has_items, true) {
                encoder.write(separator);
            }
            self.parts = Box::new(form.parts(&object).map_err(|_| CompressError)?);
        }
        Ok(true)
    }
}

impl fmt::Debug for PendingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingBlock")
    }
}

/// Determines in steps whether the rest of a list is longer than a limit. Stops as soon as the limit is exceeded.
#[derive(Debug)]
pub struct LengthCheck {
    list: ListBody,
    seen: usize,
    len: usize,
}

impl ListBody {
    /// Does one step of the next segment.
    fn next_segment(&mut self, budget: &mut Budget) -> Poll<Option<PageSegment>> {
        self.partial_segment
            .next(&mut self.page, self.form.block_format(), budget)
    }

    /// Starts to determine whether the rest of the list is longer than `len` bytes.
    #[must_use]
    pub fn length_check(&self, len: usize) -> LengthCheck {
        LengthCheck {
            list: self.clone(),
            seen: self.envelope.head.len(),
            len,
        }
    }
}

impl LengthCheck {
    /// Does one step; ready once the result is known.
    pub fn step(&mut self) -> Poll<bool> {
        let mut budget = Budget::default();
        while self.seen <= self.len {
            if budget.is_spent() {
                return Poll::Pending;
            }
            match ready!(self.list.next_segment(&mut budget)) {
                Some(segment) => self.add(&segment, &mut budget),
                None => return Poll::Ready(self.seen + self.list.tail().len() > self.len),
            }
        }
        Poll::Ready(true)
    }

    /// Adds the length of a segment, or of its first objects if they exceed the limit.
    fn add(&mut self, segment: &PageSegment, budget: &mut Budget) {
        let list = &mut self.list;
        if let PageSegment::Chunk(chunk, format) = segment
            && let Some(block) = chunk.block(*format)
        {
            budget.reuse();
            let block_len = usize::try_from(block.len).unwrap_or(usize::MAX);
            self.seen = self.seen.saturating_add(list.before_next().len());
            self.seen = self.seen.saturating_add(block_len);
            list.items += chunk.objects().len();
            return;
        }
        for object in segment.objects() {
            budget.write(object);
            self.seen += list.before_next().len();
            list.items += 1;
            for part in list.form.parts(object).into_iter().flatten() {
                self.seen += part.len();
                if self.seen > self.len {
                    return;
                }
            }
        }
    }
}

impl CompressedList {
    /// The compressed form of `list`, with blocks of `compressor`.
    #[must_use]
    pub fn new(list: ListBody, compressor: BlockCompressor) -> Self {
        Self {
            list,
            compressor,
            member: Some(GzipMember::default()),
            pending_block: None,
            counts: BlockCounts::default(),
        }
    }

    /// Number of items sent so far.
    #[must_use]
    pub fn items(&self) -> usize {
        self.list.items
    }

    /// Number of blocks sent so far.
    #[must_use]
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Fills `frame` until it is full, a block has to be waited for, the step's budget is spent, or the list is complete.
    fn fill(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut BufList,
    ) -> Result<(), CompressError> {
        let mut budget = Budget::default();
        while frame.len() < FRAME_LEN && frame.count() < FRAME_SLICES {
            if let Some(pending_block) = &mut self.pending_block {
                let Poll::Ready(made) = pending_block.0.as_mut().poll(context) else {
                    return Ok(());
                };
                self.pending_block = None;
                let (block, is_new, rest) = made?;
                if block.len > 0 {
                    self.push_block(&block, is_new, frame);
                }
                self.pending_block = rest.map(|rest| self.compress(rest, BLOCK_LEN));
            } else if !self.advance(frame, &mut budget) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Appends what is available without waiting; false if there is nothing.
    fn advance(&mut self, frame: &mut BufList, budget: &mut Budget) -> bool {
        match self.list.phase {
            ListPhase::Head => {
                frame.push(GzipMember::header());
                let head = self.list.envelope.head.clone();
                self.push_stored(&head, frame);
                self.list.phase = ListPhase::Items;
            }
            ListPhase::Items => match self.list.next_segment(budget) {
                Poll::Pending => return false,
                Poll::Ready(Some(segment)) => {
                    self.push_stored(&self.list.before_next(), frame);
                    self.list.items += segment.objects().len();
                    self.push_segment(segment, frame);
                }
                Poll::Ready(None) => {
                    self.push_stored(&self.list.tail(), frame);
                    self.list.phase = ListPhase::End;
                    self.member
                        .take()
                        .into_iter()
                        .for_each(|it| frame.push(it.trailer()));
                }
            },
            ListPhase::End => return false,
        }
        true
    }

    fn push_stored(&mut self, bytes: &[u8], frame: &mut BufList) {
        if let Some(member) = self.member.as_mut().filter(|_| !bytes.is_empty()) {
            frame.push(member.stored(bytes));
        }
    }

    fn push_block(&mut self, block: &DeflateBlock, is_new: bool, frame: &mut BufList) {
        if is_new {
            self.counts.made += 1;
        } else {
            self.counts.shared += 1;
        }
        self.member
            .as_mut()
            .into_iter()
            .for_each(|it| frame.push(it.block(block)));
    }

    fn push_segment(&mut self, segment: PageSegment, frame: &mut BufList) {
        self.pending_block = Some(match segment {
            PageSegment::Chunk(chunk, format) => {
                if let Some(block) = chunk.block(format) {
                    return self.push_block(&block, false, frame);
                }
                let (form, separator) = (self.list.form, self.list.envelope.separator.clone());
                let made =
                    self.compressor
                        .clone()
                        .shared(chunk, format, move |objects, encoder| {
                            write_items(form, &separator, objects, encoder)
                        });
                PendingBlock(Box::pin(async move {
                    let (block, is_new) = made.await?;
                    Ok((block, is_new, None))
                }))
            }
            PageSegment::Objects(objects, len) => self.compress(SegmentRest::new(objects), len),
        });
    }

    /// Compresses one block of `rest`; about `len` bytes of input are expected.
    fn compress(&self, mut rest: SegmentRest, len: usize) -> PendingBlock {
        let (form, separator) = (self.list.form, self.list.envelope.separator.clone());
        let made = self.compressor.clone().once(len, move |encoder| {
            Ok(rest.write(form, &separator, encoder)?.then_some(rest))
        });
        PendingBlock(Box::pin(async move {
            let (block, rest) = made.await?;
            Ok((block, true, rest))
        }))
    }
}

/// Writes items with separators between them; what precedes the first one is written by the list.
fn write_items(
    form: ItemFormat,
    separator: &[u8],
    objects: &[Object],
    encoder: &mut Encoder,
) -> Result<(), CompressError> {
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            encoder.write(separator);
        }
        form.parts(object)
            .map_err(|_| CompressError)?
            .for_each(|part| encoder.write(&part));
    }
    Ok(())
}

impl Body for CompressedList {
    type Data = BufList;
    type Error = CompressError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, CompressError>>> {
        let mut frame = BufList::default();
        if let Err(error) = self.fill(context, &mut frame) {
            self.list.phase = ListPhase::End;
            return Poll::Ready(Some(Err(error)));
        }
        match (frame.is_empty(), &self.pending_block) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(frame)))),
            (true, Some(_)) => Poll::Pending,
            (true, None) if self.list.phase == ListPhase::End => Poll::Ready(None),
            (true, None) => wake_if_pending(Poll::Pending, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.list.phase == ListPhase::End && self.pending_block.is_none()
    }
}

#[cfg(test)]
mod tests;
