//! A run of a chunk's objects as list items or as ADDED events. It holds one reference to the chunk instead of one per object: for
//! a list of ten thousand objects that would be forty thousand writes to reference counts that other lists write to as well.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::cache::Chunk;
use crate::resource::{EventKind, Layout};

/// The objects to list, and the bytes between them.
#[derive(Clone, Copy, Debug)]
pub struct ItemRange<'a> {
    /// Where the objects are.
    pub chunk: &'a Arc<Chunk>,
    /// The encoding of the list.
    pub layout: Layout,
    /// Index of the first object.
    pub start: usize,
    /// Written before each object except the first of the list.
    pub separator: &'a Bytes,
    /// Whether the list already has items.
    pub has_items: bool,
}

/// The unwritten rest of a run. Each object has two slices: what precedes it, and the object itself.
#[derive(Clone, Debug)]
pub(super) struct ItemBuf {
    chunk: Arc<Chunk>,
    form: ItemLayout,
    /// Index of the next slice: `2 * i` is what precedes object `i`, `2 * i + 1` is the object itself.
    at: usize,
    end: usize,
    /// Number of bytes of the slice at `at` that are already written.
    written: usize,
}

/// How objects are written.
#[derive(Clone, Debug)]
enum ItemLayout {
    Listed {
        layout: Layout,
        separator: Bytes,
    },
    /// As ADDED events.
    Added,
}

impl ItemBuf {
    /// List items of about `room` bytes, but at least one; returns the run, the number of objects and the number of bytes.
    pub(super) fn listed(range: ItemRange<'_>, room: usize) -> (Self, usize, usize) {
        let ItemRange {
            chunk,
            layout,
            start,
            separator,
            has_items,
        } = range;
        let (mut count, mut len) = (0, 0);
        for object in &chunk.objects()[start..] {
            if has_items || count > 0 {
                len += separator.len();
            }
            len += object.list_item_bytes(layout).len();
            count += 1;
            if len >= room {
                break;
            }
        }
        let separator = separator.clone();
        let form = ItemLayout::Listed { layout, separator };
        let at = 2 * start + usize::from(!has_items);
        let items = Self::new(chunk, form, at..2 * (start + count));
        (items, count, len)
    }

    /// ADDED events of about `room` bytes from `start` on, up to the first object that has no shareable ADDED frame; returns the
    /// run, the number of objects and the number of bytes.
    pub(super) fn added(chunk: &Arc<Chunk>, start: usize, room: usize) -> (Self, usize, usize) {
        let (mut count, mut len) = (0, 0);
        for object in &chunk.objects()[start..] {
            let Some((head, rest)) = object.frame_bytes(EventKind::Added) else {
                break;
            };
            len += head.len() + rest.len();
            count += 1;
            if len >= room {
                break;
            }
        }
        let items = Self::new(chunk, ItemLayout::Added, 2 * start..2 * (start + count));
        (items, count, len)
    }

    fn new(chunk: &Arc<Chunk>, form: ItemLayout, slices: std::ops::Range<usize>) -> Self {
        let mut items = Self {
            chunk: Arc::clone(chunk),
            form,
            at: slices.start,
            end: slices.end,
            written: 0,
        };
        items.skip_empty();
        items
    }

    /// The unwritten part of the next slice.
    pub(super) fn first(&self) -> &[u8] {
        match self.at < self.end {
            true => &self.slice(self.at)[self.written..],
            false => &[],
        }
    }

    /// Fills as many of `slices` as possible and returns how many were filled.
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let rest = (self.at + 1..self.end).map(|at| self.slice(at));
        let all = std::iter::once(self.first()).chain(rest);
        let some = all.filter(|slice| !slice.is_empty());
        let pairs = slices.iter_mut().zip(some);
        pairs
            .map(|(slice, bytes)| *slice = IoSlice::new(bytes))
            .count()
    }

    /// Advances by up to `written` bytes; returns by how many, which is fewer if the run ends.
    pub(super) fn advance(&mut self, written: usize) -> usize {
        let mut remaining = written;
        while remaining > 0 && self.at < self.end {
            let step = remaining.min(self.first().len());
            remaining -= step;
            self.written += step;
            self.skip_empty();
        }
        written - remaining
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Removes the last unwritten slice and returns a copy of it; empty if there is none.
    pub(super) fn take_last(&mut self) -> Bytes {
        while self.at < self.end {
            self.end -= 1;
            let is_first = self.at == self.end;
            let written = if is_first { self.written } else { 0 };
            let last = &self.slice(self.end)[written..];
            if !last.is_empty() {
                return Bytes::copy_from_slice(last);
            }
        }
        Bytes::new()
    }

    /// A copy of everything unwritten.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::from(self.first());
        (self.at + 1..self.end).for_each(|at| bytes.extend_from_slice(self.slice(at)));
        bytes.freeze()
    }

    fn slice(&self, at: usize) -> &[u8] {
        let is_before = at.is_multiple_of(2);
        let object = self.chunk.objects().get(at / 2);
        match (&self.form, object) {
            (ItemLayout::Listed { separator, .. }, _) if is_before => separator,
            (ItemLayout::Listed { layout, .. }, Some(object)) => object.list_item_bytes(*layout),
            (ItemLayout::Added, Some(object)) => {
                let frame = object.frame_bytes(EventKind::Added);
                frame.map_or(&[], |(head, rest)| if is_before { head } else { rest })
            }
            (_, None) => &[],
        }
    }

    fn skip_empty(&mut self) {
        while self.at < self.end && self.first().is_empty() {
            self.at += 1;
            self.written = 0;
        }
    }
}
