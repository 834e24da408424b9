//! Typed objects that are kept as the bytes received, and decoded on each access.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::raw::{DecodeError, Raw};

/// A `T` kept as its JSON. A decoded Kubernetes struct takes several times that memory, most of it for absent fields, so this is worth
/// it where there are many objects and few of them are accessed.
pub struct Packed<T> {
    raw: Raw,
    form: PhantomData<fn() -> T>,
}

impl<T> Packed<T> {
    pub(super) const fn new(raw: Raw) -> Self {
        Self {
            raw,
            form: PhantomData,
        }
    }

    /// The object's bytes.
    #[must_use]
    pub const fn raw(&self) -> &Raw {
        &self.raw
    }

    /// The object's bytes, for a transform that changes them before they are stored.
    pub const fn raw_mut(&mut self) -> &mut Raw {
        &mut self.raw
    }
}

impl<T: DeserializeOwned> Packed<T> {
    /// Decodes the object; a pod of 5 KiB takes about 30 µs.
    ///
    /// # Errors
    /// The JSON does not fit `T`. This is not checked earlier: such objects are stored and delivered like any other.
    pub fn open(&self) -> Result<T, DecodeError> {
        self.raw.read()
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Self::new(self.raw.clone())
    }
}

impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Packed<T> {}

impl<T> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Packed").field(&self.raw).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn packed_objects_are_decoded_on_access() {
        let packed = |json: &'static [u8]| Packed::new(Raw::from_bytes(Bytes::from_static(json)));
        let good: Packed<ConfigMap> = packed(br#"{"metadata":{"name":"x"}}"#);
        assert_eq!(good.open().unwrap().metadata.name.as_deref(), Some("x"));
        let bad: Packed<ConfigMap> = packed(br#"{"metadata":[]}"#);
        assert!(bad.open().is_err());
    }
}
