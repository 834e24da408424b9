//! A growing table of numbered slots whose clones share pages, so that readers can iterate over a clone while the table is written.
//!
//! Cloning copies one pointer. The first write after that copies the list of pages and the page that it changes; each later write
//! copies at most one page, and only while the clone exists. The table does not track which slots are free.

use std::sync::Arc;

/// Slots per page. With 100,000 slots the list of pages is about as long as a page, so that both are cheap to copy.
const PAGE_LEN: usize = 256;

type SlotPage<T> = [Option<T>; PAGE_LEN];

#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Arc<Vec<Arc<SlotPage<T>>>>,
}

const fn position(slot: u32) -> (usize, usize) {
    (slot as usize / PAGE_LEN, slot as usize % PAGE_LEN)
}

impl<T: Clone> Pages<T> {
    pub(super) fn at(&self, slot: u32) -> Option<&T> {
        let (page, index) = position(slot);
        self.pages.get(page)?[index].as_ref()
    }

    /// Fills or empties a slot, and returns its previous value.
    pub(super) fn set(&mut self, slot: u32, value: Option<T>) -> Option<T> {
        let (page, index) = position(slot);
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= page {
            pages.push(Arc::new([const { None }; PAGE_LEN]));
        }
        let page = Arc::make_mut(&mut pages[page]);
        std::mem::replace(&mut page[index], value)
    }

    /// The values of the filled slots, ordered by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter().flatten())
    }

    /// An upper bound of all slots that were ever filled: one past the highest of them, or more.
    pub(super) fn slot_count(&self) -> u32 {
        u32::try_from(self.pages.len() * PAGE_LEN).unwrap_or(u32::MAX)
    }

    /// The filled slots, each with its number.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.pages.iter().flat_map(|page| page.iter());
        (0_u32..)
            .zip(slots)
            .filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}

impl<T> Clone for Pages<T> {
    fn clone(&self) -> Self {
        Self {
            pages: Arc::clone(&self.pages),
        }
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self {
            pages: Arc::default(),
        }
    }
}
