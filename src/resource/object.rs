//! One object at one version: its wire bytes, and where in them the parts stand that the gateway reads.

use bytes::Bytes;

use super::wire::field_len;
use super::{Encoding, EventKind, FieldTable, Layout, ObjectKey, ResourceVersion, protobuf};

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

impl ObjectParts {
    /// What is known before anything was found: every selectable field is absent.
    #[must_use]
    pub fn before(fields: FieldTable) -> Self {
        let absent = fields.fields().iter();
        Self {
            fields: absent.map(|field| field.default.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// One object at one version, immutable and shared.
///
/// Its bytes are kept inside the frame of a watch event, as upstream sent it: a line `{"type":"…","object":{…}}` in
/// JSON, a message after its length in protobuf (protocol.md §4.11). The frame serves watchers, the slices of it serve
/// lists, and nothing is stored twice.
#[derive(Debug)]
pub struct Object {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    version_span: Span,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
    type_prefix_len: u32,
    encoding: Encoding,
    /// Ends with the object and [`frame_end`].
    frame: Bytes,
    /// Where in `frame` the object starts.
    start: u32,
}

/// What follows the object in its frame.
const fn frame_end(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"}\n",
        Encoding::Protobuf => protobuf::FRAME_END,
    }
}

#[expect(
    clippy::expect_used,
    reason = "frames are bounded far below 4 GiB where they are read"
)]
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a frame is shorter than 4 GiB")
}

impl Object {
    /// Keeps scanned parts with the canonical frame that holds the object from `start` on.
    ///
    /// The spans in `parts` count from the object's first byte. A frame that does not end with the object and what
    /// upstream writes after it is not canonical: use [`Object::new`] or [`Object::in_protobuf`] on the object's own
    /// bytes then.
    #[must_use]
    pub fn in_frame(parts: ObjectParts, encoding: Encoding, frame: Bytes, start: u32) -> Self {
        debug_assert!(
            frame.ends_with(frame_end(encoding)),
            "a frame ends with its object"
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
            encoding,
            frame,
            start,
        }
    }

    /// Keeps scanned parts with the object's own JSON, copied once into a line of type `ADDED`.
    #[must_use]
    pub fn new(parts: ObjectParts, object: &[u8]) -> Self {
        let head = EventKind::Added.line_head().as_bytes();
        let line = [head, object, frame_end(Encoding::Json)].concat();
        Self::in_frame(parts, Encoding::Json, line.into(), offset(head.len()))
    }

    /// Keeps scanned parts with a raw protobuf object, copied once into a frame of type `ADDED`. `type_meta` is the
    /// message of its `apiVersion` and `kind`, which list items leave out.
    #[must_use]
    pub fn in_protobuf(parts: ObjectParts, type_meta: &[u8], raw: &[u8]) -> Self {
        let (frame, start) = protobuf::frame_around(EventKind::Added.as_str(), type_meta, raw);
        Self::in_frame(parts, Encoding::Protobuf, frame.into(), offset(start))
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

    /// How its bytes are to be read.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The whole object: compact JSON with `kind` and `apiVersion`, or the raw message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.start as usize..self.end()]
    }

    /// The same bytes, sharing memory with the frame.
    #[must_use]
    pub fn shared_bytes(&self) -> Bytes {
        self.frame.slice(self.start as usize..self.end())
    }

    /// One past the object's last byte in the frame.
    fn end(&self) -> usize {
        self.frame.len() - frame_end(self.encoding).len()
    }

    /// Where in the frame the part starts that does not depend on the event's type.
    fn tail_start(&self) -> usize {
        match self.encoding {
            Encoding::Json => self.start as usize,
            Encoding::Protobuf => protobuf::rest_at(&self.frame),
        }
    }

