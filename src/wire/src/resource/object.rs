//! One object at one version: its wire bytes, and the positions of the parts that the gateway reads.

mod packed;
mod parts;

use std::fmt;

use bytes::{Buf as _, Bytes};

use self::packed::{FramePieces, PackedBytes, offset};
pub use self::parts::ObjectParts;
use super::wire::field_len;
use super::{
    ByteSpan, Encoding, EventKind, KeyRef, Layout, ResourceVersion, allocated_len, protobuf,
};

/// One object at one version, immutable. Clones share its memory.
///
/// Its bytes are kept inside the frame of a watch event, as upstream sent it: a line `{"type":"…","object":{…}}` in
/// JSON, a message preceded by its length in protobuf (docs/PROTOCOL.md §4.11). Watches send the frame and lists send
/// slices of it, so nothing is stored twice. An object is one allocation (decision 14).
#[derive(Clone)]
pub struct Object(PackedBytes);

/// The bytes that follow the object in its frame.
const fn frame_end(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"}\n",
        Encoding::Protobuf => protobuf::FRAME_END,
    }
}

impl Object {
    /// Copies a canonical frame that holds the object from `start` on.
    ///
    /// The spans in `parts` count from the object's first byte. A frame is canonical if nothing follows the object but the bytes
    /// that upstream always writes there. For any other frame, pass the object's own bytes to [`Object::new`] or
    /// [`Object::in_protobuf`].
    #[must_use]
    pub fn in_frame(parts: ObjectParts<'_>, encoding: Encoding, frame: &[u8], start: u32) -> Self {
        let tail = frame_end(encoding);
        debug_assert!(
            frame.ends_with(tail),
            "the frame does not end with its object"
        );
        let (head, object) = frame.split_at(start as usize);
        let object = &object[..object.len() - tail.len()];
        Self::of(parts, encoding, head, object)
    }

    /// Copies the object's own JSON into a line of type `ADDED`.
    #[must_use]
    pub fn new(parts: ObjectParts<'_>, object: &[u8]) -> Self {
        let head = EventKind::Added.line_head().as_bytes();
        Self::of(parts, Encoding::Json, head, object)
    }

    /// Like [`Object::new`], for a list item without `kind` and `apiVersion`: inserts `types`, such as
    /// `"kind":"Pod","apiVersion":"v1",`, after the item's opening brace. The item must not contain a newline.
    #[must_use]
    pub fn of_item(parts: ObjectParts<'_>, types: &[u8], item: &[u8]) -> Self {
        debug_assert!(item.starts_with(b"{"), "a list item starts with a brace");
        let pieces = FramePieces {
            head: EventKind::Added.line_head().as_bytes(),
            object: item,
            types,
            tail: frame_end(Encoding::Json),
        };
        Self(PackedBytes::new(&parts, Encoding::Json, pieces))
    }

    /// Copies a raw protobuf object into a frame of type `ADDED`. `type_meta` is the message of its `apiVersion` and `kind`,
    /// which list items leave out.
    #[must_use]
    pub fn in_protobuf(parts: ObjectParts<'_>, type_meta: &[u8], raw: &[u8]) -> Self {
        let head = protobuf::frame_before(EventKind::Added.as_str(), type_meta, raw.len());
        Self::of(parts, Encoding::Protobuf, &head, raw)
    }

    fn of(parts: ObjectParts<'_>, encoding: Encoding, head: &[u8], object: &[u8]) -> Self {
        let tail = frame_end(encoding);
        let pieces = FramePieces {
            head,
            object,
            types: b"",
            tail,
        };
        Self(PackedBytes::new(&parts, encoding, pieces))
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> KeyRef<'_> {
        let (namespace, name) = self.0.key();
        KeyRef::of_bytes(namespace, name)
    }

