//! Reads the envelope of a list page, without looking into the items.

use crate::resource::{ByteSpan, Layout, ResourceVersion};

use super::json::{Json, ScanError};

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

#[cfg(test)]
pub(super) mod tests;