    /// Length of the frame in memory, in bytes.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.frame.len()
    }

    /// The frame as it is kept, if it says `kind`.
    #[must_use]
    pub fn frame_of(&self, kind: EventKind) -> Option<Bytes> {
        let is_kind = match self.encoding {
            Encoding::Json => {
                let head = kind.line_head().as_bytes();
                self.start as usize == head.len() && self.frame.starts_with(head)
            }
            Encoding::Protobuf => {
                let word = kind.as_str().as_bytes();
                let at = self.tail_start();
                self.frame.get(at - word.len()..at) == Some(word)
            }
        };
        is_kind.then(|| self.frame.clone())
    }

    /// A frame that says `kind`, in two pieces, of which the second is shared.
    #[must_use]
    pub fn frame_pieces(&self, kind: EventKind) -> (Bytes, Bytes) {
        let tail = self.frame.slice(self.tail_start()..);
        let head = match self.encoding {
            Encoding::Json => Bytes::from_static(kind.line_head().as_bytes()),
            Encoding::Protobuf => protobuf::frame_head(kind, tail.len()).into(),
        };
        (head, tail)
    }

    /// A frame that says `kind`: the one that is kept if it does, else a copy.
    #[must_use]
    pub fn frame(&self, kind: EventKind) -> Bytes {
        self.frame_of(kind).unwrap_or_else(|| {
            let (head, tail) = self.frame_pieces(kind);
            [head, tail].concat().into()
        })
    }

    /// The object as a list item: in JSON without its opening brace, and of a compiled-in kind without `kind` and
    /// `apiVersion`; in protobuf the field of the list's message.
    #[must_use]
    pub fn list_item(&self, layout: Layout) -> Bytes {
        self.frame.slice(self.list_item_range(layout))
    }

    /// The same, borrowed.
    #[must_use]
    pub fn list_item_bytes(&self, layout: Layout) -> &[u8] {
        &self.frame[self.list_item_range(layout)]
    }

    fn list_item_range(&self, layout: Layout) -> std::ops::Range<usize> {
        let start = self.start as usize;
        let start = match (self.encoding, layout) {
            (Encoding::Json, Layout::Typed) => start + 1 + self.type_prefix_len as usize,
            (Encoding::Json, Layout::Dynamic) => start + 1,
            // Raw objects are field 2 of their wrapper, and items field 2 of their list.
            (Encoding::Protobuf, _) => start - (field_len(self.bytes().len()) - self.bytes().len()),
        };
        start..self.end()
    }

    /// The same object at another version: the last state of a deletion that was only noticed later.
    #[must_use]
    pub fn at_version(&self, version: ResourceVersion) -> Self {
        let (frame, start, version_span) = self.respliced(version);
        Self {
            key: self.key.clone(),
            uid: self.uid.clone(),
            resource_version: version,
            version_span,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            type_prefix_len: self.type_prefix_len,
            encoding: self.encoding,
            start: offset(start),
            frame,
        }
    }

    /// A frame of type `DELETED` with the object as it is but for the resource version, as watchers get
    /// it whose selector the object left, or that see it deleted (protocol.md §4.6).
    #[must_use]
    pub fn deleted_frame(&self, version: ResourceVersion) -> Bytes {
        self.respliced(version).0
    }

    /// Frame, start of the object in it, and where the version's digits stand in the object.
    fn respliced(&self, version: ResourceVersion) -> (Bytes, usize, Span) {
        let object = self.bytes();
        if self.encoding == Encoding::Protobuf {
            let spliced = protobuf::at_version(object, version);
            let parts =
                spliced.and_then(|spliced| Ok((spliced, protobuf::type_meta_of(&self.frame)?)));
            debug_assert!(parts.is_ok(), "frames in memory have been scanned");
            let Ok(((raw, span), type_meta)) = parts else {
                return (self.frame.clone(), self.start as usize, self.version_span);
            };
            let (frame, start) =
                protobuf::frame_around(EventKind::Deleted.as_str(), type_meta, &raw);
            return (frame.into(), start, span);
        }
        let digits = version.to_string();
        let (head, tail) = (
            self.version_span.start as usize,
            self.version_span.end as usize,
        );
        let line_head = EventKind::Deleted.line_head().as_bytes();
        let end = frame_end(self.encoding);
        let frame = [
            line_head,
            &object[..head],
            digits.as_bytes(),
            &object[tail..],
            end,
        ]
        .concat();
        let span = Span {
            start: self.version_span.start,
            end: self.version_span.start + offset(digits.len()),
        };
        (frame.into(), line_head.len(), span)
    }
}
