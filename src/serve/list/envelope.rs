//! What stands around the items of a list (docs/PROTOCOL.md §3.8, §5.8). Pure.

use bytes::{Buf as _, Bytes};

use crate::protocol::indent::Indenter;
use crate::resource::protobuf::{answer_end, answer_head, type_meta};
use crate::resource::wire::{field_len, put_bytes, put_head, put_integer};
use crate::resource::{Encoding, Layout, ResourceKind, ResourceVersion};
use crate::view::{ObjectFormat, ObjectPart};

/// What a list says of itself.
#[derive(Clone, Debug)]
pub(super) struct ListMeta {
    pub(super) version: ResourceVersion,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
    /// The shard that it shows; told of compiled-in kinds' whole objects only.
    pub(super) shard: Option<String>,
}

/// The bytes around the items.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    /// Before everything.
    pub(super) head: Bytes,
    /// Before the first item.
    pub(super) opening: Bytes,
    /// Before each further item.
    pub(super) between: Bytes,
    /// After the last item.
    pub(super) tail: Bytes,
    /// After no item at all.
    pub(super) empty_tail: Bytes,
}

impl ListMeta {
    pub(super) fn json(&self, layout: Layout) -> String {
        let token = self.continue_token.as_deref();
        let mut remaining = String::new();
        if let Some(count) = self.remaining {
            remaining = format!(",\"remainingItemCount\":{count}");
        }
        let version = self.version;
        match (layout, token) {
            (Layout::Typed, token) => {
                let token =
                    token.map_or_else(String::new, |token| format!(",\"continue\":\"{token}\""));
                // Nothing in a shard selector needs escaping.
                let shard = self.shard.as_ref().map_or_else(String::new, |shard| {
                    format!(",\"shardInfo\":{{\"selector\":\"{shard}\"}}")
                });
                format!("{{\"resourceVersion\":\"{version}\"{token}{remaining}{shard}}}")
            }
            (Layout::Dynamic, token) => {
                let token = token.unwrap_or("");
                format!("{{\"continue\":\"{token}\"{remaining},\"resourceVersion\":\"{version}\"}}")
            }
        }
    }

    fn protobuf(&self) -> Vec<u8> {
        let mut meta = Vec::new();
        put_bytes(&mut meta, 1, b"");
        put_bytes(&mut meta, 2, self.version.to_string().as_bytes());
        let token = self.continue_token.as_deref().unwrap_or_default();
        put_bytes(&mut meta, 3, token.as_bytes());
        if let Some(count) = self.remaining {
            put_integer(&mut meta, 4, count as u64);
        }
        if let Some(shard) = &self.shard {
            put_head(&mut meta, 5, field_len(shard.len()));
            put_bytes(&mut meta, 1, shard.as_bytes());
        }
        meta
    }
}

impl Envelope {
    /// The envelope of a list of this kind. A protobuf list says its length first: `items_len` is that of all items,
    /// their tags and lengths included; JSON does not need it.
    pub(super) fn new(
        meta: &ListMeta,
        kind: &ResourceKind,
        rendition: ObjectFormat,
        items_len: usize,
    ) -> Self {
        let meta = &ListMeta {
            shard: meta
                .shard
                .clone()
                .filter(|_| rendition.form == ObjectPart::Whole),
            ..meta.clone()
        };
        let (list_kind, api_version) = match rendition.form {
            ObjectPart::Whole => (kind.list_kind.clone(), kind.gvr.api_version()),
            ObjectPart::Metadata(version) => (
                "PartialObjectMetadataList".to_owned(),
                version.api_version().to_owned(),
            ),
        };
        match (rendition.encoding, rendition.form, kind.layout) {
            (Encoding::Protobuf, ..) => {
                let (meta_number, items_number) = rendition.form.list_fields();
                let mut field = Vec::new();
                put_bytes(&mut field, meta_number, &meta.protobuf());
                let type_meta = type_meta(&api_version, &list_kind);
                let mut head = answer_head(&type_meta, field.len() + items_len);
                // Fields stand in the order of their numbers.
                let mut tail = Vec::new();
                let place = if meta_number < items_number {
                    &mut head
                } else {
                    &mut tail
                };
                place.append(&mut field);
                tail.extend_from_slice(answer_end());
                let tail = Bytes::from(tail);
                Self {
                    head: head.into(),
                    opening: Bytes::new(),
                    between: Bytes::new(),
                    empty_tail: tail.clone(),
                    tail,
                }
            }
            (Encoding::Json, ObjectPart::Whole, Layout::Dynamic) => {
                let head = format!("{{\"apiVersion\":\"{api_version}\",\"items\":[");
                let meta = meta.json(Layout::Dynamic);
                let tail = Bytes::from(format!(
                    "],\"kind\":\"{list_kind}\",\"metadata\":{meta}}}\n"
                ));
                Self {
                    head: head.into(),
                    opening: Bytes::from_static(b"{"),
                    between: Bytes::from_static(b",{"),
                    empty_tail: tail.clone(),
                    tail,
                }
            }
            (Encoding::Json, form, _) => {
                let meta = meta.json(Layout::Typed);
                let head = format!(
                    "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":"
                );
                // Without items the one has an empty array, the other none.
                let empty_tail: &[u8] = match form {
                    ObjectPart::Whole => b"[]}\n",
                    ObjectPart::Metadata(_) => b"null}\n",
                };
                Self {
                    head: head.into(),
                    opening: Bytes::from_static(b"[{"),
                    between: Bytes::from_static(b",{"),
                    tail: Bytes::from_static(b"]}\n"),
                    empty_tail: Bytes::from_static(empty_tail),
                }
            }
        }
    }

    /// The same of an indented list in JSON (docs/PROTOCOL.md §5.6).
    pub(super) fn indented(&self) -> Self {
        let mut start = Indenter::default();
        let head = start.piece(&self.head);
        let empty_tail = start.clone().piece(&self.empty_tail);
        Self {
            head,
            opening: start.piece(&self.opening),
            between: Indenter::at(ITEM_DEPTH, false).piece(&self.between),
            tail: Indenter::at(ITEM_DEPTH, false).piece(&self.tail),
            empty_tail,
        }
    }
}

/// Items stand in an array in an object.
const ITEM_DEPTH: usize = 2;

/// Bytes of a part of an item, about.
const PART_LEN: usize = 64 << 10;

/// An item without its opening brace, indented as it stands in the list, part by part: blanks can make it thousands of times
/// as long as it is in memory.
#[derive(Clone, Debug)]
pub(super) struct IndentedItem {
    indenter: Indenter,
    /// What is not indented yet.
    rest: Bytes,
}

impl IndentedItem {
    pub(super) fn new(item: Bytes) -> Self {
        Self {
            indenter: Indenter::at(ITEM_DEPTH, true),
            rest: item,
        }
    }
}

impl Iterator for IndentedItem {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let (part, len) = self.indenter.part(&self.rest, PART_LEN);
        self.rest.advance(len);
        Some(part)
    }
}
