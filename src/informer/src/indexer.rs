//! The store of an informer: objects by key, and indices over them (client-go's `Indexer`). One writer, any number of readers.
//!
//! A reader holds a lock only for one lookup, or for copying a pointer; lists iterate over a copy that shares memory with the store.
//! Key and index functions run outside of that lock. Decision 7 gives the reasons, and `benches/indexer.rs` measures the
//! alternatives.

mod contents;
mod functions;
mod members;
mod names;
mod pages;
mod pointer;
mod postings;
mod store_snapshot;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::contents::{IndexContents, IndexValues};
use self::postings::Postings;
use super::delta_fifo::KnownObjects;
use super::key::{KeyError, KeyFn, KeylessObjects, key_of, keyed};
use crate::resource::ObjectKey;
pub use contents::IndexError;
pub use functions::{
    IndexFn, NAMESPACE_INDEX, index_by, index_by_label, index_by_namespace, index_by_pointer,
};
pub use pointer::PointerError;
pub use store_snapshot::StoreSnapshot;

/// Objects by key, with indices.
///
/// The store keeps as many slots as the largest number of objects it has held; [`Indexer::replace`] releases them.
pub struct Indexer<V> {
    key: KeyFn<V>,
    /// The index functions, in the order of the indices. A writer holds this lock during a whole change, and takes it before
    /// `contents`: so changes are serialised, and index functions run while readers continue.
    functions: Mutex<Vec<Function<V>>>,
    contents: RwLock<IndexContents<V>>,
}

struct Function<V> {
    name: Box<str>,
    values: IndexFn<V>,
}

impl<V> Indexer<V> {
    /// An empty store without indices.
    #[must_use]
    pub fn new(key: KeyFn<V>) -> Self {
        Self {
            key,
            functions: Mutex::default(),
            contents: RwLock::new(IndexContents::new(std::iter::empty())),
        }
    }

    /// Adds an index, which includes the objects that are stored already. Writers wait until the index is built; readers do not.
    ///
    /// # Errors
    /// The store already has an index of this name.
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

    /// Stores an object, and returns the object that had the same key before.
    ///
    /// # Errors
    /// The object has no key; it was not stored.
    pub fn put(&self, object: Arc<V>) -> Result<Option<Arc<V>>, KeyError> {
        let key = key_of(&self.key, &*object)?;
        // Locked until the object is stored: an index that is added in between would miss it.
        let functions = self.functions();
        let values = all_values(&functions, &object);
        Ok(self.write().put(key, object, values))
    }

    /// Removes an object and returns it.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<V>> {
        let _order = self.functions();
        self.write().remove(key.as_str())
    }

    /// Replaces all stored objects in one change. If two objects have the same key, the last one is stored.
    pub fn replace(&self, objects: Vec<Arc<V>>) -> KeylessObjects {
        let (objects, keyless) = keyed(&self.key, objects);
        let functions = self.functions();
        let names = functions.iter().map(|function| &*function.name);
        let mut contents = IndexContents::new(names);
        for (key, object) in objects {
            let values = all_values(&functions, &object);
            contents.put(key, object, values);
        }
        contents.add_index_panics(self.index_panics());
        let replaced = std::mem::replace(&mut *self.write(), contents);
        drop(functions);
        // Dropped after both locks are released: the destructors of objects are user code.
        drop(replaced);
        keyless
    }

    /// The object with this key: `namespace/name`, or `name` if it is cluster-scoped.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Arc<V>> {
        self.read().object(key).cloned()
    }

    /// All objects at this moment.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot<V> {
        self.read().snapshot()
    }

    /// The keys of all objects at this moment, in arbitrary order.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        let keys = self.read().keys();
        keys.iter().cloned().collect()
    }

    /// The number of stored objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether the store has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects that an index lists under a value, all at one moment, in arbitrary order.
    ///
    /// # Errors
    /// The store has no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<V>>, IndexError> {
        let found = self.read().objects_with(index, value)?;
        Ok(found.finish())
    }

    /// The keys of the objects that an index lists under a value, all at one moment, in arbitrary order.
    ///
    /// # Errors
    /// The store has no such index.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, IndexError> {
        let found = self.read().keys_with(index, value)?;
        Ok(found.finish())
    }

    /// The values under which an index lists objects, in arbitrary order.
    ///
    /// # Errors
    /// The store has no such index.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, IndexError> {
        let values = self.read().index_values(index)?;
        Ok(values.iter().map(|value| (**value).to_owned()).collect())
    }

    /// Whether the store has an index of this name.
    #[must_use]
    pub fn has_index(&self, index: &str) -> bool {
        self.read().has_index(index)
    }

    /// How often an index function panicked. Each time the object was stored, but is missing in that index.
    #[must_use]
    pub fn index_panics(&self) -> u64 {
        self.read().index_panics()
    }

    /// The only user code that runs under a lock are index functions, under this one. Their panics are caught.
    fn functions(&self) -> MutexGuard<'_, Vec<Function<V>>> {
        self.functions.lock()
    }

    fn read(&self) -> RwLockReadGuard<'_, IndexContents<V>> {
        self.contents.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexContents<V>> {
        self.contents.write()
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

#[cfg(test)]
mod tests;
