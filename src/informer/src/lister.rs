//! A read-only view of a store: objects by label selector, by namespace, and by name.

use std::sync::Arc;

use super::indexer::NAMESPACE_INDEX;
use super::{Cached, Indexer};
use crate::resource::ObjectKey;
use crate::selector::LabelSelector;

/// Reads a store. Each result shows the store at one moment, in arbitrary order. Objects are shared with the store, and immutable.
#[derive(Debug)]
pub struct Lister<T> {
    indexer: Arc<Indexer<Cached<T>>>,
}

impl<T> Lister<T> {
    /// A lister that reads this store.
    #[must_use]
    pub const fn new(indexer: Arc<Indexer<Cached<T>>>) -> Self {
        Self { indexer }
    }

    /// The objects whose labels match the selector.
    #[must_use]
    pub fn list(&self, selector: &LabelSelector) -> Vec<Arc<Cached<T>>> {
        matching(self.indexer.snapshot().iter(), selector)
    }

    /// The objects of one namespace whose labels match the selector; `""` means all namespaces. Uses the index [`NAMESPACE_INDEX`] if
    /// the store has it, and searches all objects otherwise.
    #[must_use]
    pub fn list_in(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<Cached<T>>> {
        if namespace.is_empty() {
            return self.list(selector);
        }
        if let Ok(found) = self.indexer.by_index(NAMESPACE_INDEX, namespace) {
            return matching(found.iter(), selector);
        }
        let snapshot = self.indexer.snapshot();
        let inside = snapshot
            .iter()
            .filter(|object| object.key().namespace() == namespace);
        matching(inside, selector)
    }

    /// One object by name; the namespace of cluster-scoped objects is `""`.
    #[must_use]
    pub fn object(&self, namespace: &str, name: &str) -> Option<Arc<Cached<T>>> {
        self.indexer
            .object(ObjectKey::new(namespace, name).as_str())
    }
}

fn matching<'a, T: 'a>(
    objects: impl Iterator<Item = &'a Arc<Cached<T>>>,
    selector: &LabelSelector,
) -> Vec<Arc<Cached<T>>> {
    objects
        .filter(|object| selector.is_empty() || selector.matches_labels(|key| object.label(key)))
        .cloned()
        .collect()
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.indexer))
    }
}

#[cfg(test)]
mod tests;
