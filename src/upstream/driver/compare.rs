//! Proof that a cache shows the state of a later version: the names and versions of all objects, compared.

use super::lists::page;
use super::{Fetch, ProbeError, Purpose};
use crate::cache::Snapshot;
use crate::decode::{scan_list, scan_object};
use crate::resource::{Encoding, FieldTable, Gvr, ObjectKey, ResourceVersion};

/// Names and versions of all objects of a resource, read consistently.
#[derive(Debug)]
pub struct Census {
    /// The version they were read at.
    pub version: ResourceVersion,
    /// In list order.
    entries: Vec<(ObjectKey, ResourceVersion)>,
}

impl Census {
    /// Whether the snapshot holds exactly these objects at exactly these versions.
    #[must_use]
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let same = |(object, (key, version)): (
            &crate::resource::Object,
            &(ObjectKey, ResourceVersion),
        )| { object.key() == *key && object.resource_version() == *version };
        snapshot.objects.len() == self.entries.len()
            && snapshot.objects.iter().zip(&self.entries).all(same)
    }
}

/// Counts the objects upstream.
///
/// # Errors
/// See [`ProbeError`].
pub async fn census<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<Census, ProbeError> {
    let body = page(
        fetch,
        gvr.collection_path(),
        Purpose::ReadMetadata,
        Encoding::Json,
    )
    .await
    .map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(&body).map_err(|_| ProbeError::Unreadable)?;
    let none = FieldTable::default();
    let entry = |span: &crate::resource::Span| {
        let parts = scan_object(span.of(&body), none).ok()?;
        Some((
            ObjectKey::new(&parts.namespace, &parts.name),
            parts.resource_version,
        ))
    };
    let entries: Option<Vec<_>> = list.items.iter().map(entry).collect();
    let mut entries = entries.ok_or(ProbeError::Unreadable)?;
    entries.sort();
    Ok(Census {
        version: list.resource_version,
        entries,
    })
}
