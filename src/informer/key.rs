//! The key that a queue and a store hold an object under, and functions that tell it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Cached;
use crate::resource::ObjectKey;

/// A key function could not tell an object's key, or panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has no key: {0}")]
pub struct KeyError(Box<str>);

impl KeyError {
    /// An error with its reason: lower case, no full stop.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into().into())
    }
}

impl From<String> for KeyError {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

/// Tells an object's key. It must tell the same key for the same object every time, and must not call the queue, the store
/// or the informer.
pub type KeyFn<V> = Arc<dyn Fn(&V) -> Result<ObjectKey, KeyError> + Send + Sync>;

/// The usual key function: namespace and name, as client-go's `MetaNamespaceKeyFunc`.
#[must_use]
pub fn cached_key<T>() -> KeyFn<Cached<T>> {
    Arc::new(|object| {
        if object.key().name().is_empty() {
            return Err(KeyError::new("the object has no name"));
        }
        Ok(object.key().clone())
    })
}

/// Objects that were left out because they have no key; the others were taken.
#[must_use = "objects may be missing"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeylessObjects {
    /// How many.
    pub count: usize,
    /// Why the first of them.
    pub first: Option<KeyError>,
}

impl KeylessObjects {
    /// Whether every object was taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, error: KeyError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }
}

/// Asks a key function, which may panic: whoever calls it holds no lock that a panic would leave behind.
pub(super) fn key_of<V>(function: &KeyFn<V>, object: &V) -> Result<ObjectKey, KeyError> {
    catch_unwind(AssertUnwindSafe(|| function(object)))
        .unwrap_or_else(|_| Err(KeyError::new("the key function panicked")))
}

/// Puts keys to objects; those without one are left out.
pub(super) fn keyed<V>(
    function: &KeyFn<V>,
    objects: Vec<Arc<V>>,
) -> (Vec<(ObjectKey, Arc<V>)>, KeylessObjects) {
    let mut refused = KeylessObjects::default();
    let mut taken = Vec::with_capacity(objects.len());
    for object in objects {
        match key_of(function, &*object) {
            Ok(key) => taken.push((key, object)),
            Err(error) => refused.add(error),
        }
    }
    (taken, refused)
}
