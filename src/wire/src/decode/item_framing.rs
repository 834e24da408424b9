//! Converts the items of a list to the form that they have in a watch event.

use serde_json::Value;

use crate::resource::protobuf::type_meta;
use crate::resource::{Encoding, FieldTable, Layout, Object};

use super::json::ScanError;
use super::list::ListPage;
use super::protobuf::scan_protobuf_object;
use super::scanner::scan_object;
use super::walk::first_key;

/// Converts the items of one page to objects, each with the frame of a watch event around it.
#[derive(Clone, Debug)]
pub struct ItemFraming {
    encoding: Encoding,
    /// In JSON, the members that items leave out; in protobuf, the message with the items' type.
    types: Vec<u8>,
}

impl ItemFraming {
    /// For the items of this page.
    #[must_use]
    pub fn new(page: &ListPage, encoding: Encoding) -> Self {
        // Only items of compiled-in kinds leave out their type, and their lists have the kind of the items with `List`
        // appended.
        let kind = page.kind.strip_suffix("List").unwrap_or(&page.kind);
        let types = match encoding {
            Encoding::Json => type_prefix(kind, &page.api_version, page.layout),
            Encoding::Protobuf => type_meta(&page.api_version, kind),
        };
        Self { encoding, types }
    }

    /// Converts one item.
    ///
    /// # Errors
    /// As [`scan_object`] and [`scan_protobuf_object`].
    pub fn object(&self, item: &[u8], fields: FieldTable) -> Result<Object, ScanError> {
        if self.encoding == Encoding::Protobuf {
            let parts = scan_protobuf_object(item, fields)?;
            return Ok(Object::in_protobuf(parts, &self.types, item));
        }
        if has_breaks(item) {
            let mut form = Vec::with_capacity(item.len() + self.types.len());
            put_form(&mut form, item, &self.types);
            return Ok(Object::new(scan_object(&form, fields)?, &form));
        }
        let parts = scan_object(item, fields)?;
        Ok(Object::of_item(
            parts,
            missing_types(item, &self.types),
            item,
        ))
    }
}

/// Converts a list item to the form that it has in a watch event. Items of compiled-in kinds get `kind` and `apiVersion` as
/// their first members, which lists leave out (docs/PROTOCOL.md §3.8). An item that already begins with one of them is
/// copied as it is. Line breaks, which JSON allows only between tokens, are removed, because a frame ends at a newline.
#[must_use]
pub fn watch_form(item: &[u8], kind: &str, api_version: &str, layout: Layout) -> Vec<u8> {
    let types = type_prefix(kind, api_version, layout);
    let mut form = Vec::with_capacity(item.len() + types.len());
    put_form(&mut form, item, &types);
    form.shrink_to_fit();
    form
}

/// The first members of an object of a compiled-in kind; nothing for other kinds.
fn type_prefix(kind: &str, api_version: &str, layout: Layout) -> Vec<u8> {
    if layout == Layout::Dynamic {
        return Vec::new();
    }
    let (kind, api_version) = (Value::from(kind), Value::from(api_version));
    format!("\"kind\":{kind},\"apiVersion\":{api_version},").into_bytes()
}

fn put_form(out: &mut Vec<u8>, item: &[u8], types: &[u8]) {
    let types = missing_types(item, types);
    let (brace, rest) = item.split_at(usize::from(!types.is_empty()));
    for piece in [brace, types, rest] {
        if !has_breaks(piece) {
            out.extend_from_slice(piece);
        } else {
            out.extend(piece.iter().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        }
    }
}

fn has_breaks(bytes: &[u8]) -> bool {
    memchr::memchr2(b'\n', b'\r', bytes).is_some()
}

/// The part of `types` that the item lacks: everything or nothing.
fn missing_types<'a>(item: &[u8], types: &'a [u8]) -> &'a [u8] {
    match first_key(item).as_deref() {
        None | Some("kind" | "apiVersion") => &[],
        Some(_) => types,
    }
}

#[cfg(test)]
mod tests;
