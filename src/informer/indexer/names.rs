//! Texts and the numbers that stand for them: each text is kept once, whoever refers to it keeps four bytes.

use std::borrow::Borrow;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::pages::Pages;

/// Numbers for texts, reused when a text is gone; there are no more of them than there ever were texts at once.
#[derive(Debug)]
pub(super) struct Names<K> {
    hasher: RandomState,
    places: HashTable<NameSlot>,
    texts: Pages<K>,
    free: Vec<u32>,
}

/// Keeps its hash, so that a table that grows looks at no text.
#[derive(Clone, Copy, Debug)]
struct NameSlot {
    hash: u32,
    number: u32,
}

/// A table looks at both ends of 64 bits.
const fn widened(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

impl<K: Borrow<str> + Clone> Names<K> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is one")]
    fn hash(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    pub(super) fn find(&self, text: &str) -> Option<u32> {
        let hash = self.hash(text);
        let is_it = |place: &NameSlot| place.hash == hash && self.is_at(place.number, text);
        let place = self.places.find(widened(hash), is_it)?;
        Some(place.number)
    }

    fn is_at(&self, number: u32, text: &str) -> bool {
        self.texts
            .at(number)
            .is_some_and(|found| found.borrow() == text)
    }

    pub(super) fn text(&self, number: u32) -> Option<&K> {
        self.texts.at(number)
    }

    /// All texts; a copy of them shares memory.
    pub(super) const fn texts(&self) -> &Pages<K> {
        &self.texts
    }

    /// Gives a number to a text that has none.
    #[expect(clippy::expect_used, reason = "memory ends first")]
    pub(super) fn insert(&mut self, text: K) -> u32 {
        let hash = self.hash(text.borrow());
        let number = self.free.pop().unwrap_or_else(|| {
            u32::try_from(self.places.len()).expect("fewer texts than fit into memory")
        });
        self.texts.set(number, Some(text));
        let place = NameSlot { hash, number };
        self.places
            .insert_unique(widened(hash), place, |place| widened(place.hash));
        number
    }

    /// Puts an equal text in the place of one, so that the older may be freed.
    pub(super) fn refresh(&mut self, number: u32, text: K) {
        self.texts.set(number, Some(text));
    }

    /// Takes a text's number back.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(text) = self.texts.set(number, None) else {
            return;
        };
        let hash = widened(self.hash(text.borrow()));
        if let Ok(entry) = self.places.find_entry(hash, |place| place.number == number) {
            entry.remove();
        }
        self.free.push(number);
    }
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            places: HashTable::new(),
            texts: Pages::default(),
            free: Vec::new(),
        }
    }
}
