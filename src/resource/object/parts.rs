//! What a scanner finds in an object, before it is kept.

use std::borrow::Cow;

use crate::resource::{FieldTable, ResourceVersion};

/// A piece of an object's bytes, `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSpan {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl ByteSpan {
    /// The spanned bytes.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// What a scanner found; turned into an [`Object`](super::Object) by [`Object::new`](super::Object::new).
///
/// Texts are borrowed from the scanned bytes where they stand in them as they are, without escapes: the object then
/// keeps no copy of them.
#[derive(Clone, Debug, Default)]
pub struct ObjectParts<'a> {
    /// `metadata.namespace`; empty when cluster-scoped.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// Where the digits of `metadata.resourceVersion` stand, without quotes.
    pub version_span: ByteSpan,
    /// `metadata.labels`, decoded, in wire order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Values of the resource's selectable fields, in the order of its field table; absent is `""`.
    pub fields: Vec<Cow<'a, str>>,
    /// Length of a leading `"kind":…,"apiVersion":…,` after the opening brace, which list items of
    /// compiled-in kinds leave out; 0 where there is none.
    pub type_prefix_len: u32,
}

impl ObjectParts<'_> {
    /// What is known before anything was found: every selectable field is absent.
    #[must_use]
    pub fn before(fields: FieldTable) -> Self {
        let absent = fields.fields().iter();
        Self {
            fields: absent.map(|field| field.default.into()).collect(),
            ..Self::default()
        }
    }
}
