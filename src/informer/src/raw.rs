//! Objects of any resource, kept as the bytes received, and decoded on access.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::decode::without_managed_fields;
use crate::resource::Object;

/// A dynamic object: compact JSON with `kind` and `apiVersion`, as the server sent it. It takes little more memory than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    pub(super) fn of(object: &Object) -> Self {
        // Copied, because a shared slice would keep the whole frame and the positions of the object's parts in memory.
        Self(Bytes::copy_from_slice(object.bytes()))
    }

    /// Creates an object from JSON, for transforms and tests.
    #[must_use]
    pub const fn from_bytes(json: Bytes) -> Self {
        Self(json)
    }

    /// The object's JSON.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes `metadata.managedFields`, for transforms: they are often a quarter of an object, and few controllers read them. An
    /// object without them, or that is not JSON, is returned unchanged.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        match without_managed_fields(&self.0) {
            Some(cut) => Self(cut.into()),
            None => self,
        }
    }

    /// Decodes the object as `U`, which may have only some of its fields.
    ///
    /// # Errors
    /// The JSON does not fit `U`.
    pub fn read<U: DeserializeOwned>(&self) -> Result<U, DecodeError> {
        serde_json::from_slice(&self.0).map_err(DecodeError::new)
    }
}

/// The JSON of an object does not fit the requested type.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read")]
pub struct DecodeError(#[source] serde_json::Error);

impl DecodeError {
    pub(super) const fn new(error: serde_json::Error) -> Self {
        Self(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(object: &'static str, expected: &str) {
        let raw = Raw::from_bytes(Bytes::from_static(object.as_bytes()));
        let cut = raw.without_managed_fields();
        assert_eq!(str::from_utf8(cut.bytes()).unwrap(), expected);
    }

    #[test]
    fn managed_fields_go_wherever_they_stand_and_nothing_else_does() {
        let cases = [
            (
                r#"{"metadata":{"name":"x","managedFields":[{"a":{}}]},"spec":{}}"#,
                r#"{"metadata":{"name":"x"},"spec":{}}"#,
            ),
            (
                r#"{"metadata":{"managedFields":[],"name":"x"}}"#,
                r#"{"metadata":{"name":"x"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x","managedFields":null,"uid":"u"}}"#,
                r#"{"metadata":{"name":"x","uid":"u"}}"#,
            ),
            (r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#),
        ];
        for (object, expected) in cases {
            check(object, expected);
        }
        for untouched in [
            r#"{"metadata":{"name":"x"},"managedFields":[]}"#,
            r#"{"spec":{}}"#,
            "{",
        ] {
            check(untouched, untouched);
        }
    }
}
