//! A list as one gzip member: envelope as it is, items in blocks, of which those of whole chunks are made once for all.
//!
//! Per client it holds the place in the snapshot and one frame. Compressing is [`BlockCompressor`]'s.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::segment::PageSegment;
use super::step::{Budget, in_turn};
use super::{FRAME_LEN, FRAME_SLICES, ItemFormat, ListBody, ListPhase};
use crate::cache::DeflateBlock;
use crate::protocol::BufList;
use crate::resource::Object;
use crate::serve::gzip::{BlockCompressor, CompressError, Encoder, GzipMember};

/// How the blocks of a list came about, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Made for this list.
    pub made: usize,
    /// Found, or made meanwhile for another list.
    pub shared: usize,
}

/// Streams a list compressed.
#[derive(Debug)]
pub struct CompressedList {
    list: ListBody,
    maker: BlockCompressor,
    /// `None` once its trailer has left.
    member: Option<GzipMember>,
    waiting: Option<PendingBlock>,
    counts: BlockCounts,
}

/// A block that is not there yet, and whether it was made for us.
struct PendingBlock(Pin<Box<dyn Future<Output = BlockResult> + Send>>);

/// A block, whether it was made for this list, and what of its run does not stand in it.
type BlockResult = Result<(DeflateBlock, bool, Option<SegmentRest>), CompressError>;

/// Bytes of a block that is made for one list, about: more than a run has, as long as its objects are not indented.
const BLOCK_LEN: usize = 1 << 20;

/// What of a run is not compressed yet. Indented, objects can be thousands of times as long as they are in memory, and whoever
/// compresses holds up others.
struct SegmentRest {
    objects: std::vec::IntoIter<Object>,
    /// Of the object that was begun.
    parts: Box<dyn Iterator<Item = Bytes> + Send>,
    is_begun: bool,
}

impl SegmentRest {
    fn new(objects: Vec<Object>) -> Self {
        Self {
            objects: objects.into_iter(),
            parts: Box::new(std::iter::empty()),
            is_begun: false,
        }
    }

    /// Adds items, with what stands between them, until it is enough for a block; whether there may be more.
    fn write(
        &mut self,
        form: ItemFormat,
        between: &[u8],
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
            if std::mem::replace(&mut self.is_begun, true) {
                encoder.write(between);
            }
            self.parts = Box::new(form.parts(&object).map_err(|_| CompressError)?);
        }
        Ok(true)
    }
}

impl fmt::Debug for PendingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// Whether more than a number of bytes of a list are still to come, which is found out in steps. Looks at so many only.
#[derive(Debug)]
pub struct LengthCheck {
    ahead: ListBody,
    seen: usize,
    len: usize,
}

impl ListBody {
    /// Begins to find out whether more than `len` bytes are still to come.
    #[must_use]
    pub fn length_check(&self, len: usize) -> LengthCheck {
        LengthCheck {
            ahead: self.clone(),
            seen: self.envelope.head.len(),
            len,
        }
    }
}

impl LengthCheck {
    /// Goes on a little.
    pub fn step(&mut self) -> Poll<bool> {
        let mut budget = Budget::default();
        while self.seen <= self.len {
            if budget.is_spent() {
                return Poll::Pending;
            }
            match ready!(self.ahead.next_run(&mut budget)) {
                Some(run) => self.add(&run, &mut budget),
                None => return Poll::Ready(self.seen + self.ahead.tail().len() > self.len),
            }
        }
        Poll::Ready(true)
    }

    /// Adds a run's bytes, or the first of them if they are enough.
    fn add(&mut self, run: &PageSegment, budget: &mut Budget) {
        let ahead = &mut self.ahead;
        if let PageSegment::Chunk(chunk, kept) = run
            && let Some(block) = chunk.block(*kept)
        {
            budget.reuse();
            let block_len = usize::try_from(block.len).unwrap_or(usize::MAX);
            self.seen = self.seen.saturating_add(ahead.before_next().len());
            self.seen = self.seen.saturating_add(block_len);
            ahead.items += chunk.objects().len();
            return;
        }
        for object in run.objects() {
            budget.write(object);
            self.seen += ahead.before_next().len();
            ahead.items += 1;
            for part in ahead.form.parts(object).into_iter().flatten() {
                self.seen += part.len();
                if self.seen > self.len {
                    return;
                }
            }
        }
    }
}

impl CompressedList {
    /// Compresses what `list` would send, with blocks of `maker`.
    #[must_use]
    pub fn new(list: ListBody, maker: BlockCompressor) -> Self {
        Self {
            list,
            maker,
            member: Some(GzipMember::default()),
            waiting: None,
            counts: BlockCounts::default(),
        }
    }

    /// Items sent so far.
    #[must_use]
    pub fn items(&self) -> usize {
        self.list.items
    }

