//! Compares what comes from upstream with what was proven of its state: clients have the proven version, and would never receive an event
//! that their history does not have.

use super::{CacheWriter, Change};
use crate::cache::ProvenVersion;

impl CacheWriter {
    /// Whether an event shows that upstream's history is not the one in which `proof` was made: clients that have the proven version would
    /// never receive the event. Objects that came and went before that version are no contradiction.
    pub(super) fn disproves(&self, change: &Change, proof: ProvenVersion) -> bool {
        let (object, reached) = (change.object(), self.state.resource_version);
        let version = object.resource_version();
        if reached >= proof.version {
            false
        } else if version > proof.version {
            self.differs_from(proof)
        } else {
            let held = self.state.objects.object_at(object.key());
            held.is_some_and(|held| held.resource_version() <= proof.of)
                || (version == proof.version && change.is_put())
        }
    }

    /// Whether the state, which is about to pass a proven version, has objects that were not there at that version.
    pub(super) fn differs_from(&self, proof: ProvenVersion) -> bool {
        self.state.resource_version > proof.of && self.state.objects.has_newer(proof.of)
    }

    /// Whether an event has shown that upstream's history is another one than that of a version which clients have.
    #[must_use]
    pub const fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }
}
