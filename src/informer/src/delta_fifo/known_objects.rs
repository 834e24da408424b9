//! What a queue of deltas must know of the store.

use std::sync::Arc;

use crate::resource::ObjectKey;

/// The objects that the queue's consumer has stored. The queue uses them to find out what a replacement deletes.
pub trait KnownObjects<V>: Send + Sync {
    /// The keys of all objects.
    fn keys(&self) -> Vec<ObjectKey>;
    /// The object with this key.
    fn object(&self, key: &ObjectKey) -> Option<Arc<V>>;
}
