//! Keys of objects in a queue and a store, and the functions that compute them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Cached;
use crate::resource::ObjectKey;

/// A key function returned no key for an object, or panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has no key: {0}")]
pub struct KeyError(Box<str>);

impl KeyError {
    /// An error with a reason: lower case, no full stop.
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

/// Returns the key of an object. It must always return the same key for the same object, and must not call the queue, the store or
/// the informer.
pub type KeyFn<V> = Arc<dyn Fn(&V) -> Result<ObjectKey, KeyError> + Send + Sync>;

/// The default key function: namespace and name, as client-go's `MetaNamespaceKeyFunc`.
#[must_use]
pub fn cached_key<T>() -> KeyFn<Cached<T>> {
    Arc::new(|object| {
        if object.key().name().is_empty() {
            return Err(KeyError::new("the object has no name"));
        }
        Ok(object.key().clone())
    })
}

/// Counts the objects that were left out because they have no key; all others were accepted.
#[must_use = "objects may be missing"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeylessObjects {
    /// How many objects were left out.
    pub count: usize,
    /// The error of the first one.
    pub first: Option<KeyError>,
}

impl KeylessObjects {
    /// Whether all objects were accepted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, error: KeyError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }
}

/// Calls a key function and turns a panic into an error.
pub(super) fn key_of<V>(function: &KeyFn<V>, object: &V) -> Result<ObjectKey, KeyError> {
    catch_unwind(AssertUnwindSafe(|| function(object)))
        .unwrap_or_else(|_| Err(KeyError::new("the key function panicked")))
}

/// Pairs objects with their keys. Objects without a key are left out and counted.
pub(super) fn keyed<V>(
    function: &KeyFn<V>,
    objects: Vec<Arc<V>>,
) -> (Vec<(ObjectKey, Arc<V>)>, KeylessObjects) {
    let mut keyless = KeylessObjects::default();
    let mut keyed = Vec::with_capacity(objects.len());
    for object in objects {
        match key_of(function, &*object) {
            Ok(key) => keyed.push((key, object)),
            Err(error) => keyless.add(error),
        }
    }
    (keyed, keyless)
}
