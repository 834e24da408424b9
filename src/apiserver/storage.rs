//! The objects of all kinds under one global revision, and the rules of writing them. Pure: a [`Stamp`] provides time, uid and
//! randomness. Each write returns its [`StoredChange`]; the storage keeps no history.

mod checks;
mod collection;
mod input;
mod metadata;
mod write;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::kinds::{Catalogue, ServedKind};
use super::patch::Patch;
use super::{nesting, refusal, render};
use crate::decode::scan_object;
use crate::protocol::status::Status;
use crate::resource::{EventKind, FieldTable, ObjectKey, ResourceVersion};

pub use input::{Preconditions, Stamp, WritablePart, WriteMode, WriteTarget};

/// The newest state of all objects, as JSON bytes, by kind and key.
#[derive(Debug)]
pub struct Storage {
    catalogue: Arc<Catalogue>,
    objects: Vec<BTreeMap<ObjectKey, Bytes>>,
    revision: ResourceVersion,
}

/// A change of one object. Its version is one more than that of the previous change of any object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// The kind's index in the catalogue.
    pub kind_index: usize,
    /// Added, modified or deleted.
    pub event: EventKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The global revision of this change.
    pub version: ResourceVersion,
    /// Compact JSON of the object at that version. For a deletion, the last stored state with the deletion's version
    /// (docs/PROTOCOL.md §4.6).
    pub object: Bytes,
    /// Compact JSON of the object before the change; `None` if it was added.
    pub previous: Option<Bytes>,
}

/// The outcome of an accepted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The body of the response: the object, or the `Status` of a completed deletion.
    pub answer: Bytes,
    /// `None` if nothing changed: an update without a difference, a dry run, a deletion of an object that is already being deleted.
    pub change: Option<StoredChange>,
}

