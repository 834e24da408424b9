//! The difference between a list and the state that it replaces. It can be found on another thread; nothing here changes the state.

use std::collections::HashSet;
use std::time::Instant;

use crate::cache::ProvenVersion;
use crate::cache::objects::ObjectMap;
use crate::cache::snapshot::Gap;
use crate::resource::{Object, ResourceVersion};

/// One change as upstream reports it. The cache decides whether it adds or modifies the object.
#[derive(Debug)]
pub enum Change {
    /// The object's new state.
    Put(Object),
    /// The object's last state, with the version of the deletion.
    Delete(Object),
}

impl Change {
    /// The object in either case.
    #[must_use]
    pub fn object(&self) -> &Object {
        match self {
            Self::Put(object) | Self::Delete(object) => object,
        }
    }

    pub(super) const fn is_put(&self) -> bool {
        matches!(self, Self::Put(_))
    }
}

/// A list that is to be compared with the state.
#[derive(Debug)]
pub struct ListComparison {
    pub(super) cached: ObjectMap,
    pub(super) listed: ObjectMap,
    pub(super) held: ResourceVersion,
    /// What was proven of the state.
    pub(super) proof: ProvenVersion,
    /// From what was held or proven to the list.
    pub(super) gap: Gap,
    pub(super) now: Instant,
}

/// What a comparison has found.
#[derive(Debug)]
pub struct ListDifference {
    /// `None` if the list does not continue the cache's history.
    pub(super) changes: Option<Vec<Change>>,
    pub(super) held: ResourceVersion,
    pub(super) gap: Gap,
    pub(super) now: Instant,
}

impl ListComparison {
    /// How many objects are compared.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.cached.len() + self.listed.len()
    }

    /// Compares the list with the state. The time is proportional to the number of objects.
    #[must_use]
    pub fn difference(self) -> ListDifference {
        let (held, gap, now) = (self.held, self.gap, self.now);
        let changes = difference(&self.cached, &self.listed, gap);
        let is_contradicted = changes.iter().any(|change| contradicts(change, held, gap));
        let is_continued = !is_contradicted && !self.lists_unproven();
        ListDifference {
            changes: is_continued.then_some(changes),
            held,
            gap,
            now,
        }
    }

    /// Whether the list has an object of the state that was not there at a proven version, although it was written before.
    fn lists_unproven(&self) -> bool {
        let (held, proof) = (self.held, self.proof);
        held < proof.version
            && held > proof.of
            && self.cached.has_newer(proof.of)
            && self.listed.iter().any(|object| {
                let version = object.resource_version();
                version > proof.of && version <= held
            })
    }
}

/// The changes from the cached objects, which are still the state at `gap.from`, to the listed objects, which are the state at
/// `gap.to`, in version order.
fn difference(cached: &ObjectMap, listed: &ObjectMap, gap: Gap) -> Vec<Change> {
    // Each deleted object, with the latest version at which it can have been deleted.
    let mut gone: Vec<(&Object, ResourceVersion)> = Vec::new();
    let mut changes: Vec<Change> = Vec::new();
    // Both are in key order, so one pass over each is enough.
    let mut held = cached.iter().peekable();
    for object in listed.iter() {
        while let Some(other) = held.next_if(|held| held.key() < object.key()) {
            gone.push((other, gap.to));
        }
        if let Some(before) = held.next_if(|held| held.key() == object.key()) {
            if before.uid() != object.uid() {
                // The old object was deleted at the latest one version before its successor was written.
                let last = ResourceVersion(object.resource_version().0.saturating_sub(1));
                gone.push((before, last));
            } else if before.resource_version() == object.resource_version() {
                continue;
            }
        }
        changes.push(Change::Put(object.clone()));
    }
    gone.extend(held.map(|held| (held, gap.to)));
    deletions(gone, &mut changes, gap.from);
    // If deletions had to share a version, the deletion of a recreated object comes before its creation.
    changes.sort_by_key(|change| (change.object().resource_version(), change.is_put()));
    changes
}

/// Whether a change shows that the list belongs to another history, as after a restored backup: an object was written before `held`
/// but differs from the cached one, or an object is gone although no version is left for its deletion. A write at `held` itself is no
/// contradiction, because the watch may have ended in the middle of a transaction's changes. Up to a proven version, which begins the gap,
/// nothing was written after `held`.
fn contradicts(change: &Change, held: ResourceVersion, gap: Gap) -> bool {
    let version = change.object().resource_version();
    match change {
        Change::Put(_) => version < held || (version > held && version <= gap.from),
        Change::Delete(_) => version > gap.to,
    }
}

/// Adds a deletion for each object in `gone`, each at a version of its own, as early as possible.
///
/// Each of these objects was deleted at a version after `from`, and nothing else was written at that version. It is not known
/// which version that was, but there are at least as many unused versions as deletions. The deletions must not all carry the list's
/// version: a client that is disconnected among them would resume after all of them and miss the rest, and a downstream gateway
/// would ignore the rest as repeated. The earliest versions are used so that a client that is disconnected in the gap,
/// and resumes at another replica, has received at least as many deletions as had happened by then.
fn deletions(
    mut gone: Vec<(&Object, ResourceVersion)>,
    changes: &mut Vec<Change>,
    from: ResourceVersion,
) {
    let used: HashSet<u64, foldhash::fast::RandomState> = changes
        .iter()
        .map(|change| change.object().resource_version().0)
        .collect();
    gone.sort_by_key(|(_, last)| *last);
    let mut next_free = from.0 + 1;
    for (object, last) in gone {
        while used.contains(&next_free) {
            next_free += 1;
        }
        // A writer other than the API server may have deleted several objects in one transaction. Then some share the latest version.
        let version = next_free.min(last.0).max(from.0 + 1);
        changes.push(Change::Delete(object.at_version(ResourceVersion(version))));
        next_free = next_free.max(version + 1);
    }
}
