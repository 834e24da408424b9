//! The rules of writing: they make an object's next state, or refuse the write with kube-apiserver's error.

mod metadata;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::json::{self, metadata_mut, metadata_text};
use super::kinds::{Catalogue, ObjectKey, ServedKind};
use super::names::is_object_name;
use super::object::Object;
use super::patch::Patch;
use super::status::{self, Status};
use super::store::{Action, Change, Part, Preconditions, State, Write, now_text};

/// How many generated names are tried; kube-apiserver's number.
const NAME_ATTEMPTS: usize = 8;
/// The characters of a generated name: no vowels, and none that are easily confused.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LEN: usize = 5;
/// What is kept of `generateName`, so that the name is a DNS label.
const NAME_BASE_LEN_MAX: usize = 58;

/// Metadata that only the server sets.
const SERVER_FIELDS: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];
const CHANGED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// One write to one kind.
struct Writer<'a> {
    state: &'a mut State,
    kind: &'a ServedKind,
    kind_index: usize,
    key: ObjectKey,
    part: Part,
}

impl State {
    pub(super) fn apply(&mut self, catalogue: &Catalogue, write: Write) -> Result<Bytes, Status> {
        let mut writer = Writer {
            state: self,
            kind: catalogue.kind(write.kind_index),
            kind_index: write.kind_index,
            key: write.key,
            part: write.part,
        };
        match write.action {
            Action::Create(object) => writer.create(object),
            Action::Update(object) => writer.update(object),
            Action::Patch(patch) => writer.patch(&patch),
            Action::Delete(preconditions) => writer.delete(&preconditions),
        }
    }
}

