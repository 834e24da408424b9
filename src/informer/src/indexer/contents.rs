//! The data under the store's lock: objects by slot, keys with their slots, and indices.

use std::sync::Arc;

use super::members::{ManySlots, PostingSet};
use super::names::Names;
use super::pages::Pages;
use super::postings::Postings;
use super::store_snapshot::StoreSnapshot;
use crate::resource::ObjectKey;

/// The values of one object in each index, in the order of the indices; `None` where the index function panicked.
pub(super) type IndexValues = Vec<Option<Vec<String>>>;

/// Objects, keys and indices. A key's number is the slot of its object.
pub(super) struct IndexContents<V> {
    keys: Names<ObjectKey>,
    /// Indexed by the number of the key.
    objects: Pages<Arc<V>>,
    indices: Vec<(Box<str>, Postings)>,
    index_panics: u64,
}

/// At most this many objects are looked up while the lock is held: as many as a write may have to copy.
const LOCKED_LOOKUPS_MAX: usize = 256;

/// The part of an index lookup that needs the lock. [`IndexerLookup::finish`] does the rest without it.
pub(super) enum IndexerLookup<T> {
    Done(Vec<T>),
    /// Many objects: consistent copies, to be read after the lock is released.
    Many(ManySlots, Pages<T>),
}

impl<T: Clone> IndexerLookup<T> {
    fn of(members: Option<&PostingSet>, pages: &Pages<T>) -> Self {
        let found = |slots: &mut dyn Iterator<Item = &u32>| {
            slots.filter_map(|slot| pages.at(*slot).cloned()).collect()
        };
        match members {
            None => Self::Done(Vec::new()),
            Some(PostingSet::Few(slots)) => Self::Done(found(&mut slots.iter())),
            Some(PostingSet::Many(slots)) if slots.len() <= LOCKED_LOOKUPS_MAX => {
                Self::Done(found(&mut slots.iter()))
            }
            Some(PostingSet::Many(slots)) => Self::Many(Arc::clone(slots), pages.clone()),
        }
    }

    pub(super) fn finish(self) -> Vec<T> {
        match self {
            Self::Done(found) => found,
            Self::Many(slots, pages) => slots
                .iter()
                .filter_map(|slot| pages.at(*slot).cloned())
                .collect(),
        }
    }
}

impl<V> IndexContents<V> {
    /// Empty contents with indices of these names.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            keys: Names::default(),
            objects: Pages::default(),
            indices: names
                .map(|name| (name.into(), Postings::default()))
                .collect(),
            index_panics: 0,
        }
    }

    pub(super) fn put(
        &mut self,
        key: ObjectKey,
        object: Arc<V>,
        values: IndexValues,
    ) -> Option<Arc<V>> {
        let slot = if let Some(slot) = self.keys.find(key.as_str()) {
            // Objects share their key's memory: keeping the old key would keep the old object's allocation for the store alone.
            self.keys.refresh(slot, key);
            slot
        } else {
            self.keys.insert(key)
        };
        for ((_, postings), values) in self.indices.iter_mut().zip(values) {
            self.index_panics += u64::from(values.is_none());
            postings.assign(slot, values.unwrap_or_default());
        }
        self.objects.set(slot, Some(object))
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<V>> {
        let slot = self.keys.find(key)?;
        for (_, postings) in &mut self.indices {
            postings.assign(slot, Vec::new());
        }
        self.keys.remove(slot);
        self.objects.set(slot, None)
    }

    pub(super) fn object(&self, key: &str) -> Option<&Arc<V>> {
        self.objects.at(self.keys.find(key)?)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> Pages<ObjectKey> {
        self.keys.texts().clone()
    }

    pub(super) fn snapshot(&self) -> StoreSnapshot<V> {
        StoreSnapshot {
            objects: self.objects.clone(),
            len: self.len(),
        }
    }

    pub(super) fn numbered_objects(&self) -> Pages<Arc<V>> {
        self.objects.clone()
    }

    pub(super) fn add_index(&mut self, name: &str, postings: Postings, panics: u64) {
        self.indices.push((name.into(), postings));
        self.index_panics += panics;
    }

    fn postings(&self, index: &str) -> Result<&Postings, IndexError> {
        self.indices
            .iter()
            .find(|(name, _)| **name == *index)
            .map(|(_, postings)| postings)
            .ok_or_else(|| IndexError::Unknown(index.into()))
    }

    pub(super) fn objects_with(
        &self,
        index: &str,
        value: &str,
    ) -> Result<IndexerLookup<Arc<V>>, IndexError> {
        let members = self.postings(index)?.members(value);
        Ok(IndexerLookup::of(members, &self.objects))
    }

    pub(super) fn keys_with(
        &self,
        index: &str,
        value: &str,
    ) -> Result<IndexerLookup<ObjectKey>, IndexError> {
        let members = self.postings(index)?.members(value);
        Ok(IndexerLookup::of(members, self.keys.texts()))
    }

    pub(super) fn index_values(&self, index: &str) -> Result<Pages<Arc<str>>, IndexError> {
        Ok(self.postings(index)?.values().texts().clone())
    }

    pub(super) fn has_index(&self, index: &str) -> bool {
        self.postings(index).is_ok()
    }

    pub(super) const fn index_panics(&self) -> u64 {
        self.index_panics
    }

    /// Adds the panics counted by the contents that these replace.
    pub(super) const fn add_index_panics(&mut self, panics: u64) {
        self.index_panics += panics;
    }
}

/// An index does not exist, or exists already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The store has no index of this name.
    #[error("there is no index {0:?}")]
    Unknown(Box<str>),
    /// The store already has an index of this name.
    #[error("there is an index {0:?} already")]
    Taken(Box<str>),
}
