//! Names and versions of all objects, which prove that a state is the one of a later version.

#[cfg(feature = "gateway")]
use crate::cache::Snapshot;
use crate::resource::{ObjectKey, ResourceVersion};

/// Names and versions of all objects of a resource, read consistently.
#[derive(Debug)]
pub struct ObjectVersions {
    /// The version they were read at.
    pub version: ResourceVersion,
    /// In key order.
    entries: Vec<(ObjectKey, ResourceVersion)>,
}

impl ObjectVersions {
    /// Objects in any order: other implementations of the API may list in another one than that of keys.
    #[must_use]
    pub fn new(version: ResourceVersion, mut entries: Vec<(ObjectKey, ResourceVersion)>) -> Self {
        entries.sort();
        Self { version, entries }
    }

    /// The objects, in key order.
    #[must_use]
    pub fn into_entries(self) -> Vec<(ObjectKey, ResourceVersion)> {
        self.entries
    }

    /// Whether the snapshot holds exactly these objects at exactly these versions.
    #[cfg(feature = "gateway")]
    #[must_use]
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        snapshot.objects.len() == self.entries.len()
            && snapshot
                .objects
                .iter()
                .zip(&self.entries)
                .all(|(object, (key, version))| {
                    object.key() == *key && object.resource_version() == *version
                })
    }
}