impl Writer<'_> {
    fn stored(&self) -> Result<Arc<Object>, Status> {
        let object = self.state.kinds[self.kind_index].objects.get(&self.key);
        let missing = || Status::not_found(self.kind, self.key.name());
        object.cloned().ok_or_else(missing)
    }

    fn exists(&self, key: &ObjectKey) -> bool {
        self.state.kinds[self.kind_index].objects.contains_key(key)
    }

    fn put(&mut self, value: Value) -> Bytes {
        self.commit(Change::Put(value)).json()
    }

    fn commit(&mut self, change: Change) -> Arc<Object> {
        self.state
            .commit(self.kind, self.kind_index, self.key.clone(), change)
    }

    fn create(&mut self, mut object: Value) -> Result<Bytes, Status> {
        metadata::check_types(self.kind, &mut object)?;
        if !metadata_text(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::untyped(message));
        }
        self.check_namespace(&object)?;
        set_type(self.kind, &mut object);
        if self.kind.is_custom {
            set(&mut object, "status", None);
        }
        let namespace = self.key.namespace().to_owned();
        let metadata = metadata_mut(&mut object);
        for field in SERVER_FIELDS {
            metadata.remove(field);
        }
        metadata::drop_unstored(metadata);
        metadata.remove("namespace");
        if self.kind.is_namespaced {
            metadata.insert("namespace".into(), namespace.clone().into());
        }
        let name = self.choose_name(&namespace, metadata)?;
        self.key = ObjectKey::new(&namespace, &name);
        metadata.insert("uid".into(), self.state.random.uuid().into());
        metadata.insert("creationTimestamp".into(), now_text().into());
        if self.kind.has_generation {
            metadata.insert("generation".into(), 1.into());
        }
        if !is_object_name(self.kind, &name) {
            return Err(Status::invalid(format!("{name:?} is no valid name")));
        }
        metadata::check(metadata)?;
        if self.exists(&self.key) {
            return Err(Status::already_exists(self.kind, &name));
        }
        metadata.insert("name".into(), name.into());
        Ok(self.put(object))
    }

    fn choose_name(
        &mut self,
        namespace: &str,
        metadata: &Map<String, Value>,
    ) -> Result<String, Status> {
        let text = |field: &str| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (name, base) = (text("name"), text("generateName"));
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        if base.is_empty() {
            return Err(Status::invalid("name or generateName is required"));
        }
        let base: String = base.chars().take(NAME_BASE_LEN_MAX).collect();
        let mut name = String::new();
        for _ in 0..NAME_ATTEMPTS {
            name.clone_from(&base);
            for _ in 0..NAME_SUFFIX_LEN {
                let letter = self.state.random.next() % NAME_ALPHABET.len() as u64;
                let letter = usize::try_from(letter).unwrap_or_default();
                name.push(char::from(NAME_ALPHABET[letter]));
            }
            if !self.exists(&ObjectKey::new(namespace, &name)) {
                return Ok(name);
            }
        }
        let mut taken = Status::already_exists(self.kind, &name);
        taken.message += ", the server was not able to generate a unique name for the object";
        Err(taken)
    }

    fn update(&mut self, mut new: Value) -> Result<Bytes, Status> {
        metadata::check_types(self.kind, &mut new)?;
        self.check_names(&new)?;
        check_version_text(&new)?;
        let old = self.stored()?.value();
        let (uid, stored_uid) = (metadata_text(&new, "uid"), metadata_text(&old, "uid"));
        if !uid.is_empty() && uid != stored_uid {
            let why = format!("the stored object has the uid {stored_uid:?}");
            return Err(Status::conflict(self.kind, self.key.name(), &why));
        }
        match metadata_text(&new, "resourceVersion") {
            version if !is_absent(version) => self.check_version(version, &old)?,
            _ if self.kind.is_custom => {
                let message = "metadata.resourceVersion must be specified for an update";
                return Err(Status::invalid(message));
            }
            _ => {}
        }
        self.replace(old, new)
    }

    fn patch(&mut self, patch: &Patch) -> Result<Bytes, Status> {
        let old = self.stored()?.value();
        let mut new = patch.apply(old.clone())?;
        metadata::check_types(self.kind, &mut new)?;
        self.check_names(&new)?;
        check_version_text(&new)?;
        let version = metadata_text(&new, "resourceVersion");
        if !version.is_empty() {
            self.check_version(version, &old)?;
        }
        let uid = metadata_text(&new, "uid");
        if !uid.is_empty() && uid != metadata_text(&old, "uid") {
            return Err(Status::invalid("metadata.uid is immutable"));
        }
        self.replace(old, new)
    }

    fn delete(&mut self, preconditions: &Preconditions) -> Result<Bytes, Status> {
        let mut object = self.stored()?.value();
        self.check_preconditions(preconditions, &object)?;
        if metadata::finalizers(&object).is_empty() {
            let uid = metadata_text(&object, "uid");
            let answer = status::deleted(self.kind, self.key.name(), uid);
            self.commit(Change::Remove(object));
            return Ok(answer.into());
        }
        if !metadata_text(&object, "deletionTimestamp").is_empty() {
            return Ok(json::object(self.kind, &object).into());
        }
        let metadata = metadata_mut(&mut object);
        metadata.insert("deletionTimestamp".into(), now_text().into());
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
        count_generation(metadata);
        Ok(self.put(object))
    }

    /// Stores the next state, unless nothing changes. Removes an object that waited for its last finalizer.
    fn replace(&mut self, old: Value, new: Value) -> Result<Bytes, Status> {
        let mut next = self.written_part(&old, new);
        set_type(self.kind, &mut next);
        let metadata = metadata_mut(&mut next);
        for field in SERVER_FIELDS.iter().chain(&["name", "namespace"]) {
            match old["metadata"].get(*field) {
                None => metadata.remove(*field),
                Some(value) => metadata.insert((*field).into(), value.clone()),
            };
        }
        metadata::drop_unstored(metadata);
        metadata::check(metadata)?;
        let is_being_deleted = !metadata_text(&old, "deletionTimestamp").is_empty();
        if is_being_deleted && metadata::adds_finalizers(&old, &next) {
            let message = "an object that is being deleted gets no new finalizers";
            return Err(Status::invalid(message));
        }
        if self.kind.has_generation && self.spec(&old) != self.spec(&next) {
            count_generation(metadata_mut(&mut next));
        }
        if next == old {
            return Ok(json::object(self.kind, &next).into());
        }
        if is_being_deleted && metadata::finalizers(&next).is_empty() {
            let answer = json::object(self.kind, &next);
            self.commit(Change::Remove(old));
            return Ok(answer.into());
        }
        Ok(self.put(next))
    }

    /// The new state, with what this write may not change taken from the old one.
    fn written_part(&self, old: &Value, mut new: Value) -> Value {
        match self.part {
            Part::Whole if self.kind.has_status => {
                set(&mut new, "status", old.get("status").cloned());
                new
            }
            Part::Whole => new,
            Part::Status => {
                let mut next = old.clone();
                set(&mut next, "status", new.get("status").cloned());
                if !self.kind.is_custom {
                    set(&mut next, "metadata", new.get("metadata").cloned());
                }
                next
            }
        }
    }

    /// What the generation counts changes of.
    fn spec<'a>(&self, object: &'a Value) -> BTreeMap<&'a str, &'a Value> {
        let fields = object.as_object().into_iter().flatten();
        let is_counted = |field: &str| {
            let is_status = field == "status" && self.kind.has_status;
            !is_status && !matches!(field, "metadata" | "kind" | "apiVersion")
        };
        fields
            .map(|(field, value)| (field.as_str(), value))
            .filter(|(field, _)| is_counted(field))
            .collect()
    }

    fn check_names(&self, object: &Value) -> Result<(), Status> {
        let (name, expected) = (metadata_text(object, "name"), self.key.name());
        if name.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
            )));
        }
        if name != expected {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({expected})"
            )));
        }
        self.check_namespace(object)
    }

    fn check_namespace(&self, object: &Value) -> Result<(), Status> {
        let namespace = metadata_text(object, "namespace");
        if namespace.is_empty() || (self.kind.is_namespaced && namespace == self.key.namespace()) {
            return Ok(());
        }
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        Err(Status::bad_request(message))
    }

    fn check_version(&self, version: &str, old: &Value) -> Result<(), Status> {
        let stored = metadata_text(old, "resourceVersion");
        if version.parse::<u64>().ok() == stored.parse().ok() {
            return Ok(());
        }
        Err(Status::conflict(self.kind, self.key.name(), CHANGED))
    }

    fn check_preconditions(&self, wanted: &Preconditions, object: &Value) -> Result<(), Status> {
        for (field, wanted) in [
            ("uid", &wanted.uid),
            ("resourceVersion", &wanted.resource_version),
        ] {
            let stored = metadata_text(object, field);
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != stored) {
                let why = format!("the precondition {field} {wanted:?} is not met by {stored:?}");
                return Err(Status::conflict(self.kind, self.key.name(), &why));
            }
        }
        Ok(())
    }
}

/// Kind and version, which clients may leave out of built-in kinds.
fn set_type(kind: &ServedKind, object: &mut Value) {
    set(object, "kind", Some(kind.kind.clone().into()));
    set(object, "apiVersion", Some(kind.api_version().into()));
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match (object.as_object_mut(), value) {
        (Some(map), Some(value)) => drop(map.insert(field.into(), value)),
        (Some(map), None) => drop(map.remove(field)),
        (None, _) => {}
    }
}

/// Raises the generation, if the object has one.
fn count_generation(metadata: &mut Map<String, Value>) {
    if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

fn is_absent(version: &str) -> bool {
    version.is_empty() || version.parse() == Ok(0)
}

fn check_version_text(object: &Value) -> Result<(), Status> {
    let version = metadata_text(object, "resourceVersion");
    if version.is_empty() || version.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(Status::untyped(super::query::unsigned_error(version)))
}
