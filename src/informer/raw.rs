//! Objects of any resource, kept as the bytes that came and decoded where somebody looks.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::list_watch::DecodeError;
use crate::decode::without_managed_fields;
use crate::resource::Object;

/// A dynamic object: compact JSON with `kind` and `apiVersion`, as the server wrote it. Costs little more than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    pub(super) fn of(object: &Object) -> Self {
        // A copy, because the object ends here: its places and its frame would stay for as long as these bytes.
        Self(Bytes::copy_from_slice(object.bytes()))
    }

    /// An object of one's own making, for transforms and tests.
    #[must_use]
    pub const fn from_bytes(json: Bytes) -> Self {
        Self(json)
    }

    /// The object's JSON.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same without `metadata.managedFields`, which are often a quarter of an object and which few controllers read; for
    /// transforms. An object that has none, or that is no JSON, stays as it is.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        match without_managed_fields(&self.0) {
            Some(cut) => Self(cut.into()),
            None => self,
        }
    }

    /// Reads the object, or those of its fields that `U` has.
    ///
    /// # Errors
    /// The JSON does not fit `U`.
    pub fn read<U: DeserializeOwned>(&self) -> Result<U, DecodeError> {
        serde_json::from_slice(&self.0).map_err(DecodeError::new)
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
