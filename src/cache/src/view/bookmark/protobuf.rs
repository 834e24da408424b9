//! The template of bookmarks in protobuf: the fields around the version in a bookmark's message.

use super::marker::Marker;
use crate::resource::wire::{WireField, WireFields, WireValue, put_bytes, put_head};
use crate::resource::{ByteSpan, ResourceVersion};

const METADATA: u32 = 1;
const RESOURCE_VERSION: u32 = 6;
const ANNOTATIONS: u32 = 12;

/// The fields around the version in a resource's bookmarks, as [`JsonTemplate`](super::JsonTemplate) is for JSON.
///
/// Typed objects contain fields that cannot be left out even if empty; upstream's own bookmark shows which ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtobufTemplate {
    /// The metadata's fields before the version.
    before: Vec<u8>,
    /// The metadata's fields between the version and the annotations.
    between: Vec<u8>,
    /// The metadata's fields after the annotations.
    after: Vec<u8>,
    /// The object's fields after metadata.
    rest: Vec<u8>,
}

impl ProtobufTemplate {
    /// The fields that all bookmarks have: metadata with the empty fields that 1.36 writes. This is complete for kinds with only
    /// optional fields, such as config maps, and for metadata alone.
    #[must_use]
    pub(super) fn guessed() -> Self {
        Self {
            // name, generateName, namespace, selfLink and uid.
            before: vec![0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0],
            // generation and creationTimestamp.
            between: vec![0x38, 0, 0x42, 0],
            after: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// The template that produces a bookmark's message which upstream sent; `version` spans the digits.
    ///
    /// `None` if the message does not have a bookmark's layout; then the template from [`Self::guessed`] stays in use.
    #[must_use]
    pub(super) fn seen(raw: &[u8], version: ByteSpan) -> Option<Self> {
        let metadata = WireFields::new(raw).next()?.ok()?;
        let value = metadata
            .bytes()
            .filter(|_| metadata.number == METADATA && metadata.span.start == 0)?;
        let mut template = Self {
            before: Vec::new(),
            between: Vec::new(),
            after: Vec::new(),
            rest: raw[metadata.span.end as usize..].to_vec(),
        };
        let mut marker = Marker::None;
        let mut has_version = false;
        for field in WireFields::within(raw, value) {
            let field = field.ok()?;
            let bytes = field.span.of(raw);
            if field.bytes() == Some(version) && field.number == RESOURCE_VERSION {
                has_version = true;
            } else if bytes == annotation() {
                marker = Marker::InitialEventsEnd;
            } else if !is_empty(&field) {
                return None;
            } else if !has_version {
                template.before.extend_from_slice(bytes);
            } else if field.number < ANNOTATIONS {
                template.between.extend_from_slice(bytes);
            } else {
                template.after.extend_from_slice(bytes);
            }
        }
        // All watches will receive this: a template that does not reproduce the bookmark it was taken from is not used.
        let digits = has_version.then(|| version.of(raw))?;
        (template.message(digits, marker) == raw).then_some(template)
    }

    /// The message of a bookmark, without its envelope.
    #[must_use]
    pub(super) fn raw(&self, version: ResourceVersion, marker: Marker) -> Vec<u8> {
        self.message(version.to_string().as_bytes(), marker)
    }

    fn message(&self, digits: &[u8], marker: Marker) -> Vec<u8> {
        let mut metadata = self.before.clone();
        put_bytes(&mut metadata, RESOURCE_VERSION, digits);
        metadata.extend_from_slice(&self.between);
        if marker == Marker::InitialEventsEnd {
            metadata.extend_from_slice(&annotation());
        }
        metadata.extend_from_slice(&self.after);
        let mut out = Vec::with_capacity(4 + metadata.len() + self.rest.len());
        put_bytes(&mut out, METADATA, &metadata);
        out.extend_from_slice(&self.rest);
        out
    }
}

/// The entry of the annotations that ends the initial events.
fn annotation() -> Vec<u8> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, b"k8s.io/initial-events-end");
    put_bytes(&mut entry, 2, b"true");
    let mut out = Vec::new();
    put_head(&mut out, ANNOTATIONS, entry.len());
    out.extend_from_slice(&entry);
    out
}

