//! The rules of a write to one object: they make its next state, or refuse the write.

use hashbrown::HashSet;
use serde_json::{Map, Value};

use super::super::body::text;
use super::super::kinds::{Generation, ServedKind, StatusPart};
use super::super::refusal;
use super::super::validation::{
    NameRule, finalizer_name_faults, label_faults, name_fault, owner_faults,
};
use super::checks::check_namespace;
use super::input::{Stamp, WritablePart, WriteTarget};
use super::metadata::{finalizers, metadata_mut, metadata_text, remove, set};
use crate::protocol::status::{Status, StatusCause};
use crate::resource::{Layout, ObjectKey};

/// How many generated names are tried until one is free; kube-apiserver's number.
const NAME_ATTEMPT_COUNT: u64 = 8;
/// Characters of a generated name's suffix: no vowels, and none that are easily confused.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated name's suffix.
const NAME_SUFFIX_LEN: u32 = 5;
/// Maximum length of the part of `generateName` that is kept, so that the name is a DNS label.
const NAME_BASE_LEN_MAX: usize = 58;

/// Metadata that only the server sets.
const SERVER_FIELDS: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];
/// Metadata that is never stored.
const DROPPED_FIELDS: &[&str] = &["managedFields", "selfLink"];
/// Metadata that is not stored if it is empty.
const OPTIONAL_FIELDS: &[&str] = &[
    "generateName",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// A new object and its key.
pub(super) struct NewObject {
    pub(super) key: ObjectKey,
    pub(super) object: Value,
}

/// The object that a creation stores. `exists` tells whether a key is in use.
pub(super) fn new_object(
    kind: &ServedKind,
    namespace: &str,
    mut object: Value,
    stamp: Stamp<'_>,
    exists: &dyn Fn(&ObjectKey) -> bool,
) -> Result<NewObject, Status> {
    if !metadata_text(&object, "resourceVersion").is_empty() {
        return Err(Status::untyped(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    check_namespace(kind, namespace, &object)?;
    if kind.resource.layout == Layout::Dynamic && kind.status == StatusPart::Apart {
        remove(&mut object, "status");
    }
    let metadata = metadata_mut(&mut object);
    for field in SERVER_FIELDS.iter().chain(DROPPED_FIELDS) {
        metadata.remove(*field);
    }
    drop_empty(metadata);
    if kind.resource.namespaced {
        metadata.insert("namespace".to_owned(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
    let name = choose_name(kind, namespace, metadata, stamp.entropy, exists)?;
    metadata.insert("name".to_owned(), name.clone().into());
    metadata.insert("uid".to_owned(), stamp.uid.into());
    metadata.insert("creationTimestamp".to_owned(), stamp.now.into());
    if kind.generation == Generation::Counted {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let faults = [
        name_fault(name_rule(kind), &name).into_iter().collect(),
        label_faults(metadata),
        owner_faults(metadata),
        finalizer_name_faults(metadata),
    ]
    .concat();
    if !faults.is_empty() {
        return Err(refusal::invalid(kind, &name, faults));
    }
    let key = ObjectKey::new(namespace, &name);
    if exists(&key) {
        return Err(Status::already_exists(&kind.resource.gvr, &name));
    }
    Ok(NewObject { key, object })
}

/// The name in the metadata, or a free one generated from `generateName`.
fn choose_name(
    kind: &ServedKind,
    namespace: &str,
    metadata: &Map<String, Value>,
    entropy: u64,
    exists: &dyn Fn(&ObjectKey) -> bool,
) -> Result<String, Status> {
    let (name, base) = (text(metadata, "name"), text(metadata, "generateName"));
    if !name.is_empty() {
        return Ok(name.to_owned());
    }
    if base.is_empty() {
        let cause = StatusCause::required("metadata.name", "name or generateName is required");
        return Err(refusal::invalid(kind, "", vec![cause]));
    }
    let mut name = String::new();
    for attempt in 0..NAME_ATTEMPT_COUNT {
        name = generated_name(base, entropy.wrapping_add(attempt));
        if !exists(&ObjectKey::new(namespace, &name)) {
            return Ok(name);
        }
    }
    let mut refusal = Status::already_exists(&kind.resource.gvr, &name);
    refusal.message += ", the server was not able to generate a unique name for the object";
    Err(refusal)
}

fn generated_name(base: &str, entropy: u64) -> String {
    let mut name: String = base.chars().take(NAME_BASE_LEN_MAX).collect();
    let mut rest = entropy;
    let letter_count = NAME_ALPHABET.len() as u64;
    for _ in 0..NAME_SUFFIX_LEN {
        let letter = usize::try_from(rest % letter_count).unwrap_or_default();
        name.push(char::from(NAME_ALPHABET[letter]));
        rest /= letter_count;
    }
    name
}

/// The state that an update of `old` to `new` stores. Its resource version is still the old one.
pub(super) fn next_state(
    kind: &ServedKind,
    target: &WriteTarget,
    old: &Value,
    mut new: Value,
) -> Result<Value, Status> {
    match (target.part, kind.resource.layout) {
        (WritablePart::Status, Layout::Dynamic) => {
            let status = new.get("status").cloned();
            new = old.clone();
            set(&mut new, "status", status);
        }
        (WritablePart::Status, Layout::Typed) => {
            let (status, metadata) = (new.get("status").cloned(), new.get("metadata").cloned());
            new = old.clone();
            set(&mut new, "status", status);
            set(&mut new, "metadata", metadata);
        }
        (WritablePart::Whole, _) if kind.status == StatusPart::Apart => {
            set(&mut new, "status", old.get("status").cloned())
        }
        (WritablePart::Whole, _) => {}
    }
    let old_metadata = old.get("metadata").and_then(Value::as_object);
    let metadata = metadata_mut(&mut new);
    for field in SERVER_FIELDS.iter().chain(&["name", "namespace"]) {
        match old_metadata.and_then(|old| old.get(*field)) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
    for field in DROPPED_FIELDS {
        metadata.remove(*field);
    }
    drop_empty(metadata);
    let faults = [
        label_faults(metadata),
        owner_faults(metadata),
        finalizer_name_faults(metadata),
        finalizer_faults(old, &new),
    ]
    .concat();
    if !faults.is_empty() {
        return Err(refusal::invalid(kind, target.key.name(), faults));
    }
    if kind.generation == Generation::Counted && !same_spec(kind, old, &new) {
        bump_generation(&mut new);
    }
    Ok(new)
}

/// The fault of new finalizers on an object that is being deleted: they may only be removed.
fn finalizer_faults(old: &Value, new: &Value) -> Vec<StatusCause> {
    if metadata_text(old, "deletionTimestamp").is_empty() {
        return Vec::new();
    }
    // A set, because both lists may be as long as a body allows.
    let old_names: HashSet<&str> = finalizers(old).iter().filter_map(Value::as_str).collect();
    let added: Vec<_> = finalizers(new)
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !old_names.contains(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    vec![StatusCause::forbidden(
        "metadata.finalizers",
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        ),
    )]
}

/// Whether two states are equal apart from metadata and the status subresource; then the generation stays.
fn same_spec(kind: &ServedKind, old: &Value, new: &Value) -> bool {
    let spec = |value: &Value| -> Vec<(String, Value)> {
        value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| {
                *key != "metadata" && (*key != "status" || kind.status == StatusPart::None)
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    spec(old) == spec(new)
}

/// The state of an object whose deletion waits for its finalizers.
pub(super) fn marked_for_deletion(mut object: Value, stamp: Stamp<'_>) -> Value {
    let metadata = metadata_mut(&mut object);
    metadata.insert("deletionTimestamp".to_owned(), stamp.now.into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    if metadata.contains_key("generation") {
        bump_generation(&mut object);
    }
    object
}

fn bump_generation(object: &mut Value) {
    let metadata = metadata_mut(object);
    let generation = metadata
        .get("generation")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    metadata.insert("generation".to_owned(), (generation + 1).into());
}

fn name_rule(kind: &ServedKind) -> NameRule {
    match (&*kind.resource.gvr.group, &*kind.resource.gvr.resource) {
        ("", "namespaces") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) => NameRule::Segment,
        _ => NameRule::Subdomain,
    }
}

/// Removes members that are null, and optional ones that are empty.
fn drop_empty(metadata: &mut Map<String, Value>) {
    metadata.retain(|field, value| {
        let empty = match value {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        !empty || !(value.is_null() || OPTIONAL_FIELDS.contains(&field.as_str()))
    });
}
