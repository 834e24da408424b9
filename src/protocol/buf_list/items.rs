//! A run of a chunk's objects as list items, or as the events that tell of them. It holds the chunk once instead of every
//! object: a list of ten thousand objects else costs forty thousand writes to counters that other lists write, too.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::cache::Chunk;
use crate::resource::{EventKind, Layout};

/// Where items are taken from, and what stands before them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemRange<'a> {
    pub(crate) chunk: &'a Arc<Chunk>,
    pub(crate) layout: Layout,
    /// Index of the first object.
    pub(crate) start: usize,
    /// Stands before each object, but before the first of all.
    pub(crate) between: &'a Bytes,
    /// Whether items came before.
    pub(crate) is_begun: bool,
}

/// What is left of it: slices in turns, what stands before an object and the object.
#[derive(Clone, Debug)]
pub(super) struct ItemBuf {
    chunk: Arc<Chunk>,
    form: ItemLayout,
    /// Twice the index of an object stands for what is before it, one more for itself.
    at: usize,
    end: usize,
    /// Bytes of the slice at `at` that are written.
    written: usize,
}

/// How objects are shown.
#[derive(Clone, Debug)]
enum ItemLayout {
    Listed {
        layout: Layout,
        between: Bytes,
    },
    /// As events that say that they are there.
    Added,
}

impl ItemBuf {
    /// Objects of about `room` bytes as list items, and at least one; also their number, and the number of bytes.
    pub(super) fn listed(stretch: ItemRange<'_>, room: usize) -> (Self, usize, usize) {
        let ItemRange {
            chunk,
            layout,
            start,
            between,
            is_begun,
        } = stretch;
        let (mut count, mut len) = (0, 0);
        for object in &chunk.objects()[start..] {
            if is_begun || count > 0 {
                len += between.len();
            }
            len += object.list_item_bytes(layout).len();
            count += 1;
            if len >= room {
                break;
            }
        }
        let between = between.clone();
        let form = ItemLayout::Listed { layout, between };
        let at = 2 * start + usize::from(!is_begun);
        let items = Self::new(chunk, form, at..2 * (start + count));
        (items, count, len)
    }

    /// Objects of about `room` bytes from `start` on as ADDED events, as far as their frames need not be made; also their
    /// number, and the number of bytes.
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

    /// The slice that is next, without what is written of it.
    pub(super) fn first(&self) -> &[u8] {
        match self.at < self.end {
            true => &self.slice(self.at)[self.written..],
            false => &[],
        }
    }

    /// Fills `slices` as far as it goes; the number of those filled.
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let rest = (self.at + 1..self.end).map(|at| self.slice(at));
        let all = std::iter::once(self.first()).chain(rest);
        let some = all.filter(|slice| !slice.is_empty());
        let pairs = slices.iter_mut().zip(some);
        pairs
            .map(|(slice, bytes)| *slice = IoSlice::new(bytes))
            .count()
    }

    /// Takes up to `written` bytes off; how many it took, all there were if fewer.
    pub(super) fn advance(&mut self, written: usize) -> usize {
        let mut left = written;
        while left > 0 && self.at < self.end {
            let step = left.min(self.first().len());
            left -= step;
            self.written += step;
            self.skip_empty();
        }
        written - left
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Takes the last slice that is left off, copied; empty if none is.
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

    /// All that is left, copied.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::from(self.first());
        (self.at + 1..self.end).for_each(|at| bytes.extend_from_slice(self.slice(at)));
        bytes.freeze()
    }

    fn slice(&self, at: usize) -> &[u8] {
        let is_before = at.is_multiple_of(2);
        let object = self.chunk.objects().get(at / 2);
        match (&self.form, object) {
            (ItemLayout::Listed { between, .. }, _) if is_before => between,
            (ItemLayout::Listed { layout, .. }, Some(object)) => object.list_item_bytes(*layout),
            (ItemLayout::Added, Some(object)) => {
                let pieces = object.frame_bytes(EventKind::Added);
                pieces.map_or(&[], |(head, rest)| if is_before { head } else { rest })
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
