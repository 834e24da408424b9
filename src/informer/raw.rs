//! Objects of any resource, kept as the bytes that came and decoded where somebody looks.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::list_watch::DecodeError;
use crate::resource::Object;

/// What follows an object in its event line.
const LINE_END_LEN: usize = 2;

/// A dynamic object: compact JSON with `kind` and `apiVersion`, as the server wrote it. Costs little more than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    pub(super) fn of(object: &Object) -> Self {
        let tail = object.line_tail();
        Self(tail.slice(..tail.len() - LINE_END_LEN))
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

    /// Reads the object, or those of its fields that `U` has.
    ///
    /// # Errors
    /// The JSON does not fit `U`.
    pub fn read<U: DeserializeOwned>(&self) -> Result<U, DecodeError> {
        serde_json::from_slice(&self.0).map_err(DecodeError::new)
    }
}
