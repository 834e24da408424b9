//! A list as one gzip member: envelope as it is, items in blocks, of which those of whole chunks are made once for all.
//!
//! Per client it holds the place in the snapshot and one frame. Compressing is [`BlockMaker`]'s.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame};

use super::run::Run;
use super::{FRAME_LEN, FRAME_SLICES, ItemForm, ListBody, Place};
use crate::cache::Block;
use crate::downstream::Pieces;
use crate::downstream::gzip::{BlockMaker, Encoder, Member, NotMade};
use crate::resource::Object;

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
    maker: BlockMaker,
    /// `None` once its trailer has left.
    member: Option<Member>,
    waiting: Option<Waiting>,
    counts: BlockCounts,
}

/// A block that is not there yet, and whether it was made for us.
struct Waiting(Pin<Box<dyn Future<Output = Made> + Send>>);

/// A block, and whether it was made for this list.
type Made = Result<(Block, bool), NotMade>;

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

impl ListBody {
    /// Whether more than `len` bytes are still to come. Looks at so many only.
    #[must_use]
    pub fn is_longer_than(&self, len: usize) -> bool {
        let mut ahead = self.clone();
        let mut seen = ahead.envelope.head.len();
        while seen <= len {
            let Some(run) = ahead.page.next_run(ahead.form.kept()) else {
                return seen + ahead.tail().len() > len;
            };
            if let Run::Chunk(chunk, kept) = &run
                && let Some(block) = chunk.block(*kept)
            {
                let block_len = usize::try_from(block.len).unwrap_or(usize::MAX);
                seen = seen
                    .saturating_add(ahead.before_next().len())
                    .saturating_add(block_len);
                ahead.items += chunk.objects().len();
                continue;
            }
            for object in run.objects() {
                let before = ahead.before_next();
                ahead.items += 1;
                seen += before.len();
                for part in ahead.form.parts(object).into_iter().flatten() {
                    seen += part.len();
                    if seen > len {
                        return true;
                    }
                }
            }
        }
        true
    }
}

impl CompressedList {
    /// Compresses what `list` would send, with blocks of `maker`.
    #[must_use]
    pub fn new(list: ListBody, maker: BlockMaker) -> Self {
        Self {
            list,
            maker,
            member: Some(Member::default()),
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

    /// Adds to `pieces` until they are a frame, a block must be waited for, or the list is complete.
    fn fill(&mut self, context: &mut Context<'_>, pieces: &mut Pieces) -> Result<(), NotMade> {
        while pieces.len() < FRAME_LEN && pieces.count() < FRAME_SLICES {
            if let Some(waiting) = &mut self.waiting {
                let Poll::Ready(made) = waiting.0.as_mut().poll(context) else {
                    return Ok(());
                };
                self.waiting = None;
                let (block, is_ours) = made?;
                self.push_block(&block, is_ours, pieces);
            } else if !self.go_on(pieces) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What can be sent at once; false at the end.
    fn go_on(&mut self, pieces: &mut Pieces) -> bool {
        match self.list.place {
            Place::Head => {
                pieces.push(Member::header());
                let head = self.list.envelope.head.clone();
                self.push_stored(&head, pieces);
                self.list.place = Place::Items;
            }
            Place::Items => match self.list.page.next_run(self.list.form.kept()) {
                Some(run) => {
                    self.push_stored(&self.list.before_next(), pieces);
                    self.list.items += run.objects().len();
                    self.push_run(run, pieces);
                }
                None => {
                    let tail = self.list.tail();
                    self.push_stored(&tail, pieces);
                    self.list.place = Place::End;
                    let member = self.member.take();
                    member.into_iter().for_each(|it| pieces.push(it.trailer()));
                }
            },
            Place::End => return false,
        }
        true
    }

    fn push_stored(&mut self, bytes: &[u8], pieces: &mut Pieces) {
        if let Some(member) = self.member.as_mut().filter(|_| !bytes.is_empty()) {
            pieces.push(member.stored(bytes));
        }
    }

    fn push_block(&mut self, block: &Block, is_ours: bool, pieces: &mut Pieces) {
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

    fn push_run(&mut self, run: Run, pieces: &mut Pieces) {
        let (form, between) = (self.list.form, self.list.envelope.between.clone());
        let maker = self.maker.clone();
        self.waiting = Some(match run {
            Run::Chunk(chunk, kept) => {
                if let Some(block) = chunk.block(kept) {
                    return self.push_block(block, false, pieces);
                }
                let encode = move |objects: &[_], encoder: &mut Encoder| {
                    write_items(form, &between, objects, encoder)
                };
                Waiting(Box::pin(maker.shared(chunk, kept, encode)))
            }
            Run::Objects(objects, len) => Waiting(Box::pin(async move {
                let encode =
                    move |encoder: &mut Encoder| write_items(form, &between, &objects, encoder);
                Ok((maker.once(len, encode).await?, true))
            })),
        });
    }
}

/// Items with what stands between them; what stands before the first is for the list to say.
fn write_items(
    form: ItemForm,
    between: &[u8],
    objects: &[Object],
    encoder: &mut Encoder,
) -> Result<(), NotMade> {
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            encoder.write(between);
        }
        let parts = form.parts(object).map_err(|_| NotMade)?;
        parts.for_each(|part| encoder.write(&part));
    }
    Ok(())
}

impl Body for CompressedList {
    type Data = Pieces;
    type Error = NotMade;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, NotMade>>> {
        let mut pieces = Pieces::default();
        if let Err(error) = self.fill(context, &mut pieces) {
            self.list.place = Place::End;
            return Poll::Ready(Some(Err(error)));
        }
        match (pieces.is_empty(), &self.waiting) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(pieces)))),
            (true, Some(_)) => Poll::Pending,
            (true, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.list.place == Place::End && self.waiting.is_none()
    }
}

#[cfg(test)]
mod tests;
