//! Proof that a cache shows the state of a later version: the names and versions of all objects, compared.

use bytes::Bytes;

use super::lists::page;
use super::request::{self, Collection};
use super::scan::{APART_LEN_MIN, apart};
use super::{Fetch, ProbeError, RequestPurpose};
use crate::cache::Snapshot;
use crate::decode::{scan_list, scan_object};
use crate::resource::{Encoding, FieldTable, Gvr, Object, ObjectKey, ResourceVersion};
use crate::upstream::reflector::ListVersion;

/// Items of a page: so many are scanned in about a millisecond.
const PAGE_LEN: u32 = 500;
/// Objects of a resource that can be compared within the time that a consistent read has.
pub const CENSUS_MAX: usize = 50_000;

/// Names and versions of all objects of a resource, read consistently.
#[derive(Debug)]
pub struct ObjectVersions {
    /// The version they were read at.
    pub version: ResourceVersion,
    /// In list order.
    entries: Vec<(ObjectKey, ResourceVersion)>,
}

impl ObjectVersions {
    /// Whether the snapshot holds exactly these objects at exactly these versions.
    #[must_use]
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let same = |(object, (key, version)): (&Object, &(ObjectKey, ResourceVersion))| {
            object.key() == *key && object.resource_version() == *version
        };
        snapshot.objects.len() == self.entries.len()
            && snapshot.objects.iter().zip(&self.entries).all(same)
    }
}

/// A census that was not finished.
#[derive(Debug, thiserror::Error)]
pub enum ObjectVersionsError {
    /// A page did not come.
    #[error(transparent)]
    Page(#[from] ProbeError),
    /// The pages do not add up to one state.
    #[error("upstream's pages do not belong together")]
    Disjoint,
    /// There are more than [`CENSUS_MAX`] objects.
    #[error("upstream has too many objects to compare")]
    TooMany,
}

/// Counts the objects upstream, page by page.
///
/// # Errors
/// Upstream refuses, its pages cannot be read or do not belong together, or there are too many objects.
pub async fn census<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<ObjectVersions, ObjectVersionsError> {
    let collection = Collection::all(gvr);
    let mut entries = Vec::new();
    let mut before: Option<(ResourceVersion, String)> = None;
    loop {
        let token = before.as_ref().map(|(_, token)| token.as_str());
        let path = request::list(&collection, ListVersion::Latest, token, Some(PAGE_LEN));
        let read = read_page(fetch, path).await?;
        // Pages of different versions do not add up to a state, and a token that repeats leads nowhere.
        let goes_on =
            |(version, token): &(_, String)| *version == read.version && *token != read.token;
        let is_empty_page = read.entries.is_empty() && !read.token.is_empty();
        if is_empty_page || !before.as_ref().is_none_or(goes_on) {
            return Err(ObjectVersionsError::Disjoint);
        }
        entries.extend(read.entries);
        if entries.len() > CENSUS_MAX {
            return Err(ObjectVersionsError::TooMany);
        }
        if read.token.is_empty() {
            // Servers of other makes may list in another order.
            entries.sort();
            return Ok(ObjectVersions {
                version: read.version,
                entries,
            });
        }
        before = Some((read.version, read.token));
    }
}

struct ObjectVersionsPage {
    version: ResourceVersion,
    token: String,
    entries: Vec<(ObjectKey, ResourceVersion)>,
}

async fn read_page<F: Fetch>(fetch: &F, path: String) -> Result<ObjectVersionsPage, ProbeError> {
    let body = page(fetch, path, RequestPurpose::ReadVersions, Encoding::Json).await;
    let body = body.map_err(|fault| ProbeError::from(fault.failure))?;
    let read = if body.len() < APART_LEN_MIN {
        scan_page(&body)
    } else {
        apart(move || scan_page(&body)).await
    };
    read.ok_or(ProbeError::Unreadable)
}

fn scan_page(body: &Bytes) -> Option<ObjectVersionsPage> {
    let list = scan_list(body).ok()?;
    let entry = |span: &crate::resource::ByteSpan| {
        let parts = scan_object(span.of(body), FieldTable::default()).ok()?;
        let key = ObjectKey::new(&parts.namespace, &parts.name);
        Some((key, parts.resource_version))
    };
    Some(ObjectVersionsPage {
        version: list.resource_version,
        entries: list.items.iter().map(entry).collect::<Option<_>>()?,
        token: list.continue_token,
    })
}
