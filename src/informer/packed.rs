//! Typed objects kept as the bytes that came. Decodes where somebody looks, each time.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::Raw;
use super::list_watch::DecodeError;

/// A `T` in as little memory as its JSON: a decoded Kubernetes struct takes several times that, most of it for fields
/// that are absent. Worth it where objects are many and few of them are looked at.
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

    /// The bytes.
    #[must_use]
    pub const fn raw(&self) -> &Raw {
        &self.raw
    }

    /// The bytes, to be changed before they are stored.
    pub const fn raw_mut(&mut self) -> &mut Raw {
        &mut self.raw
    }
}

impl<T: DeserializeOwned> Packed<T> {
    /// Decodes the object; a pod of 5 KiB takes some 30 µs.
    ///
    /// # Errors
    /// The JSON does not fit `T`. Nobody has looked before: such objects are stored and told as any other.
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
    fn what_is_packed_is_decoded_when_it_is_opened() {
        let packed = |json: &'static [u8]| Packed::new(Raw::from_bytes(Bytes::from_static(json)));
        let good: Packed<ConfigMap> = packed(br#"{"metadata":{"name":"x"}}"#);
        assert_eq!(good.open().unwrap().metadata.name.as_deref(), Some("x"));
        let bad: Packed<ConfigMap> = packed(br#"{"metadata":[]}"#);
        assert!(bad.open().is_err());
    }
}
