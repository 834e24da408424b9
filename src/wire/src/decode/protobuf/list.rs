//! Reads the body of a protobuf list: its envelope and the positions of its items, which are not read.

use crate::decode::json::ScanError;
use crate::decode::list::ListPage;
use crate::resource::wire::WireFields;
use crate::resource::{ByteSpan, Layout, ResourceVersion};

use super::fields::{bytes_of, integer, text, version};
use super::unknown::Unknown;

/// Reads a list body, including the magic. Items are bare messages, without type and envelope (docs/PROTOCOL.md §5.8).
///
/// # Errors
/// The bytes are not Kubernetes' protobuf, or the resource version is missing or unusable.
pub fn scan_protobuf_list(body: &[u8]) -> Result<ListPage, ScanError> {
    let unknown = Unknown::read_body(body)?;
    let (api_version, kind) = unknown.types(body)?;
    let mut page = ListPage {
        kind: kind.to_owned(),
        api_version: api_version.to_owned(),
        layout: Layout::Typed,
        resource_version: ResourceVersion(0),
        continue_token: String::new(),
        remaining_item_count: None,
        items: Vec::new(),
    };
    let mut version = None;
    for field in WireFields::within(body, unknown.raw) {
        let field = field?;
        match field.number {
            1 => metadata(body, bytes_of(&field, "metadata")?, &mut page, &mut version)?,
            2 => page.items.push(bytes_of(&field, "an item")?),
            _ => {}
        }
    }
    page.resource_version = version.ok_or(ScanError::Missing {
        what: "metadata.resourceVersion",
        offset: body.len(),
    })?;
    Ok(page)
}

fn metadata(
    body: &[u8],
    message: ByteSpan,
    page: &mut ListPage,
    found: &mut Option<ResourceVersion>,
) -> Result<(), ScanError> {
    for field in WireFields::within(body, message) {
        let field = field?;
        match field.number {
            2 => *found = Some(version(body, &field)?.0),
            3 => text(body, &field)?.clone_into(&mut page.continue_token),
            4 => page.remaining_item_count = Some(integer(&field, "metadata.remainingItemCount")?),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