    /// Blocks sent so far.
    #[must_use]
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }

    /// Adds to `pieces` until they are a frame, a block must be waited for, others must have their turn, or the list is complete.
    fn fill(
        &mut self,
        context: &mut Context<'_>,
        pieces: &mut BufList,
    ) -> Result<(), CompressError> {
        let mut budget = Budget::default();
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            if let Some(waiting) = &mut self.waiting {
                let Poll::Ready(made) = waiting.0.as_mut().poll(context) else {
                    return Ok(());
                };
                self.waiting = None;
                let (block, is_ours, rest) = made?;
                if block.len > 0 {
                    self.push_block(&block, is_ours, pieces);
                }
                self.waiting = rest.map(|rest| self.compress(rest, BLOCK_LEN));
            } else if !self.go_on(pieces, &mut budget) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What can be sent at once; false if that is nothing.
    fn go_on(&mut self, pieces: &mut BufList, budget: &mut Budget) -> bool {
        match self.list.place {
            ListPhase::Head => {
                pieces.push(GzipMember::header());
                let head = self.list.envelope.head.clone();
                self.push_stored(&head, pieces);
                self.list.place = ListPhase::Items;
            }
            ListPhase::Items => match self.list.next_run(budget) {
                Poll::Pending => return false,
                Poll::Ready(Some(run)) => {
                    self.push_stored(&self.list.before_next(), pieces);
                    self.list.items += run.objects().len();
                    self.push_run(run, pieces);
                }
                Poll::Ready(None) => {
                    let tail = self.list.tail();
                    self.push_stored(&tail, pieces);
                    self.list.place = ListPhase::End;
                    let member = self.member.take();
                    member.into_iter().for_each(|it| pieces.push(it.trailer()));
                }
            },
            ListPhase::End => return false,
        }
        true
    }

    fn push_stored(&mut self, bytes: &[u8], pieces: &mut BufList) {
        if let Some(member) = self.member.as_mut().filter(|_| !bytes.is_empty()) {
            pieces.push(member.stored(bytes));
        }
    }

    fn push_block(&mut self, block: &DeflateBlock, is_ours: bool, pieces: &mut BufList) {
        if is_ours {
            self.counts.made += 1;
        } else {
            self.counts.shared += 1;
        }
        let member = self.member.as_mut();
        member
            .into_iter()
            .for_each(|it| pieces.push(it.block(block)));
    }

    fn push_run(&mut self, run: PageSegment, pieces: &mut BufList) {
        self.waiting = Some(match run {
            PageSegment::Chunk(chunk, kept) => {
                if let Some(block) = chunk.block(kept) {
                    return self.push_block(block, false, pieces);
                }
                let (form, between) = (self.list.form, self.list.envelope.between.clone());
                let encode = move |objects: &[_], encoder: &mut Encoder| {
                    write_items(form, &between, objects, encoder)
                };
                let made = self.maker.clone().shared(chunk, kept, encode);
                PendingBlock(Box::pin(async move {
                    let (block, is_ours) = made.await?;
                    Ok((block, is_ours, None))
                }))
            }
            PageSegment::Objects(objects, len) => self.compress(SegmentRest::new(objects), len),
        });
    }

    /// Makes one block of `rest`, of which about `len` bytes are expected.
    fn compress(&self, mut rest: SegmentRest, len: usize) -> PendingBlock {
        let (form, between) = (self.list.form, self.list.envelope.between.clone());
        let encode = move |encoder: &mut Encoder| {
            let more = rest.write(form, &between, encoder)?;
            Ok(more.then_some(rest))
        };
        let made = self.maker.clone().once(len, encode);
        PendingBlock(Box::pin(async move {
            let (block, rest) = made.await?;
            Ok((block, true, rest))
        }))
    }
}

/// Items with what stands between them; what stands before the first is for the list to say.
fn write_items(
    form: ItemFormat,
    between: &[u8],
    objects: &[Object],
    encoder: &mut Encoder,
) -> Result<(), CompressError> {
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            encoder.write(between);
        }
        let parts = form.parts(object).map_err(|_| CompressError)?;
        parts.for_each(|part| encoder.write(&part));
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
        let mut pieces = BufList::default();
        if let Err(error) = self.fill(context, &mut pieces) {
            self.list.place = ListPhase::End;
            return Poll::Ready(Some(Err(error)));
        }
        match (pieces.is_empty(), &self.waiting) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(pieces)))),
            (true, Some(_)) => Poll::Pending,
            (true, None) if self.list.place == ListPhase::End => Poll::Ready(None),
            (true, None) => in_turn(Poll::Pending, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.list.place == ListPhase::End && self.waiting.is_none()
    }
}

#[cfg(test)]
mod tests;