/// Whether a field has an empty value, and is there only because it cannot be left out.
const fn is_empty(field: &WireField) -> bool {
    match field.value {
        WireValue::Varint(value) => value == 0,
        WireValue::Bytes(span) => span.start == span.end,
        WireValue::Fixed => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::{Frames, WatchLine, scan_frame};
    use crate::resource::protobuf::{frame_around, type_meta_of};
    use crate::resource::{Encoding, FieldTable, Layout};
    use crate::view::bookmark::BookmarkTemplate;

    /// The bookmarks of a captured stream: frame, version, span of the version's digits, and marker.
    fn bookmarks(name: &str) -> Vec<(Vec<u8>, ResourceVersion, ByteSpan, Marker)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captured");
        let mut framer = Frames::new(Encoding::Protobuf, 1 << 20);
        framer.push(&std::fs::read(format!("{folder}/{name}.frames")).unwrap());
        let mut found = Vec::new();
        while let Some(frame) = framer.next_frame().unwrap() {
            if let WatchLine::Bookmark(bookmark) = scan_frame(frame, FieldTable::default()).unwrap()
            {
                let marker = match bookmark.initial_events_end {
                    true => Marker::InitialEventsEnd,
                    false => Marker::None,
                };
                let version = bookmark.resource_version;
                found.push((frame.into(), version, bookmark.version_span, marker));
            }
        }
        found
    }

    /// The message inside a frame; in this test the frame ends with it.
    fn raw_of(frame: &[u8]) -> Vec<u8> {
        let types = type_meta_of(frame).unwrap();
        let at = frame.windows(types.len()).position(|piece| piece == types);
        let behind = ByteSpan {
            start: u32::try_from(at.unwrap() + types.len()).unwrap(),
            end: u32::try_from(frame.len()).unwrap(),
        };
        let raw = WireFields::within(frame, behind).next().unwrap().unwrap();
        raw.bytes().unwrap().of(frame).to_vec()
    }

    #[test]
    fn one_bookmark_gives_the_template_of_all_others() {
        for name in [
            "pods",
            "configmaps",
            "nodes",
            "jobs",
            "services",
            "widgets.partial",
        ] {
            let bookmarks = bookmarks(name);
            assert!(bookmarks.len() >= 2, "{name}");
            for (frame, _, span, _) in &bookmarks {
                let template = ProtobufTemplate::seen(&raw_of(frame), *span).unwrap();
                for (other, version, _, marker) in &bookmarks {
                    let raw = template.raw(*version, *marker);
                    let types = type_meta_of(other).unwrap();
                    assert_eq!(&frame_around("BOOKMARK", types, &raw).0, other, "{name}");
                }
            }
        }
    }

    #[test]
    fn whole_frames_are_written_as_upstream_writes_them() {
        let mut kind = crate::cache::samples::kind(Layout::Typed);
        kind.encoding = Encoding::Protobuf;
        for (frame, version, span, marker) in bookmarks("configmaps") {
            let seen = BookmarkTemplate::seen(&raw_of(&frame), span, &kind).unwrap();
            assert_eq!(seen.frame(version, marker), frame);
            assert_eq!(seen, BookmarkTemplate::guessed(&kind));
        }
    }

    #[test]
    fn the_guess_is_what_kinds_without_required_fields_have() {
        for name in ["configmaps", "pods.partial", "widgets.partial"] {
            for (frame, _, span, _) in bookmarks(name) {
                let template = ProtobufTemplate::seen(&raw_of(&frame), span);
                assert_eq!(template, Some(ProtobufTemplate::guessed()), "{name}");
            }
        }
    }

    #[test]
    fn objects_with_more_than_a_bookmarks_fields_give_no_template() {
        let guess = ProtobufTemplate::guessed();
        let raw = guess.raw(ResourceVersion(7), Marker::None);
        let at = u32::try_from(raw.iter().position(|byte| *byte == b'7').unwrap()).unwrap();
        let span = ByteSpan {
            start: at,
            end: at + 1,
        };
        assert_eq!(ProtobufTemplate::seen(&raw, span), Some(guess.clone()));
        assert_eq!(ProtobufTemplate::seen(&raw, ByteSpan::default()), None);
        assert_eq!(ProtobufTemplate::seen(&raw[..raw.len() - 1], span), None);
        let mut named = guess.clone();
        named.between = vec![0x0a, 1, b'a'];
        let raw = named.raw(ResourceVersion(7), Marker::None);
        assert_eq!(ProtobufTemplate::seen(&raw, span), None, "a name");
        // Fields in another order are accepted, and the order is kept.
        let version_last = [0x0a, 5, 0x38, 0, 0x32, 1, b'7'];
        let span = ByteSpan { start: 6, end: 7 };
        let template = ProtobufTemplate::seen(&version_last, span).unwrap();
        assert_eq!(template.raw(ResourceVersion(7), Marker::None), version_last);
        let doubled = [0x0a, 6, 0x32, 1, b'7', 0x32, 1, b'8'];
        let span = ByteSpan { start: 4, end: 5 };
        assert_eq!(ProtobufTemplate::seen(&doubled, span), None, "two versions");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(raw: Vec<u8>, start in 0u32..64, end in 0u32..64) {
            let len = u32::try_from(raw.len()).unwrap();
            let span = ByteSpan { start: start.min(len), end: end.clamp(start, 64).min(len) };
            let _ = ProtobufTemplate::seen(&raw, span);
        }
    }
}
