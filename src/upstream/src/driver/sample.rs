//! Reads a few objects from upstream, to be compared with those of a cache.

use bytes::Bytes;

use super::fetch::{Fetch, RequestPurpose};
use super::request::{self, Collection};
use super::response::fetch_body;
use crate::decode::{scan_list, scan_object};
use crate::reflector::{Failure, ListVersion};
use crate::resource::{Encoding, FieldTable, ObjectKey, ResourceVersion};

/// Some objects of a collection, read consistently.
#[derive(Debug)]
pub struct Sample {
    /// The version they were read at.
    pub version: ResourceVersion,
    /// The objects, in upstream's order.
    pub entries: Vec<SampleEntry>,
    /// Whether no objects follow.
    pub is_complete: bool,
    /// How many objects follow, if upstream says so.
    pub remaining: Option<u64>,
}

/// One object of a sample.
#[derive(Debug)]
pub struct SampleEntry {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
}

/// Reads the metadata of at most `limit` objects.
///
/// # Errors
/// See [`Failure`].
pub async fn sample<F: Fetch>(
    fetch: &F,
    collection: &Collection,
    limit: u32,
) -> Result<Sample, Failure> {
    sample_from(fetch, collection, None, limit).await
}

/// As [`sample`], of the objects where `continue_token` continues.
///
/// # Errors
/// See [`Failure`].
pub async fn sample_from<F: Fetch>(
    fetch: &F,
    collection: &Collection,
    continue_token: Option<&str>,
    limit: u32,
) -> Result<Sample, Failure> {
    let path = request::list(collection, ListVersion::Latest, continue_token, Some(limit));
    let body = fetch_body(fetch, path, RequestPurpose::ReadVersions, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)?;
    let list = scan_list(&body).map_err(|_| Failure::Protocol)?;
    let entries = list
        .items
        .iter()
        .map(|span| {
            let parts = scan_object(span.of(&body), FieldTable::default()).ok()?;
            Some(SampleEntry {
                key: ObjectKey::new(&parts.namespace, &parts.name),
                uid: parts.uid.into_owned(),
                version: parts.resource_version,
            })
        })
        .collect::<Option<_>>();
    Ok(Sample {
        version: list.resource_version,
        entries: entries.ok_or(Failure::Protocol)?,
        is_complete: list.continue_token.is_empty(),
        remaining: list
            .remaining_item_count
            .and_then(|count| count.try_into().ok()),
    })
}

/// Reads a short list whole, on connections that carry nothing long: others wait for it while their own responses are unread.
///
/// # Errors
/// See [`Failure`].
pub async fn short_list<F: Fetch>(fetch: &F, collection: &Collection) -> Result<Bytes, Failure> {
    let path = request::list(collection, ListVersion::Latest, None, None);
    fetch_body(fetch, path, RequestPurpose::ReadShort, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)
}

/// Returns what identifies a cluster: the uid of its namespace `kube-system`.
///
/// # Errors
/// See [`Failure`].
pub async fn cluster_uid<F: Fetch>(fetch: &F) -> Result<String, Failure> {
    let path = "/api/v1/namespaces/kube-system".to_owned();
    let body = fetch_body(fetch, path, RequestPurpose::Read, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)?;
    let parts =
        scan_object(body.trim_ascii_end(), FieldTable::default()).map_err(|_| Failure::Protocol)?;
    if parts.uid.is_empty() {
        return Err(Failure::Protocol);
    }
    Ok(parts.uid.into_owned())
}
