//! One object at one version: its wire bytes, and where in them the parts stand that the gateway reads.

mod packed;
mod parts;

use std::fmt;

use bytes::{Buf as _, Bytes};

use self::packed::{FramePieces, PackedBytes};
pub use self::parts::{ByteSpan, ObjectParts};
use super::wire::field_len;
use super::{Encoding, EventKind, KeyRef, Layout, ResourceVersion, protobuf};

/// One object at one version, immutable. Clones share it.
///
/// Its bytes are kept inside the frame of a watch event, as upstream sent it: a line `{"type":"…","object":{…}}` in
/// JSON, a message after its length in protobuf (docs/PROTOCOL.md §4.11). The frame serves watchers, the slices of it serve
/// lists, and nothing is stored twice. All of an object is one allocation (decision 14).
#[derive(Clone)]
pub struct Object(PackedBytes);

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
    /// Keeps a copy of the canonical frame that holds the object from `start` on.
    ///
    /// The spans in `parts` count from the object's first byte. A frame that does not end with the object and what
    /// upstream writes after it is not canonical: use [`Object::new`] or [`Object::in_protobuf`] on the object's own
    /// bytes then.
    #[must_use]
    pub fn in_frame(parts: ObjectParts<'_>, encoding: Encoding, frame: &[u8], start: u32) -> Self {
        let tail = frame_end(encoding);
        debug_assert!(frame.ends_with(tail), "a frame ends with its object");
        let (head, object) = frame.split_at(start as usize);
        let object = &object[..object.len() - tail.len()];
        Self::of(parts, encoding, head, object)
    }

    /// Keeps a copy of the object's own JSON, in a line of type `ADDED`.
    #[must_use]
    pub fn new(parts: ObjectParts<'_>, object: &[u8]) -> Self {
        let head = EventKind::Added.line_head().as_bytes();
        Self::of(parts, Encoding::Json, head, object)
    }

    /// The same for a list item that leaves out what it is: `types`, such as `"kind":"Pod","apiVersion":"v1",`, is put behind its
    /// opening brace. The item holds no newline.
    #[must_use]
    pub fn of_item(parts: ObjectParts<'_>, types: &[u8], item: &[u8]) -> Self {
        debug_assert!(item.starts_with(b"{"), "an item was scanned");
        let pieces = FramePieces {
            head: EventKind::Added.line_head().as_bytes(),
            object: item,
            types,
            tail: frame_end(Encoding::Json),
        };
        Self(PackedBytes::new(&parts, Encoding::Json, pieces))
    }

    /// Keeps a copy of a raw protobuf object, in a frame of type `ADDED`. `type_meta` is the message of its `apiVersion`
    /// and `kind`, which list items leave out.
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

    /// `metadata.uid`: differs after delete and recreate.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.0.uid()
    }

    /// The version of the write that made this state.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.0.version()
    }

    /// Labels in the order of their keys.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.labels()
    }

    /// The value of one label, found in a number of steps that grows with the logarithm of how many there are.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }

    /// The value of the selectable field at `index` of the resource's field table; `""` when absent.
    #[must_use]
    pub fn field(&self, index: usize) -> &str {
        self.0.field(index).unwrap_or_default()
    }

    /// How its bytes are to be read.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.0.encoding()
    }

    /// The whole object: compact JSON with `kind` and `apiVersion`, or the raw message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = self.end();
        &self.0.frame()[self.0.start()..end]
    }

    /// A piece of the frame, sharing its memory.
    fn shared(&self, start: usize, end: usize) -> Bytes {
        let mut bytes = Bytes::from_owner(self.0.clone());
        // Not `slice`, which would count one reference more and one less.
        bytes.advance(self.0.frame_at() + start);
        bytes.truncate(end - start);
        bytes
    }

    /// One past the object's last byte in the frame.
    fn end(&self) -> usize {
        self.frame_len() - frame_end(self.encoding()).len()
    }

    /// Where in the frame the part starts that does not depend on the event's type.
    fn tail_start(&self) -> usize {
        match self.encoding() {
            Encoding::Json => self.0.start(),
            Encoding::Protobuf => protobuf::rest_at(self.0.frame()),
        }
    }

    /// Length of the frame, in bytes.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.0.frame_len()
    }

    /// Bytes of memory that the object takes, but for what the allocator adds.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.0.memory_len()
    }

    /// The frame as it is kept, if it says `kind`.
    #[must_use]
    pub fn frame_of(&self, kind: EventKind) -> Option<Bytes> {
        self.says(kind).then(|| self.shared(0, self.frame_len()))
    }

    /// Whether the frame says `kind` as it is kept.
    fn says(&self, kind: EventKind) -> bool {
        let frame = self.0.frame();
        match self.encoding() {
            Encoding::Json => {
                let head = kind.line_head().as_bytes();
                self.0.start() == head.len() && frame.starts_with(head)
            }
            Encoding::Protobuf => {
                let word = kind.as_str().as_bytes();
                let at = self.tail_start();
                frame.get(at - word.len()..at) == Some(word)
            }
        }
    }

    /// The frame that says `kind` in two borrowed pieces, the first of which may be empty. `None` if the first would have to be
    /// made: in protobuf it holds lengths.
    #[must_use]
    pub fn frame_bytes(&self, kind: EventKind) -> Option<(&'static [u8], &[u8])> {
        let frame = self.0.frame();
        if self.says(kind) {
            return Some((b"", frame));
        }
        let is_json = self.encoding() == Encoding::Json;
        is_json.then(|| (kind.line_head().as_bytes(), &frame[self.tail_start()..]))
    }

    /// A frame that says `kind`, in two pieces, of which the second is shared.
    #[must_use]
    pub fn frame_pieces(&self, kind: EventKind) -> (Bytes, Bytes) {
        let tail = self.shared(self.tail_start(), self.frame_len());
        let head = match self.encoding() {
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
        let range = self.list_item_range(layout);
        self.shared(range.start, range.end)
    }

    /// The same, borrowed.
    #[must_use]
    pub fn list_item_bytes(&self, layout: Layout) -> &[u8] {
        &self.0.frame()[self.list_item_range(layout)]
    }

    fn list_item_range(&self, layout: Layout) -> std::ops::Range<usize> {
        let (start, end) = (self.0.start(), self.end());
        let start = match (self.encoding(), layout) {
            (Encoding::Json, Layout::Typed) => start + 1 + self.0.type_prefix_len(),
            (Encoding::Json, Layout::Dynamic) => start + 1,
            // Raw objects are field 2 of their wrapper, and items field 2 of their list.
            (Encoding::Protobuf, _) => start - (field_len(end - start) - (end - start)),
        };
        start..end
    }

    /// The same object at another version: the last state of a deletion that was only noticed later.
    #[must_use]
    pub fn at_version(&self, version: ResourceVersion) -> Self {
        let (frame, start, version_span) = self.respliced(version);
        let key = self.key();
        // What texts stood in the old frame is copied: such objects are few, and soon leave the history.
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

    /// A frame of type `DELETED` with the object as it is but for the resource version, as watchers get
    /// it whose selector the object left, or that see it deleted (docs/PROTOCOL.md §4.6).
    #[must_use]
    pub fn deleted_frame(&self, version: ResourceVersion) -> Bytes {
        self.respliced(version).0
    }

    /// Frame, start of the object in it, and where the version's digits stand in the object.
    fn respliced(&self, version: ResourceVersion) -> (Bytes, usize, ByteSpan) {
        let object = self.bytes();
        let version_span = self.0.version_span();
        if self.encoding() == Encoding::Protobuf {
            let frame = self.0.frame();
            let spliced = protobuf::at_version(object, version);
            let parts = spliced.and_then(|spliced| Ok((spliced, protobuf::type_meta_of(frame)?)));
            debug_assert!(parts.is_ok(), "frames in memory have been scanned");
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
