//! A list of shared slices that is written with one vectored write: list items and event lines are never copied.

mod items;

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use smallvec::{SmallVec, smallvec};

use items::ItemBuf;
pub use items::ItemRange;

use crate::cache::Chunk;

/// One frame of a body.
///
/// `chunks_vectored` fills as many slices as it gets, in order and without leaving a part out: hyper's chunked encoding relies on
/// that (hyperium/hyper#4132).
#[derive(Clone, Debug, Default)]
pub struct BufList {
    /// The parts; the first unwritten one may be partly written. None is empty. A client that is caught up gets one part per frame,
    /// which needs no allocation.
    parts: SmallVec<[BufPart; 1]>,
    /// Index of the first unwritten part.
    at: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum BufPart {
    One(Bytes),
    /// Boxed to keep the enum small.
    Items(Box<ItemBuf>),
}

impl BufList {
    /// Appends a slice.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(BufPart::One(part));
        }
    }

    /// Appends objects as list items until the list has about `len_max` bytes, but at least one object; returns their number.
    pub fn push_items(&mut self, range: ItemRange<'_>, len_max: usize) -> usize {
        let room = len_max.saturating_sub(self.len);
        let (items, count, len) = ItemBuf::listed(range, room);
        self.push_item_buf(items, len);
        count
    }

    /// Appends a chunk's objects from `start` on as ADDED events until the list has about `len_max` bytes; returns their number. It
    /// is 0 if the first object has no ADDED frame in memory that could be shared.
    pub fn push_added(&mut self, chunk: &Arc<Chunk>, start: usize, len_max: usize) -> usize {
        let room = len_max.saturating_sub(self.len);
        let (items, count, len) = ItemBuf::added(chunk, start, room);
        self.push_item_buf(items, len);
        count
    }

    fn push_item_buf(&mut self, items: ItemBuf, len: usize) {
        if len > 0 {
            self.len += len;
            self.parts.push(BufPart::Items(Box::new(items)));
        }
    }

    /// Appends the unwritten parts of another list.
    pub fn append(&mut self, others: Self) {
        self.len += others.len;
        self.parts.extend(others.parts.into_iter().skip(others.at));
    }

    /// Removes and returns the last byte. If the last part is a run of items, its last slice is copied.
    pub fn split_last(&mut self) -> Option<u8> {
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

    /// Unwritten length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing left to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The unwritten parts, in order. A run of items is copied into one slice.
    pub fn into_parts(self) -> impl Iterator<Item = Bytes> {
        self.parts.into_iter().skip(self.at).map(|part| match part {
            BufPart::One(bytes) => bytes,
            BufPart::Items(items) => items.to_bytes(),
        })
    }

    /// Number of unwritten parts; a run of items counts as one.
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
        assert!(written <= self.len, "cannot advance past the end");
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
                // Release the slice now and not with the frame: a slow socket must not keep alive what it has already taken.
                *part = BufPart::One(Bytes::new());
                self.at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
