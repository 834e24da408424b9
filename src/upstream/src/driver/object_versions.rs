//! Reads names and versions of all objects.

use bytes::Bytes;

use super::fetch::{Fetch, RequestPurpose};
use super::request::{self, Collection};
use super::response::fetch_body;
use super::scan::{BLOCKING_LEN_MIN, run_blocking};
use crate::decode::{scan_list, scan_object};
use crate::object_versions::ObjectVersions;
use crate::reflector::{Failure, ListVersion};
use crate::resource::{Encoding, FieldTable, ObjectKey, ResourceVersion};

/// Items per page. Reading this many takes about a millisecond.
const PAGE_LEN: u32 = 500;
/// Most objects of a resource that can be compared within the time that a consistent read has.
pub const CENSUS_MAX: usize = 50_000;

/// Why a census could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectVersionsError {
    /// A page could not be read.
    #[error(transparent)]
    Page(#[from] Failure),
    /// The pages do not form one state.
    #[error("upstream's pages do not belong together")]
    Disjoint,
    /// There are more than [`CENSUS_MAX`] objects.
    #[error("upstream has too many objects to compare")]
    TooMany,
}

/// Reads the names and versions of all objects of a collection upstream, page by page.
///
/// # Errors
/// Upstream refuses, its pages cannot be read or do not belong together, or there are too many objects.
pub async fn census<F: Fetch>(
    fetch: &F,
    collection: &Collection,
) -> Result<ObjectVersions, ObjectVersionsError> {
    let mut entries = Vec::new();
    let mut previous: Option<(ResourceVersion, String)> = None;
    loop {
        let token = previous.as_ref().map(|(_, token)| token.as_str());
        let page = read_page(fetch, collection, token).await?;
        // Pages of different versions do not form one state, and following a repeated token would never end.
        let is_empty_page = page.entries.is_empty() && !page.token.is_empty();
        if is_empty_page
            || !previous
                .as_ref()
                .is_none_or(|(version, token)| *version == page.version && *token != page.token)
        {
            return Err(ObjectVersionsError::Disjoint);
        }
        entries.extend(page.entries);
        if entries.len() > CENSUS_MAX {
            return Err(ObjectVersionsError::TooMany);
        }
        if page.token.is_empty() {
            return Ok(sorted(page.version, entries).await);
        }
        previous = Some((page.version, page.token));
    }
}

/// Sorting many objects would hold up other tasks.
async fn sorted(
    version: ResourceVersion,
    entries: Vec<(ObjectKey, ResourceVersion)>,
) -> ObjectVersions {
    if entries.len() <= PAGE_LEN as usize {
        return ObjectVersions::new(version, entries);
    }
    run_blocking(move || ObjectVersions::new(version, entries)).await
}

/// A page of names and versions.
pub(super) struct ObjectVersionsPage {
    version: ResourceVersion,
    /// Continues after this page; empty if nothing follows.
    pub(super) token: String,
    pub(super) entries: Vec<(ObjectKey, ResourceVersion)>,
}

/// Reads the first page, or the one where `token` continues.
pub(super) async fn read_page<F: Fetch>(
    fetch: &F,
    collection: &Collection,
    token: Option<&str>,
) -> Result<ObjectVersionsPage, Failure> {
    let path = request::list(collection, ListVersion::Latest, token, Some(PAGE_LEN));
    let body = fetch_body(fetch, path, RequestPurpose::ReadVersions, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)?;
    let page = if body.len() < BLOCKING_LEN_MIN {
        scan_page(&body)
    } else {
        run_blocking(move || scan_page(&body)).await
    };
    page.ok_or(Failure::Protocol)
}

fn scan_page(body: &Bytes) -> Option<ObjectVersionsPage> {
    let list = scan_list(body).ok()?;
    Some(ObjectVersionsPage {
        version: list.resource_version,
        entries: list
            .items
            .iter()
            .map(|span| {
                let parts = scan_object(span.of(body), FieldTable::default()).ok()?;
                let key = ObjectKey::new(&parts.namespace, &parts.name);
                Some((key, parts.resource_version))
            })
            .collect::<Option<_>>()?,
        token: list.continue_token,
    })
}