impl Storage {
    /// An empty storage. The first write has revision 2, like in a new cluster: revision 1 is etcd's initial one.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        Self {
            objects: catalogue.kinds().iter().map(|_| BTreeMap::new()).collect(),
            catalogue,
            revision: ResourceVersion(1),
        }
    }

    /// The revision of the newest change.
    #[must_use]
    pub fn revision(&self) -> ResourceVersion {
        self.revision
    }

    /// The served kinds.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// The number of objects of a kind.
    #[must_use]
    pub fn object_count(&self, kind_index: usize) -> usize {
        self.objects[kind_index].len()
    }

    /// The objects of a kind in the order of lists. An empty namespace means all namespaces.
    pub fn objects(
        &self,
        kind_index: usize,
        namespace: &str,
    ) -> impl Iterator<Item = (&ObjectKey, &Bytes)> {
        let prefix = if namespace.is_empty() {
            String::new()
        } else {
            format!("{namespace}/")
        };
        self.objects[kind_index]
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(move |(key, _)| key.as_str().starts_with(&prefix))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// The bytes of one object.
    ///
    /// # Errors
    /// 404 if there is no such object.
    pub fn object(&self, kind_index: usize, key: &ObjectKey) -> Result<&Bytes, Status> {
        self.objects[kind_index].get(key).ok_or_else(|| {
            Status::not_found(&self.catalogue.kind(kind_index).resource.gvr, key.name())
        })
    }

    /// Stores an object that the server itself creates before its first write: it takes no revision.
    pub(super) fn put_initial(&mut self, kind_index: usize, name: &str, mut object: Value) {
        metadata::set_version(&mut object, self.revision);
        let bytes = render::object(self.catalogue.kind(kind_index).resource.layout, &object);
        self.objects[kind_index].insert(ObjectKey::new("", name), bytes);
    }

    /// Stores a new object. `body` must come from `body::decode`. Of the target's key only the namespace is used.
    ///
    /// # Errors
    /// 400, 409, 422, and like kube-apiserver 500 for a body with a resource version.
    pub fn create(
        &mut self,
        target: &WriteTarget,
        body: Value,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let exists = |key: &ObjectKey| self.objects[target.kind_index].contains_key(key);
        let new = write::new_object(kind, target.key.namespace(), body, stamp, &exists)?;
        if target.mode == WriteMode::DryRun {
            return Ok(WriteOutcome::unchanged(render::object(
                kind.resource.layout,
                &new.object,
            )));
        }
        self.put(target.kind_index, new.key, new.object)
    }

    /// Replaces an object, or its status.
    ///
    /// # Errors
    /// 400, 404, 409 if resource version or uid differ from the stored ones, 422, 500 for a version that is not a number.
    pub fn update(&mut self, target: &WriteTarget, body: Value) -> Result<WriteOutcome, Status> {
        let depth = self.depth(target).max(nesting::depth(&body));
        nesting::with_stack(depth, || self.update_object(target, body))
    }

    fn update_object(&mut self, target: &WriteTarget, body: Value) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        checks::check_names(kind, &target.key, &body)?;
        checks::check_version_text(&body)?;
        let old = self.stored_object(target)?;
        checks::check_update_preconditions(kind, &target.key, &body, &old)?;
        self.replace(target, &old, body)
    }

    /// Applies a patch to an object, or to its status.
    ///
    /// # Errors
    /// Those of [`update`](Self::update) and of [`Patch::apply`].
    pub fn patch(&mut self, target: &WriteTarget, patch: &Patch) -> Result<WriteOutcome, Status> {
        let depth = self.depth(target).max(patch.depth());
        nesting::with_stack(depth, || self.patch_object(target, patch))
    }

    fn patch_object(
        &mut self,
        target: &WriteTarget,
        patch: &Patch,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let old = self.stored_object(target)?;
        let mut new = old.clone();
        patch.apply(&mut new)?;
        super::body::check_patched(kind, &mut new)?;
        checks::check_names(kind, &target.key, &new)?;
        checks::check_version_text(&new)?;
        checks::check_patch_conflict(kind, &target.key, &new, &old)?;
        self.replace(target, &old, new)
    }

    /// Deletes an object; if it has finalizers, sets its deletion timestamp instead. There is no garbage collector: the propagation
    /// policy is ignored.
    ///
    /// # Errors
    /// 404, or 409 for a failed precondition.
    pub fn delete(
        &mut self,
        target: &WriteTarget,
        preconditions: &Preconditions,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        nesting::with_stack(self.depth(target), || {
            self.delete_object(target, preconditions, stamp)
        })
    }

    fn delete_object(
        &mut self,
        target: &WriteTarget,
        preconditions: &Preconditions,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let old = self.stored_object(target)?;
        checks::check_delete_preconditions(kind, &target.key, preconditions, &old)?;
        let name = target.key.name().to_owned();
        if metadata::finalizers(&old).is_empty() {
            let answer = refusal::deleted(kind, &name, metadata::metadata_text(&old, "uid"));
            let change = match target.mode {
                WriteMode::Keep => Some(self.remove(target, old)?),
                WriteMode::DryRun => None,
            };
            return Ok(WriteOutcome { answer, change });
        }
        if !metadata::metadata_text(&old, "deletionTimestamp").is_empty() {
            return Ok(WriteOutcome::unchanged(render::object(
                kind.resource.layout,
                &old,
            )));
        }
        let new = write::marked_for_deletion(old, stamp);
        if target.mode == WriteMode::DryRun {
            return Ok(WriteOutcome::unchanged(render::object(
                kind.resource.layout,
                &new,
            )));
        }
        self.put(target.kind_index, target.key.clone(), new)
    }

    /// The depth of the stored object; 0 if there is none.
    fn depth(&self, target: &WriteTarget) -> usize {
        let stored = self.objects[target.kind_index].get(&target.key);
        stored.map_or(0, |bytes| nesting::text_depth(bytes))
    }

    fn kind(&self, target: &WriteTarget) -> &ServedKind {
        self.catalogue.kind(target.kind_index)
    }

    fn stored_object(&self, target: &WriteTarget) -> Result<Value, Status> {
        let bytes = self.object(target.kind_index, &target.key)?;
        nesting::parse(bytes).map_err(Status::untyped)
    }

    /// Stores the next state of an object unless it equals the last one; deletes an object whose last finalizer was removed while it is
    /// being deleted.
    fn replace(
        &mut self,
        target: &WriteTarget,
        old: &Value,
        new: Value,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let layout = kind.resource.layout;
        let new = write::next_state(kind, target, old, new)?;
        if target.mode == WriteMode::DryRun || new == *old {
            return Ok(WriteOutcome::unchanged(render::object(layout, &new)));
        }
        let is_being_deleted = !metadata::metadata_text(old, "deletionTimestamp").is_empty();
        if is_being_deleted && metadata::finalizers(&new).is_empty() {
            let answer = render::object(layout, &new);
            let change = Some(self.remove(target, old.clone())?);
            return Ok(WriteOutcome { answer, change });
        }
        self.put(target.kind_index, target.key.clone(), new)
    }

    /// Stores an object under the next revision.
    fn put(
        &mut self,
        kind_index: usize,
        key: ObjectKey,
        object: Value,
    ) -> Result<WriteOutcome, Status> {
        let object = self.render_next(kind_index, object)?;
        let previous = self.objects[kind_index].insert(key.clone(), object.clone());
        Ok(WriteOutcome {
            answer: object.clone(),
            change: Some(StoredChange {
                kind_index,
                event: if previous.is_some() {
                    EventKind::Modified
                } else {
                    EventKind::Added
                },
                key,
                version: self.revision,
                object,
                previous,
            }),
        })
    }

    /// Removes an object under the next revision.
    fn remove(&mut self, target: &WriteTarget, old: Value) -> Result<StoredChange, Status> {
        let object = self.render_next(target.kind_index, old)?;
        let previous = self.objects[target.kind_index].remove(&target.key);
        Ok(StoredChange {
            kind_index: target.kind_index,
            event: EventKind::Deleted,
            key: target.key.clone(),
            version: self.revision,
            object,
            previous,
        })
    }

    /// Takes the next revision and returns the object's bytes with it. After an error the revision is unchanged.
    fn render_next(&mut self, kind_index: usize, mut object: Value) -> Result<Bytes, Status> {
        let next = ResourceVersion(self.revision.0 + 1);
        metadata::set_version(&mut object, next);
        let resource = &self.catalogue.kind(kind_index).resource;
        let bytes = render::object(resource.layout, &object);
        // An object that the caches cannot scan is not stored: otherwise the caches would differ from the storage permanently.
        scan_object(&bytes, FieldTable::of(&resource.gvr))
            .map_err(|fault| Status::untyped(format!("the object cannot be stored: {fault}")))?;
        self.revision = next;
        Ok(bytes)
    }
}

impl WriteOutcome {
    fn unchanged(answer: Bytes) -> Self {
        Self {
            answer,
            change: None,
        }
    }
}

#[cfg(test)]
mod tests;
