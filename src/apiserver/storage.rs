//! Objects of all kinds under one global revision, and the rules of writing them. Pure: time, uid and randomness come
//! in with a [`Stamp`]; history is kept by whoever takes the [`StoredChange`]s.

mod checks;
mod collection;
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

/// All objects, by kind and key, each with the bytes of its last version.
#[derive(Debug)]
pub struct Storage {
    catalogue: Arc<Catalogue>,
    objects: Vec<BTreeMap<ObjectKey, Bytes>>,
    revision: ResourceVersion,
}

/// What happened to one object; its version is one more than that of the change before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// Index into the catalogue.
    pub kind_index: usize,
    /// Added, modified or deleted.
    pub event: EventKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The global revision that this change made.
    pub version: ResourceVersion,
    /// Compact JSON at that version; of a deletion, the last stored state with the deletion's version (docs/PROTOCOL.md §4.6).
    pub object: Bytes,
    /// Compact JSON before the change.
    pub previous: Option<Bytes>,
}

/// The outcome of an accepted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Body to answer with: the object, or the `Status` of a completed deletion.
    pub answer: Bytes,
    /// None where nothing changed: an equal update, a dry run, a deletion that is already pending.
    pub change: Option<StoredChange>,
}

/// What a write takes from the world outside.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// Now, as RFC 3339 in whole seconds: `2026-11-21T08:16:18Z`.
    pub now: &'a str,
    /// The uid that a created object gets.
    pub uid: &'a str,
    /// Random bits for a generated name.
    pub entropy: u64,
}

/// Which object a write means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// Index into the catalogue.
    pub kind_index: usize,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Which part of it.
    pub part: WritablePart,
    /// Whether the write is kept.
    pub mode: WriteMode,
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritablePart {
    /// All but the status, where that is apart.
    Whole,
    /// Only the status; of compiled-in kinds also labels, annotations and finalizers. The real kinds differ among
    /// themselves here; this is one rule for all, not checked against them.
    Status,
}

/// `dryRun=All` or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The write is stored.
    Keep,
    /// The write is checked and answered only.
    DryRun,
}

/// What must hold for a deletion to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The stored object's uid.
    pub uid: Option<String>,
    /// The stored object's version, compared as text.
    pub resource_version: Option<String>,
}

impl Storage {
    /// An empty store. The first write makes revision 2, as in a fresh cluster, where 1 is etcd's own.
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

    /// How many objects of a kind there are.
    #[must_use]
    pub fn object_count(&self, kind_index: usize) -> usize {
        self.objects[kind_index].len()
    }

    /// All objects of a kind in the order of lists; an empty namespace means all.
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
    /// 404 where there is none.
    pub fn object(&self, kind_index: usize, key: &ObjectKey) -> Result<&Bytes, Status> {
        self.objects[kind_index].get(key).ok_or_else(|| {
            Status::not_found(&self.catalogue.kind(kind_index).resource.gvr, key.name())
        })
    }

    /// Stores a new object. `body` has been read by `body::decode`; the target's key gives the namespace, its
    /// name does not count.
    ///
    /// # Errors
    /// 400, 409, 422, and 500 for a body with a resource version, as the API server does.
    pub fn create(
        &mut self,
        target: &WriteTarget,
        body: Value,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let taken = |key: &ObjectKey| self.objects[target.kind_index].contains_key(key);
        let new = write::created(kind, target.key.namespace(), body, stamp, &taken)?;
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
    /// 400, 404, 409 for another resource version or uid than the stored one, 422, 500 for a version that is no number.
    pub fn update(&mut self, target: &WriteTarget, body: Value) -> Result<WriteOutcome, Status> {
        let depth = self.depth(target).max(nesting::depth(&body));
        nesting::with_stack(depth, || self.update_object(target, body))
    }

    fn update_object(&mut self, target: &WriteTarget, body: Value) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        checks::check_names(kind, &target.key, &body)?;
        checks::check_version_text(&body)?;
        let old = self.parsed(target)?;
        checks::check_update_preconditions(kind, &target.key, &body, &old)?;
        self.replace(target, &old, body)
    }

    /// Applies a patch to an object, or to its status.
    ///
    /// # Errors
    /// As [`update`](Self::update), and what the patch itself is refused with.
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
        let old = self.parsed(target)?;
        let mut new = old.clone();
        patch.apply(&mut new)?;
        super::body::check_patched(kind, &mut new)?;
        checks::check_names(kind, &target.key, &new)?;
        checks::check_version_text(&new)?;
        checks::check_patch_conflict(kind, &target.key, &new, &old)?;
        self.replace(target, &old, new)
    }

    /// Deletes an object, or marks it where finalizers hold it. There is no garbage collector: how dependants are to be
    /// treated is ignored.
    ///
    /// # Errors
    /// 404, or 409 for a failed precondition.
    pub fn delete(
        &mut self,
        target: &WriteTarget,
        wanted: &Preconditions,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        nesting::with_stack(self.depth(target), || {
            self.delete_object(target, wanted, stamp)
        })
    }

    fn delete_object(
        &mut self,
        target: &WriteTarget,
        wanted: &Preconditions,
        stamp: Stamp<'_>,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let old = self.parsed(target)?;
        checks::check_delete_preconditions(kind, &target.key, wanted, &old)?;
        let name = target.key.name().to_owned();
        if metadata::finalizers(&old).is_empty() {
            let answer = refusal::deleted(kind, &name, metadata::metadata_text(&old, "uid"));
            let change = match target.mode {
                WriteMode::Keep => Some(self.take(target, old)?),
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

    /// How deep the stored object is nested; 0 where there is none.
    fn depth(&self, target: &WriteTarget) -> usize {
        let stored = self.objects[target.kind_index].get(&target.key);
        stored.map_or(0, |bytes| nesting::text_depth(bytes))
    }

    fn kind(&self, target: &WriteTarget) -> &ServedKind {
        self.catalogue.kind(target.kind_index)
    }

    fn parsed(&self, target: &WriteTarget) -> Result<Value, Status> {
        let bytes = self.object(target.kind_index, &target.key)?;
        nesting::parse(bytes).map_err(Status::untyped)
    }

    /// Stores the next state of an object, unless it equals the last one; deletes it where its last finalizer is gone.
    fn replace(
        &mut self,
        target: &WriteTarget,
        old: &Value,
        new: Value,
    ) -> Result<WriteOutcome, Status> {
        let kind = self.kind(target);
        let layout = kind.resource.layout;
        let new = write::updated(kind, target, old, new)?;
        if target.mode == WriteMode::DryRun || new == *old {
            return Ok(WriteOutcome::unchanged(render::object(layout, &new)));
        }
        let pending = !metadata::metadata_text(old, "deletionTimestamp").is_empty();
        if pending && metadata::finalizers(&new).is_empty() {
            let answer = render::object(layout, &new);
            let change = Some(self.take(target, old.clone())?);
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
    fn take(&mut self, target: &WriteTarget, old: Value) -> Result<StoredChange, Status> {
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

    /// The bytes of an object under the next revision, which is then taken.
    fn render_next(&mut self, kind_index: usize, mut object: Value) -> Result<Bytes, Status> {
        let next = ResourceVersion(self.revision.0 + 1);
        metadata::set_version(&mut object, next);
        let resource = &self.catalogue.kind(kind_index).resource;
        let bytes = render::object(resource.layout, &object);
        // What the caches cannot read is not stored: readers and writers would part for ever.
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
