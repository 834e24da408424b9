//! Interned texts: each text is stored once and has a number, so that a reference to it takes four bytes.

use std::borrow::Borrow;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::pages::Pages;

/// Assigns numbers to texts. Numbers of removed texts are reused, so numbers stay below the largest count of texts ever held.
#[derive(Debug)]
pub(super) struct Names<K> {
    hasher: RandomState,
    slots: HashTable<NameSlot>,
    texts: Pages<K>,
    free: Vec<u32>,
}

/// An entry of the hash table. It keeps its hash, so that a growing table need not hash the texts again.
#[derive(Clone, Copy, Debug)]
struct NameSlot {
    hash: u32,
    number: u32,
}

/// Repeats the hash in both halves, because the table uses the high and the low bits of a 64-bit hash.
const fn widened(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

impl<K: Borrow<str> + Clone> Names<K> {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is enough")]
    fn hash(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    pub(super) fn find(&self, text: &str) -> Option<u32> {
        let hash = self.hash(text);
        let slot = self.slots.find(widened(hash), |slot| {
            slot.hash == hash && self.has_text(slot.number, text)
        })?;
        Some(slot.number)
    }

    fn has_text(&self, number: u32, text: &str) -> bool {
        self.texts
            .at(number)
            .is_some_and(|found| found.borrow() == text)
    }

    pub(super) fn text(&self, number: u32) -> Option<&K> {
        self.texts.at(number)
    }

    /// All texts by number. A clone shares memory.
    pub(super) const fn texts(&self) -> &Pages<K> {
        &self.texts
    }

    /// Assigns a number to a text that has none.
    #[expect(clippy::expect_used, reason = "memory is exhausted first")]
    pub(super) fn insert(&mut self, text: K) -> u32 {
        let hash = self.hash(text.borrow());
        let number = self.free.pop().unwrap_or_else(|| {
            u32::try_from(self.slots.len()).expect("fewer texts than fit into memory")
        });
        self.texts.set(number, Some(text));
        let slot = NameSlot { hash, number };
        self.slots
            .insert_unique(widened(hash), slot, |slot| widened(slot.hash));
        number
    }

    /// Replaces a text by an equal one, so that the memory of the older one can be freed.
    pub(super) fn refresh(&mut self, number: u32, text: K) {
        self.texts.set(number, Some(text));
    }

    /// Removes a text and frees its number.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(text) = self.texts.set(number, None) else {
            return;
        };
        let hash = widened(self.hash(text.borrow()));
        if let Ok(entry) = self.slots.find_entry(hash, |slot| slot.number == number) {
            entry.remove();
        }
        self.free.push(number);
    }
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            slots: HashTable::new(),
            texts: Pages::default(),
            free: Vec::new(),
        }
    }
}