    /// `metadata.uid`; an object that is deleted and created again has another one.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.0.uid()
    }

    /// The version of the write that produced this state.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.0.version()
    }

    /// The labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.labels()
    }

    /// The value of one label, found by binary search.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }

    /// The value of the selectable field at `index` of the resource's field table; `""` if there is no such index.
    #[must_use]
    pub fn field(&self, index: usize) -> &str {
        self.0.field(index).unwrap_or_default()
    }

    /// The encoding of the object's bytes.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.0.encoding()
    }

    /// The whole object: compact JSON with `kind` and `apiVersion`, or the raw protobuf message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.frame()[self.0.start()..self.end()]
    }

    /// A slice of the frame that shares its memory.
    fn shared(&self, start: usize, end: usize) -> Bytes {
        let mut bytes = Bytes::from_owner(self.0.clone());
        // `slice` would increment and decrement the reference count once more.
        bytes.advance(self.0.frame_at() + start);
        bytes.truncate(end - start);
        bytes
    }

    /// The end of the object in the frame: one past its last byte.
    fn end(&self) -> usize {
        self.frame_len() - frame_end(self.encoding()).len()
    }

    /// Where in the frame the part begins that does not depend on the event's type.
    fn tail_start(&self) -> usize {
        match self.encoding() {
            Encoding::Json => self.0.start(),
            Encoding::Protobuf => protobuf::rest_at(self.0.frame()),
        }
    }

    /// The frame as it is stored, whatever its type.
    #[must_use]
    pub fn stored_frame(&self) -> &[u8] {
        self.0.frame()
    }

    /// Length of the frame, in bytes.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.0.frame_len()
    }

    /// Bytes of memory that the object takes, without the allocator's overhead.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.0.memory_len()
    }

    /// Bytes of memory that the object takes, rounded up as the allocator does.
    #[must_use]
    pub fn allocated_len(&self) -> usize {
        allocated_len(self.memory_len())
    }

    /// The stored frame, if its type is `kind`.
    #[must_use]
    pub fn frame_of(&self, kind: EventKind) -> Option<Bytes> {
        self.has_type(kind)
            .then(|| self.shared(0, self.frame_len()))
    }

    /// Whether the type in the stored frame is `kind`.
    fn has_type(&self, kind: EventKind) -> bool {
        let frame = self.0.frame();
        match self.encoding() {
            Encoding::Json => {
                let head = kind.line_head().as_bytes();
                self.0.start() == head.len() && frame.starts_with(head)
            }
            Encoding::Protobuf => {
                let name = kind.as_str().as_bytes();
                let at = self.tail_start();
                frame.get(at - name.len()..at) == Some(name)
            }
        }
    }

    /// The frame of type `kind` in two borrowed pieces, the first of which may be empty. `None` if the first piece would have to be
    /// built: in protobuf it holds lengths.
    #[must_use]
    pub fn frame_bytes(&self, kind: EventKind) -> Option<(&'static [u8], &[u8])> {
        let frame = self.0.frame();
        if self.has_type(kind) {
            return Some((b"", frame));
        }
        let is_json = self.encoding() == Encoding::Json;
        is_json.then(|| (kind.line_head().as_bytes(), &frame[self.tail_start()..]))
    }

    /// The frame of type `kind` in two pieces; the second shares the object's memory.
    #[must_use]
    pub fn frame_pieces(&self, kind: EventKind) -> (Bytes, Bytes) {
        let tail = self.shared(self.tail_start(), self.frame_len());
        let head = match self.encoding() {
            Encoding::Json => Bytes::from_static(kind.line_head().as_bytes()),
            Encoding::Protobuf => protobuf::frame_head(kind, tail.len()).into(),
        };
        (head, tail)
    }

    /// The frame of type `kind`: the stored one if its type is `kind`, otherwise a copy.
    #[must_use]
    pub fn frame(&self, kind: EventKind) -> Bytes {
        self.frame_of(kind).unwrap_or_else(|| {
            let (head, tail) = self.frame_pieces(kind);
            [head, tail].concat().into()
        })
    }

    /// The object as a list item. In JSON the opening brace is left out, and for a compiled-in kind also `kind` and
    /// `apiVersion`; in protobuf it is the field of the list's message, tag and length included.
    #[must_use]
    pub fn list_item(&self, layout: Layout) -> Bytes {
        let range = self.list_item_range(layout);
        self.shared(range.start, range.end)
    }

    /// Like [`Object::list_item`], borrowed.
    #[must_use]
    pub fn list_item_bytes(&self, layout: Layout) -> &[u8] {
        &self.0.frame()[self.list_item_range(layout)]
    }

    fn list_item_range(&self, layout: Layout) -> std::ops::Range<usize> {
        let (start, end) = (self.0.start(), self.end());
        let start = match (self.encoding(), layout) {
            (Encoding::Json, Layout::Typed) => start + 1 + self.0.type_prefix_len(),
            (Encoding::Json, Layout::Dynamic) => start + 1,
            // A raw object is field 2 of its wrapper, and an item is field 2 of its list: both have the same tag and length.
            (Encoding::Protobuf, _) => start - (field_len(end - start) - (end - start)),
        };
        start..end
    }

    /// The same object at another version: the last state for a deletion that a relist discovers.
    #[must_use]
    pub fn at_version(&self, version: ResourceVersion) -> Self {
        let (frame, start, version_span) = self.respliced(version);
        let key = self.key();
        // The texts are copied: there are few such objects, and they soon leave the history.
        let parts = ObjectParts {
            namespace: key.namespace().into(),
            name: key.name().into(),
            uid: self.uid().into(),
            resource_version: version,
            version_span,
            labels: self.labels().map(|(k, v)| (k.into(), v.into())).collect(),
            fields: self.0.fields().map(Into::into).collect(),
            type_prefix_len: offset(self.0.type_prefix_len()),
        };
        Self::in_frame(parts, self.encoding(), &frame, offset(start))
    }

    /// A frame of type `DELETED` with the object unchanged but for its resource version (docs/PROTOCOL.md §4.6). Watches get
    /// it when the object is deleted, or leaves their selector.
    #[must_use]
    pub fn deleted_frame(&self, version: ResourceVersion) -> Bytes {
        self.respliced(version).0
    }

    /// The `DELETED` frame at `version`, where the object starts in it, and where the version's digits are in the object.
    fn respliced(&self, version: ResourceVersion) -> (Bytes, usize, ByteSpan) {
        let object = self.bytes();
        let version_span = self.0.version_span();
        if self.encoding() == Encoding::Protobuf {
            let frame = self.0.frame();
            let spliced = protobuf::at_version(object, version);
            let parts = spliced.and_then(|spliced| Ok((spliced, protobuf::type_meta_of(frame)?)));
            debug_assert!(parts.is_ok(), "the object was scanned before it was kept");
            let Ok(((raw, span), type_meta)) = parts else {
                return (self.shared(0, frame.len()), self.0.start(), version_span);
            };
            let (frame, start) =
                protobuf::frame_around(EventKind::Deleted.as_str(), type_meta, &raw);
            return (frame.into(), start, span);
        }
        let digits = version.to_string();
        let (head, tail) = (version_span.start as usize, version_span.end as usize);
        let line_head = EventKind::Deleted.line_head().as_bytes();
        let frame = [
            line_head,
            &object[..head],
            digits.as_bytes(),
            &object[tail..],
            frame_end(Encoding::Json),
        ]
        .concat();
        let span = ByteSpan {
            start: version_span.start,
            end: version_span.start + offset(digits.len()),
        };
        (frame.into(), line_head.len(), span)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} at {})", self.key(), self.resource_version())
    }
}

#[cfg(test)]
mod tests;
