//! A growing table of numbered slots whose copies share pages: what lets readers walk it while it is written.
//!
//! Cloning copies one pointer. The first write after that copies the list of pages and the page written to, later ones
//! copy a page each at most, and only while the clone lives. Does not know which slots are free.

use std::sync::Arc;

/// Slots per page. With 100,000 slots the list of pages and a page are about as long, so that neither is dear to copy.
const PAGE_LEN: usize = 256;

type SlotPage<T> = [Option<T>; PAGE_LEN];

#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Arc<Vec<Arc<SlotPage<T>>>>,
}

const fn place(slot: u32) -> (usize, usize) {
    (slot as usize / PAGE_LEN, slot as usize % PAGE_LEN)
}

impl<T: Clone> Pages<T> {
    pub(super) fn at(&self, slot: u32) -> Option<&T> {
        let (page, index) = place(slot);
        self.pages.get(page)?[index].as_ref()
    }

    /// Fills or empties a slot; returns what was in it.
    pub(super) fn set(&mut self, slot: u32, value: Option<T>) -> Option<T> {
        let (page, index) = place(slot);
        let pages = Arc::make_mut(&mut self.pages);
        while pages.len() <= page {
            pages.push(Arc::new([const { None }; PAGE_LEN]));
        }
        let page = Arc::make_mut(&mut pages[page]);
        std::mem::replace(&mut page[index], value)
    }

    /// What is in the filled slots, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter().flatten())
    }

    /// One past the highest slot that was ever filled, or more.
    pub(super) fn slot_count(&self) -> u32 {
        u32::try_from(self.pages.len() * PAGE_LEN).unwrap_or(u32::MAX)
    }

    /// The same with the slots' numbers.
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
