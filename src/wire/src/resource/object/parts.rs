//! The parts of an object that a scanner found, before they are packed into an [`Object`](super::Object).

use std::borrow::Cow;

use crate::resource::{ByteSpan, FieldTable, ResourceVersion};

/// The parts that a scanner found; [`Object::new`](super::Object::new) turns them into an [`Object`](super::Object).
///
/// A text that occurs in the scanned bytes without escapes is borrowed from them: the object then keeps no second copy
/// of it.
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
    /// The digits of `metadata.resourceVersion`, without quotes.
    pub version_span: ByteSpan,
    /// `metadata.labels`, decoded, in wire order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Values of the resource's selectable fields, in the order of its field table; an absent field has its default.
    pub fields: Vec<Cow<'a, str>>,
    /// Length of the `"kind":…,"apiVersion":…,` after the opening brace, which list items of
    /// compiled-in kinds leave out; 0 where there is none.
    pub type_prefix_len: u32,
}

impl ObjectParts<'_> {
    /// The parts before a scan: every selectable field has its default.
    #[must_use]
    pub fn before(fields: FieldTable) -> Self {
        Self {
            fields: fields
                .fields()
                .iter()
                .map(|field| field.default.into())
                .collect(),
            ..Self::default()
        }
    }
}
