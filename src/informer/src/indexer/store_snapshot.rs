//! A state of the store that does not change.

use std::fmt;
use std::sync::Arc;

use super::pages::Pages;

/// The objects of a store at one moment. Creating it copies a pointer. While it exists, a change to the store copies the page that it
/// changes, each page at most once.
pub struct StoreSnapshot<V> {
    pub(super) objects: Pages<Arc<V>>,
    pub(super) len: usize,
}

impl<V> StoreSnapshot<V> {
    /// The objects, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<V>> {
        self.objects.iter()
    }

    /// The number of objects.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the snapshot has no objects.
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

    /// The objects, in arbitrary order. The iterator keeps the snapshot's memory.
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
