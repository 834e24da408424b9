//! Objects of any resource, kept as the bytes that came and decoded where somebody looks.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::list_watch::DecodeError;
use crate::decode::members;
use crate::resource::{Object, Span};

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

    /// The same without `metadata.managedFields`, which are often a quarter of an object and which few controllers read; for
    /// transforms. An object that has none, or that is no JSON, stays as it is.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        let Some(cut) = managed_fields(&self.0) else {
            return self;
        };
        let (head, tail) = (&self.0[..cut.start as usize], &self.0[cut.end as usize..]);
        Self([head, tail].concat().into())
    }

    /// Reads the object, or those of its fields that `U` has.
    ///
    /// # Errors
    /// The JSON does not fit `U`.
    pub fn read<U: DeserializeOwned>(&self) -> Result<U, DecodeError> {
        serde_json::from_slice(&self.0).map_err(DecodeError::new)
    }
}

/// Where the member stands, with the comma that goes with it.
fn managed_fields(object: &[u8]) -> Option<Span> {
    let metadata = member(object, "metadata")?;
    let fields = metadata.of(object);
    let found = members(fields).ok()?;
    let place = found.iter().position(|(key, _)| *key == "managedFields")?;
    let (key_len, value) = (found[place].0.len(), found[place].1);
    // Compact JSON: key in quotes, colon, value.
    let at = (value.start as usize).checked_sub(key_len + 3)?;
    let end = value.end as usize;
    let (start, end) = if place > 0 {
        (at.checked_sub(1)?, end)
    } else {
        (at, if found.len() > 1 { end + 1 } else { end })
    };
    let is_whole = start < at && fields[start] == b',' || start == at;
    let offset = metadata.start;
    is_whole.then_some(Span {
        start: offset + u32::try_from(start).ok()?,
        end: offset + u32::try_from(end).ok()?,
    })
}

fn member(object: &[u8], name: &str) -> Option<Span> {
    let found = members(object).ok()?;
    found
        .into_iter()
        .find_map(|(key, span)| (key == name).then_some(span))
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
