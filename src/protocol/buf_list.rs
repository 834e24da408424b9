//! A run of shared slices that leaves in one vectored write: list items and event lines, never copied.

mod items;

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use smallvec::{SmallVec, smallvec};

use items::ItemBuf;
pub(crate) use items::ItemRange;

use crate::cache::Chunk;

/// What one body frame carries.
///
/// `chunks_vectored` fills the slices it is given as far as it goes, without leaving a later piece out: hyper's
/// chunk framing relies on that (hyperium/hyper#4132).
#[derive(Clone, Debug, Default)]
pub struct BufList {
    /// Not yet written, the first perhaps in part. Never holds an empty piece. A client that keeps up gets one
    /// at a time, which costs no allocation.
    parts: SmallVec<[BufPart; 1]>,
    /// Parts before this one are written.
    at: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum BufPart {
    One(Bytes),
    /// Boxed, so that the others stay small.
    Items(Box<ItemBuf>),
}

impl BufList {
    /// Adds a slice at the end.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(BufPart::One(part));
        }
    }

    /// Adds objects as list items until there are about `len_max` bytes in all, and at least one; how many.
    pub(crate) fn push_items(&mut self, stretch: ItemRange<'_>, len_max: usize) -> usize {
        let room = len_max.saturating_sub(self.len);
        let (items, count, len) = ItemBuf::listed(stretch, room);
        self.push_run(items, len);
        count
    }

    /// Adds objects of a chunk from `start` on as ADDED events, until there are about `len_max` bytes in all; how many. None if
    /// the frame of the first has to be made.
    pub(crate) fn push_added(&mut self, chunk: &Arc<Chunk>, start: usize, len_max: usize) -> usize {
        let room = len_max.saturating_sub(self.len);
        let (items, count, len) = ItemBuf::added(chunk, start, room);
        self.push_run(items, len);
        count
    }

    fn push_run(&mut self, items: ItemBuf, len: usize) {
        if len > 0 {
            self.len += len;
            self.parts.push(BufPart::Items(Box::new(items)));
        }
    }

    /// Adds what is left of others.
    pub(crate) fn append(&mut self, others: Self) {
        self.len += others.len;
        self.parts.extend(others.parts.into_iter().skip(others.at));
    }

    /// Takes off the last byte. A run of items loses its last slice for it, which is copied.
    pub(crate) fn split_last(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let mut end = match self.parts.pop()? {
            BufPart::One(bytes) => bytes,
            BufPart::Items(mut items) => {
                let end = items.take_last();
                if !items.is_empty() {
                    self.parts.push(BufPart::Items(items));
                }
                end
            }
        };
        let last = end.last().copied()?;
        end.truncate(end.len() - 1);
        if !end.is_empty() {
            self.parts.push(BufPart::One(end));
        }
        self.len -= 1;
        Some(last)
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices that are left, in order.
    pub fn into_parts(self) -> impl Iterator<Item = Bytes> {
        self.parts.into_iter().skip(self.at).map(|part| match part {
            BufPart::One(bytes) => bytes,
            BufPart::Items(items) => items.to_bytes(),
        })
    }

    /// Number of slices, a run of items being one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len() - self.at
    }
}

impl From<Bytes> for BufList {
    fn from(part: Bytes) -> Self {
        let len = part.len();
        Self {
            parts: if len == 0 {
                SmallVec::new()
            } else {
                smallvec![BufPart::One(part)]
            },
            at: 0,
            len,
        }
    }
}

impl Buf for BufList {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        match self.parts.get(self.at) {
            Some(BufPart::One(bytes)) => bytes,
            Some(BufPart::Items(items)) => items.first(),
            None => &[],
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for part in self.parts.get(self.at..).unwrap_or(&[]) {
            let room = &mut slices[filled..];
            match part {
                _ if room.is_empty() => break,
                BufPart::One(bytes) => {
                    room[0] = IoSlice::new(bytes);
                    filled += 1;
                }
                BufPart::Items(items) => filled += items.fill(room),
            }
        }
        filled
    }

    fn advance(&mut self, mut written: usize) {
        assert!(written <= self.len, "no more can be written than is there");
        self.len -= written;
        while written > 0 {
            let part = &mut self.parts[self.at];
            let is_written = match part {
                BufPart::One(bytes) => {
                    let step = written.min(bytes.len());
                    bytes.advance(step);
                    written -= step;
                    bytes.is_empty()
                }
                BufPart::Items(items) => {
                    written -= items.advance(written);
                    items.is_empty()
                }
            };
            if is_written {
                // The slice is let go now, not with the frame: a slow socket must not pin what it has taken.
                *part = BufPart::One(Bytes::new());
                self.at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
