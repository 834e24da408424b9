//! One object at one version: its wire bytes, and where in them the parts stand that the gateway reads.

use bytes::Bytes;

use super::{EventKind, ObjectKey, ResourceVersion};

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

/// One object at one version, immutable and shared.
///
/// Its bytes are kept inside the line of a watch event, `{"type":"…","object":{…}}` and a newline, as upstream
/// sent it: the line serves watchers, the slices of it serve lists, and nothing is stored twice.
#[derive(Debug)]
pub struct Object {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    version_span: Span,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
    type_prefix_len: u32,
    /// Ends with the object, a closing brace and a newline.
    line: Bytes,
    /// Where in `line` the object starts; it ends two bytes before the line does.
    start: u32,
}

#[expect(clippy::expect_used, reason = "a constant of a few bytes")]
fn line_head_len(kind: EventKind) -> u32 {
    u32::try_from(kind.line_head().len()).expect("a line head is a few bytes")
}

/// What follows the object in its line.
const LINE_END: &[u8] = b"}\n";

impl Object {
    /// Keeps scanned parts with the canonical event line that holds the object from `start` on.
    ///
    /// The spans in `parts` count from the object's first byte. A line that does not end with the object,
    /// `}` and a newline is not canonical: use [`Object::new`] on the object's own bytes then.
    #[must_use]
    pub fn in_line(parts: ObjectParts, line: Bytes, start: u32) -> Self {
        debug_assert!(
            line.ends_with(LINE_END),
            "an event line ends with its object"
        );
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
            line,
            start,
        }
    }

    /// Keeps scanned parts with the object's own bytes, copied once into a line of type `ADDED`.
    #[must_use]
    pub fn new(parts: ObjectParts, object: &[u8]) -> Self {
        let head = EventKind::Added.line_head();
        let line = [head.as_bytes(), object, LINE_END].concat();
        Self::in_line(parts, line.into(), line_head_len(EventKind::Added))
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

    /// The whole object as compact JSON, with `kind` and `apiVersion`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.line[self.start as usize..self.line.len() - LINE_END.len()]
    }

    /// Length of the event line in memory, in bytes.
    #[must_use]
    pub fn line_len(&self) -> usize {
        self.line.len()
    }

    /// The event line as it is kept, if it says `kind`.
    #[must_use]
    pub fn line_of(&self, kind: EventKind) -> Option<Bytes> {
        let head = kind.line_head().as_bytes();
        (self.start as usize == head.len() && self.line.starts_with(head))
            .then(|| self.line.clone())
    }

    /// The object and the end of its event line; what stands before it is [`EventKind::line_head`].
    #[must_use]
    pub fn line_tail(&self) -> Bytes {
        self.line.slice(self.start as usize..)
    }

    /// The object as a list item without its opening brace: `"metadata":{…}…}`; of a compiled-in kind
    /// also without `kind` and `apiVersion`.
    #[must_use]
    pub fn item_tail(&self) -> Bytes {
        let start = self.start as usize + 1 + self.type_prefix_len as usize;
        self.line.slice(start..self.line.len() - LINE_END.len())
    }

    /// The whole object without its opening brace, as a list item of a custom resource.
    #[must_use]
    pub fn whole_tail(&self) -> Bytes {
        self.line
            .slice(self.start as usize + 1..self.line.len() - LINE_END.len())
    }

    /// The same object at another version: the last state of a deletion that was only noticed later.
    #[must_use]
    #[expect(clippy::expect_used, reason = "twenty digits fit in any integer")]
    pub fn at_version(&self, version: ResourceVersion) -> Self {
        let line = self.deleted_line(version);
        let digits =
            u32::try_from(version.to_string().len()).expect("a version has at most twenty digits");
        Self {
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: version,
            version_span: Span {
                start: self.version_span.start,
                end: self.version_span.start + digits,
            },
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            type_prefix_len: self.type_prefix_len,
            start: line_head_len(EventKind::Deleted),
            line,
        }
    }

    /// A line of type `DELETED` with the object as it is but for the resource version, as watchers get
    /// it whose selector the object left, or that see it deleted (protocol.md §4.6).
    #[must_use]
    pub fn deleted_line(&self, version: ResourceVersion) -> Bytes {
        let digits = version.to_string();
        let object = &self.line[self.start as usize..];
        let (head, tail) = (
            self.version_span.start as usize,
            self.version_span.end as usize,
        );
        let line_head = EventKind::Deleted.line_head().as_bytes();
        [
            line_head,
            &object[..head],
            digits.as_bytes(),
            &object[tail..],
        ]
        .concat()
        .into()
    }
}
