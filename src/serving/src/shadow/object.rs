//! What is compared of an object, and where it is found in lists and in frames of watches. Pure.

use std::hash::BuildHasher as _;

use crate::decode::{
    ListPage, ScanError, WatchLine, scan_list, scan_object, scan_protobuf_list,
    scan_protobuf_object, scan_watch,
};
use crate::resource::{Encoding, EventKind, FieldTable, ObjectParts, ResourceVersion};

/// Stands for the bytes of objects. Two that differ have the same digest once in 2^64 times.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectHasher(foldhash::quality::RandomState);

/// An object, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedObject {
    /// Its name, after its namespace and a slash if it has one.
    pub(super) key: Box<str>,
    pub(super) version: ResourceVersion,
    pub(super) digest: u64,
}

/// A list, as far as it is compared.
#[derive(Debug)]
pub(crate) struct ShadowList {
    pub(crate) version: ResourceVersion,
    pub(super) objects: Vec<ComparedObject>,
    /// Whether another page follows.
    pub(super) has_next: bool,
}

/// A frame of a watch, as far as it is compared.
#[derive(Debug)]
pub(crate) enum ShadowFrame {
    Event(EventKind, ComparedObject),
    Bookmark {
        version: ResourceVersion,
        ends_initial_events: bool,
    },
    /// The code of an ERROR event.
    Error(u16),
}

impl ObjectHasher {
    fn object(&self, parts: &ObjectParts<'_>, bytes: &[u8]) -> ComparedObject {
        let key = match &*parts.namespace {
            "" => (*parts.name).into(),
            namespace => format!("{namespace}/{}", parts.name).into(),
        };
        ComparedObject {
            key,
            version: parts.resource_version,
            digest: self.0.hash_one(bytes),
        }
    }
}

impl ComparedObject {
    /// Bytes that it takes while it waits to be compared, about.
    pub(crate) fn held_len(&self) -> usize {
        96 + self.key.len()
    }
}

impl ShadowList {
    /// Reads a list.
    ///
    /// # Errors
    /// The bytes are not a list in this encoding, or an object in it has no name or version.
    pub(crate) fn read(
        encoding: Encoding,
        bytes: &[u8],
        hasher: &ObjectHasher,
    ) -> Result<Self, ScanError> {
        let fields = FieldTable::default();
        let ListPage {
            resource_version,
            continue_token,
            items,
            ..
        } = match encoding {
            Encoding::Json => scan_list(bytes)?,
            Encoding::Protobuf => scan_protobuf_list(bytes)?,
        };
        let object = |span: &crate::resource::ByteSpan| {
            let object = span.of(bytes);
            let parts = match encoding {
                Encoding::Json if memchr::memchr(b'\n', object).is_some() => {
                    let object = on_one_line(object);
                    return Ok(hasher.object(&scan_object(&object, fields)?, &object));
                }
                Encoding::Json => scan_object(object, fields)?,
                Encoding::Protobuf => scan_protobuf_object(object, fields)?,
            };
            Ok::<_, ScanError>(hasher.object(&parts, object))
        };
        Ok(Self {
            version: resource_version,
            objects: items.iter().map(object).collect::<Result<_, _>>()?,
            has_next: !continue_token.is_empty(),
        })
    }
}

/// An object of an indented list. JSON has line breaks between tokens only.
fn on_one_line(object: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| match byte {
        b'\n' => b' ',
        other => *other,
    };
    object.iter().map(blank).collect()
}

impl ShadowFrame {
    /// Reads a frame of a watch.
    ///
    /// # Errors
    /// See [`scan_watch`].
    pub(crate) fn read(
        encoding: Encoding,
        frame: &[u8],
        hasher: &ObjectHasher,
    ) -> Result<Self, ScanError> {
        Ok(match scan_watch(encoding, frame, FieldTable::default())? {
            WatchLine::Event {
                kind,
                object,
                parts,
            } => Self::Event(kind, hasher.object(&parts, object.of(frame))),
            WatchLine::Bookmark(bookmark) => Self::Bookmark {
                version: bookmark.resource_version,
                ends_initial_events: bookmark.initial_events_end,
            },
            WatchLine::Error(status) => Self::Error(status.code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"x"},"items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}]}"#;

    #[test]
    fn a_list_is_read_indented_or_not() {
        let hasher = ObjectHasher::default();
        let indented = LIST.replace(',', ",\n  ");
        for text in [LIST, &indented] {
            let list = ShadowList::read(Encoding::Json, text.as_bytes(), &hasher).unwrap();
            assert_eq!((list.version, list.has_next), (ResourceVersion(9), true));
            let [object] = &list.objects[..] else {
                panic!("{:?}", list.objects)
            };
            assert_eq!((&*object.key, object.version), ("n/a", ResourceVersion(7)));
        }
        let cut = &LIST.as_bytes()[..LIST.len() / 2];
        assert!(ShadowList::read(Encoding::Json, cut, &hasher).is_err());
    }
}
