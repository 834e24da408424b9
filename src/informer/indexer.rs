//! The store of an informer: objects by key, and indices over them. Written by one, read by many at any time.
//!
//! Readers take what they need under a lock that is held for one lookup, or for copying a pointer; lists walk a copy that
//! shares memory with the store. Key and index functions run outside of that lock. The choice is measured in
//! `benches/indexer.rs` and told in decision 7.

mod contents;
mod functions;
mod members;
mod names;
mod pages;
mod pointer;
mod postings;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::contents::{IndexContents, IndexValues};
use self::pages::Pages;
use self::postings::Postings;
use super::delta_fifo::KnownObjects;
use super::key::{KeyError, KeyFn, KeylessObjects, key_of, keyed};
use crate::resource::ObjectKey;
pub use functions::{
    NAMESPACE_INDEX, index_by, index_by_label, index_by_namespace, index_by_pointer,
};
pub use pointer::PointerError;

/// Tells the values under which an index has an object; none at all is fine. It may read the store but must not write to it,
/// nor add handlers to its informer.
pub type IndexFn<V> = Arc<dyn Fn(&V) -> Vec<String> + Send + Sync>;

/// An index cannot be read, or not be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// There is no index of this name.
    #[error("there is no index {0:?}")]
    Unknown(Box<str>),
    /// There is an index of this name already.
    #[error("there is an index {0:?} already")]
    Taken(Box<str>),
}

/// Objects by key, with indices.
///
/// A store holds on to as many slots as it ever had objects at once; [`Indexer::replace`] starts afresh.
pub struct Indexer<V> {
    key: KeyFn<V>,
    /// Held during a whole change, before `contents`: changes happen one after the other, and users' functions run while
    /// readers go on. In the order of the indices.
    functions: Mutex<Vec<Function<V>>>,
    contents: RwLock<IndexContents<V>>,
}

struct Function<V> {
    name: Box<str>,
    values: IndexFn<V>,
}

/// The objects of a store at one moment. Costs nothing to make; while it lives, a change copies the page that it happens in
/// once.
pub struct StoreSnapshot<V> {
    objects: Pages<Arc<V>>,
    len: usize,
}

impl<V> Indexer<V> {
    /// An empty store without an index.
    #[must_use]
    pub fn new(key: KeyFn<V>) -> Self {
        Self {
            key,
            functions: Mutex::default(),
            contents: RwLock::new(IndexContents::new(std::iter::empty())),
        }
    }

    /// Adds an index, over what is stored already too. Changes wait until it is built, readers do not.
    ///
    /// # Errors
    /// There is an index of this name.
    pub fn add_index(&self, name: &str, values: IndexFn<V>) -> Result<(), IndexError> {
        let mut functions = self.functions();
        if functions.iter().any(|function| *function.name == *name) {
            return Err(IndexError::Taken(name.into()));
        }
        let (mut postings, mut panics) = (Postings::default(), 0);
        let objects = self.read().numbered_objects();
        for (slot, object) in objects.numbered() {
            match values_of(&values, object) {
                Some(values) => postings.assign(slot, values),
                None => panics += 1,
            }
        }
        self.write().add_index(name, postings, panics);
        let name = name.into();
        functions.push(Function { name, values });
        Ok(())
    }

    /// Stores an object in place of the one with its key, which is returned.
    ///
    /// # Errors
    /// The object has no key; it was not stored then.
    pub fn put(&self, object: Arc<V>) -> Result<Option<Arc<V>>, KeyError> {
        let key = key_of(&self.key, &*object)?;
        let functions = self.functions();
        let values = all_values(&functions, &object);
        Ok(self.write().put(key, object, values))
    }

    /// Takes an object out.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<V>> {
        let _order = self.functions();
        self.write().remove(key.as_str())
    }

    /// Stores these objects in place of all that are there, as one change. Of objects with the same key the last one stays.
    pub fn replace(&self, objects: Vec<Arc<V>>) -> KeylessObjects {
        let (objects, refused) = keyed(&self.key, objects);
        let functions = self.functions();
        let names = functions.iter().map(|function| &*function.name);
        let mut contents = IndexContents::new(names);
        for (key, object) in objects {
            let values = all_values(&functions, &object);
            contents.put(key, object, values);
        }
        contents.add_index_panics(self.index_panics());
        let before = std::mem::replace(&mut *self.write(), contents);
        drop(functions);
        // What was there is dropped when nobody waits for it: an object's destructor is the user's.
        drop(before);
        refused
    }

    /// The object with a key, `namespace/name` or `name`.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Arc<V>> {
        self.read().object(key).cloned()
    }

    /// All objects at this moment.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot<V> {
        self.read().snapshot()
    }

    /// The keys of all objects at this moment, in no order.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        let keys = self.read().keys();
        keys.iter().cloned().collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects that an index has under a value, all of one moment, in no order.
    ///
    /// # Errors
    /// There is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<V>>, IndexError> {
        let found = self.read().objects_with(index, value)?;
        Ok(found.finish())
    }

    /// The keys of the objects that an index has under a value, all of one moment, in no order.
    ///
    /// # Errors
    /// There is no such index.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        let found = self.read().keys_with(index, value)?;
        Ok(found.finish())
    }

    /// The values that an index has objects under, in no order.
    ///
    /// # Errors
    /// There is no such index.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, IndexError> {
        let values = self.read().index_values(index)?;
        Ok(values.iter().map(|value| (**value).to_owned()).collect())
    }

    /// Whether there is an index of this name.
    #[must_use]
    pub fn has_index(&self, index: &str) -> bool {
        self.read().has_index(index)
    }

    /// How often an index function panicked. The object is stored each time, and missing in that index.
    #[must_use]
    pub fn index_panics(&self) -> u64 {
        self.read().index_panics()
    }

    // Nothing that users wrote runs while one of these is held, so a poisoned lock guards contents that are in order,
    // except for index functions under `functions`, whose panics are caught.

    fn functions(&self) -> MutexGuard<'_, Vec<Function<V>>> {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, IndexContents<V>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexContents<V>> {
        self.contents
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn all_values<V>(functions: &[Function<V>], object: &V) -> IndexValues {
    functions
        .iter()
        .map(|function| values_of(&function.values, object))
        .collect()
}

fn values_of<V>(function: &IndexFn<V>, object: &V) -> Option<Vec<String>> {
    catch_unwind(AssertUnwindSafe(|| function(object))).ok()
}

impl<V: Send + Sync> KnownObjects<V> for Indexer<V> {
    fn keys(&self) -> Vec<ObjectKey> {
        self.keys()
    }

    fn object(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.object(key.as_str())
    }
}

impl<V> fmt::Debug for Indexer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexer")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<V> StoreSnapshot<V> {
    /// The objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<V>> {
        self.objects.iter()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<V> IntoIterator for StoreSnapshot<V>
where
    V: Send + Sync + 'static,
{
    type Item = Arc<V>;
    type IntoIter = Box<dyn Iterator<Item = Arc<V>> + Send>;

    /// The objects, in no order. What is left of the snapshot lives as long as the iterator.
    fn into_iter(self) -> Self::IntoIter {
        let slots = 0..self.objects.slot_count();
        Box::new(slots.filter_map(move |slot| self.objects.at(slot).cloned()))
    }
}

impl<V> Clone for StoreSnapshot<V> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            len: self.len,
        }
    }
}

impl<V> fmt::Debug for StoreSnapshot<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSnapshot")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
