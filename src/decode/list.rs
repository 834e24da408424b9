//! Reads the envelope of a list page, and converts its items to objects. The envelope is read without looking into the
//! items.

use serde_json::Value;

use crate::resource::protobuf::type_meta;
use crate::resource::{ByteSpan, Encoding, FieldTable, Layout, Object, ResourceVersion};

use super::json::{Json, ScanError};
use super::protobuf::scan_protobuf_object;
use super::scanner::scan_object;
use super::walk::first_key;

/// One page of a list: its metadata, and the positions of its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The list's kind, such as `PodList`.
    pub kind: String,
    /// `v1` or `apps/v1`.
    pub api_version: String,
    /// Dynamic if `apiVersion` is the first key.
    pub layout: Layout,
    /// The version of the state that the list shows.
    pub resource_version: ResourceVersion,
    /// Token of the next page; empty on the last page.
    pub continue_token: String,
    /// Number of items after this page, if upstream states it.
    pub remaining_item_count: Option<i64>,
    /// Positions of the items, in list order.
    pub items: Vec<ByteSpan>,
}

/// Reads a list body. Keys may come in any order; `items` may be `null`.
///
/// # Errors
/// The bytes are not one whole object in UTF-8, an item is not an object, or the resource version is missing or unusable.
pub fn scan_list(bytes: &[u8]) -> Result<ListPage, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut page = ListPage {
        kind: String::new(),
        api_version: String::new(),
        layout: Layout::Typed,
        resource_version: ResourceVersion(0),
        continue_token: String::new(),
        remaining_item_count: None,
        items: Vec::new(),
    };
    let mut version = None;
    let mut is_first = true;
    json.object("a list", |json, key| {
        let key = key.decode()?;
        if is_first && key == "apiVersion" {
            page.layout = Layout::Dynamic;
        }
        is_first = false;
        match &*key {
            "kind" => page.kind = json.string("kind")?.decode()?.into_owned(),
            "apiVersion" => page.api_version = json.string("apiVersion")?.decode()?.into_owned(),
            "metadata" => version = metadata(json, &mut page)?,
            "items" => items(json, &mut page.items)?,
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    json.end()?;
    page.resource_version = version.ok_or_else(|| ScanError::Missing {
        what: "metadata.resourceVersion",
        offset: json.at(),
    })?;
    Ok(page)
}

fn metadata(
    json: &mut Json<'_>,
    page: &mut ListPage,
) -> Result<Option<ResourceVersion>, ScanError> {
    let mut version = None;
    json.object("metadata", |json, key| {
        match &*key.decode()? {
            "resourceVersion" => version = Some(json.version("metadata.resourceVersion")?.0),
            "continue" => {
                page.continue_token = json
                    .string_or_null("metadata.continue")?
                    .unwrap_or_default()
                    .into_owned();
            }
            "remainingItemCount" => {
                page.remaining_item_count = json.scalar()?.and_then(|count| count.parse().ok());
            }
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    Ok(version)
}

fn items(json: &mut Json<'_>, spans: &mut Vec<ByteSpan>) -> Result<(), ScanError> {
    spans.clear();
    if json.peek() == Some(b'n') {
        return json.skip().map(drop);
    }
    json.array("items", |json| {
        if json.peek() != Some(b'{') {
            return json.expected("an item");
        }
        spans.push(json.with_own_depth(Json::skip)?);
        Ok(())
    })
}

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
