//! The bytes around the items of a list (docs/PROTOCOL.md §3.8, §5.8). Pure.

use bytes::{Buf as _, Bytes};

use crate::protocol::indent::Indenter;
use crate::resource::protobuf::{answer_end, answer_head, type_meta};
use crate::resource::wire::{field_len, put_bytes, put_head, put_integer};
use crate::resource::{Encoding, Layout, ResourceKind, ResourceVersion};
use crate::view::{ObjectFormat, ObjectPart};

/// The metadata of a list.
#[derive(Clone, Debug)]
pub(super) struct ListMeta {
    pub(super) version: ResourceVersion,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
    /// The shard that the list shows. Written only in lists of whole objects of compiled-in kinds.
    pub(super) shard: Option<String>,
}

/// The bytes around the items.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    /// Before everything.
    pub(super) head: Bytes,
    /// Before the first item.
    pub(super) opening: Bytes,
    /// Before each other item.
    pub(super) separator: Bytes,
    /// After the last item.
    pub(super) tail: Bytes,
    /// After the head, if there are no items.
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
                // No character of a shard selector needs escaping in JSON.
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
    /// The envelope of a list of this kind. A protobuf list states its length first: `items_len` is the length of all items,
    /// including their tags and length prefixes. It is not used for JSON.
    pub(super) fn new(
        meta: &ListMeta,
        kind: &ResourceKind,
        format: ObjectFormat,
        items_len: usize,
    ) -> Self {
        let meta = &ListMeta {
            shard: meta
                .shard
                .clone()
                .filter(|_| format.form == ObjectPart::Whole),
            ..meta.clone()
        };
        let (list_kind, api_version) = match format.form {
            ObjectPart::Whole => (kind.list_kind.clone(), kind.gvr.api_version()),
            ObjectPart::Metadata(version) => (
                "PartialObjectMetadataList".to_owned(),
                version.api_version().to_owned(),
            ),
        };
        match (format.encoding, format.form, kind.layout) {
            (Encoding::Protobuf, ..) => {
                let (meta_number, items_number) = format.form.list_fields();
                let mut field = Vec::new();
                put_bytes(&mut field, meta_number, &meta.protobuf());
                let type_meta = type_meta(&api_version, &list_kind);
                let mut head = answer_head(&type_meta, field.len() + items_len);
                // Fields are written in the order of their numbers.
                let mut tail = Vec::new();
                let target = if meta_number < items_number {
                    &mut head
                } else {
                    &mut tail
                };
                target.append(&mut field);
                tail.extend_from_slice(answer_end());
                let tail = Bytes::from(tail);
                Self {
                    head: head.into(),
                    opening: Bytes::new(),
                    separator: Bytes::new(),
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
                    separator: Bytes::from_static(b",{"),
                    empty_tail: tail.clone(),
                    tail,
                }
            }
            (Encoding::Json, form, _) => {
                let meta = meta.json(Layout::Typed);
                let head = format!(
                    "{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":"
                );
                // Without items, a list of whole objects has an empty array, a list of metadata has null.
                let empty_tail: &[u8] = match form {
                    ObjectPart::Whole => b"[]}\n",
                    ObjectPart::Metadata(_) => b"null}\n",
                };
                Self {
                    head: head.into(),
                    opening: Bytes::from_static(b"[{"),
                    separator: Bytes::from_static(b",{"),
                    tail: Bytes::from_static(b"]}\n"),
                    empty_tail: Bytes::from_static(empty_tail),
                }
            }
        }
    }

    /// The envelope of the list indented, for JSON (docs/PROTOCOL.md §5.6).
    pub(super) fn indented(&self) -> Self {
        let mut start = Indenter::default();
        let head = start.piece(&self.head);
        let empty_tail = start.clone().piece(&self.empty_tail);
        Self {
            head,
            opening: start.piece(&self.opening),
            separator: Indenter::at(ITEM_DEPTH, false).piece(&self.separator),
            tail: Indenter::at(ITEM_DEPTH, false).piece(&self.tail),
            empty_tail,
        }
    }
}

/// Items are in an array within an object.
const ITEM_DEPTH: usize = 2;

/// Approximate length of a part of an item, in bytes.
const PART_LEN: usize = 64 << 10;

/// An item without its opening brace, indented as it is in the list and made in parts: indentation can make it thousands of times
/// longer than it is in memory.
#[derive(Clone, Debug)]
pub(super) struct IndentedItem {
    indenter: Indenter,
    /// The part that is not indented yet.
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
