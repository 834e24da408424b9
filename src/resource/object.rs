//! One object at one version: its wire bytes, and where in them the parts stand that the gateway reads.

use bytes::Bytes;

use super::{ObjectKey, ResourceVersion};

/// A piece of an object's bytes, `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The spanned bytes.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

/// What a scanner found; turned into an [`Object`] by [`Object::new`].
#[derive(Clone, Debug, Default)]
pub struct ObjectParts {
    /// `metadata.namespace`; empty when cluster-scoped.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// Where the digits of `metadata.resourceVersion` stand, without quotes.
    pub version_span: Span,
    /// `metadata.labels`, decoded, in wire order.
    pub labels: Vec<(String, String)>,
    /// Values of the resource's selectable fields, in the order of its field table; absent is `""`.
    pub fields: Vec<String>,
    /// Length of a leading `"kind":…,"apiVersion":…,` after the opening brace, which list items of
    /// compiled-in kinds leave out; 0 where there is none.
    pub type_prefix_len: u32,
}

/// One object at one version, immutable and shared. The bytes are its compact JSON as a watch event carries it.
#[derive(Debug)]
pub struct Object {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    version_span: Span,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
    type_prefix_len: u32,
    bytes: Bytes,
}

impl Object {
    /// Joins scanned parts with the bytes that they were found in.
    #[must_use]
    pub fn new(parts: ObjectParts, bytes: Bytes) -> Self {
        Self {
            key: ObjectKey::new(&parts.namespace, &parts.name),
            uid: parts.uid.into(),
            resource_version: parts.resource_version,
            version_span: parts.version_span,
            labels: parts
                .labels
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            fields: parts.fields.into_iter().map(Into::into).collect(),
            type_prefix_len: parts.type_prefix_len,
            bytes,
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`: differs after delete and recreate.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The version of the write that made this state.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Labels in wire order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The value of one label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(k, _)| &**k == key)
            .map(|(_, v)| &**v)
    }

    /// The value of the selectable field at `index` of the resource's field table; `""` when absent.
    #[must_use]
    pub fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", |value| value)
    }

    /// The whole object, with `kind` and `apiVersion`.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The object as a list item of a compiled-in kind, after its opening brace: `"metadata":{…}…}`.
    #[must_use]
    pub fn item_tail(&self) -> Bytes {
        self.bytes.slice(1 + self.type_prefix_len as usize..)
    }

    /// The object's bytes with another resource version, as DELETED events carry it (protocol.md §4.6).
    #[must_use]
    pub fn bytes_at(&self, version: ResourceVersion) -> Vec<u8> {
        let digits = version.to_string();
        let (head, tail) = (
            self.version_span.start as usize,
            self.version_span.end as usize,
        );
        [&self.bytes[..head], digits.as_bytes(), &self.bytes[tail..]].concat()
    }
}
