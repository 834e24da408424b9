//! Protobuf objects reduced to metadata or without managed fields, and the metadata of custom resources, which exist only in JSON,
//! written in protobuf.

mod time;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use self::time::{Instant, instant};
use crate::decode::{ScanError, members, value_of};
use crate::resource::ByteSpan;
use crate::resource::wire::{WireError, WireFields, put_bytes, put_head, put_integer};

/// The field number of `ObjectMeta` in every kind.
const METADATA: u32 = 1;
const MANAGED_FIELDS: u32 = 17;

/// The `PartialObjectMetadata` message of a raw object, with the object's own metadata.
///
/// # Errors
/// The bytes are not a message.
pub(super) fn partial(raw: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    for field in WireFields::new(raw) {
        let field = field?;
        if field.number == METADATA {
            out.extend_from_slice(field.span.of(raw));
        }
    }
    Ok(out)
}

/// A raw object without `metadata.managedFields`; all other fields are copied unchanged.
///
/// # Errors
/// The bytes are not an object.
pub(super) fn without_managed_fields(raw: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(raw.len());
    for field in WireFields::new(raw) {
        let field = field?;
        if field.number != METADATA {
            out.extend_from_slice(field.span.of(raw));
            continue;
        }
        let offset = field.span.start as usize;
        let metadata = field.bytes().ok_or(WireError { offset })?;
        let mut kept = SmallVec::<[ByteSpan; 16]>::new();
        for field in WireFields::within(raw, metadata) {
            let field = field?;
            if field.number != MANAGED_FIELDS {
                kept.push(field.span);
            }
        }
        put_head(
            &mut out,
            METADATA,
            kept.iter().map(|span| span_len(*span)).sum(),
        );
        for span in kept {
            out.extend_from_slice(span.of(raw));
        }
    }
    Ok(out)
}

const fn span_len(span: ByteSpan) -> usize {
    (span.end - span.start) as usize
}

/// The `ObjectMeta` message for a custom resource's `metadata` in JSON, byte for byte as the API server writes it in a
/// `PartialObjectMetadata` (docs/PROTOCOL.md §5.3): strings and numbers even when empty, maps sorted by key.
///
/// A member of another type than in `ObjectMeta`, or with an invalid time, counts as absent, as when the API server reads an
/// unstructured object. Therefore every object in a cache can be written.
///
/// # Errors
/// The bytes are not a JSON object.
pub(super) fn metadata_of_json(metadata: &[u8]) -> Result<Vec<u8>, ScanError> {
    let metadata = match serde_json::from_slice(metadata) {
        Ok(metadata) => metadata,
        Err(_) => ObjectMeta::by_member(metadata)?,
    };
    let mut out = Vec::with_capacity(1024);
    metadata.put(&mut out);
    Ok(out)
}

/// A string, borrowed if nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Str<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Str<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

/// A string that may be `null` or absent.
type OptionalText<'a> = Option<Str<'a>>;

/// Strings by key, sorted bytewise as Go does.
type Map<'a> = Option<BTreeMap<Str<'a>, OptionalText<'a>>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: OptionalText<'a>,
    generate_name: OptionalText<'a>,
    namespace: OptionalText<'a>,
    self_link: OptionalText<'a>,
    uid: OptionalText<'a>,
    resource_version: OptionalText<'a>,
    generation: Option<i64>,
    creation_timestamp: OptionalText<'a>,
    deletion_timestamp: OptionalText<'a>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Map<'a>,
    annotations: Map<'a>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Option<Vec<Str<'a>>>,
    managed_fields: Option<Vec<ManagedFieldsEntry<'a>>>,
}

impl<'a> ObjectMeta<'a> {
    /// Reads each member by itself, so that a member of the wrong type does not affect the others.
    fn by_member(metadata: &'a [u8]) -> Result<Self, ScanError> {
        let members = members(metadata)?;
        let value = |key| value_of(&members, key).map(|span| span.of(metadata));
        Ok(Self {
            name: read(value("name")),
            generate_name: read(value("generateName")),
            namespace: read(value("namespace")),
            self_link: read(value("selfLink")),
            uid: read(value("uid")),
            resource_version: read(value("resourceVersion")),
            generation: read(value("generation")),
            creation_timestamp: read(value("creationTimestamp")),
            deletion_timestamp: read(value("deletionTimestamp")),
            deletion_grace_period_seconds: read(value("deletionGracePeriodSeconds")),
            labels: read(value("labels")),
            annotations: read(value("annotations")),
            owner_references: read(value("ownerReferences")),
            finalizers: read(value("finalizers")),
            managed_fields: read(value("managedFields")),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, 1, &self.name);
        put_text(out, 2, &self.generate_name);
        put_text(out, 3, &self.namespace);
        put_text(out, 4, &self.self_link);
        put_text(out, 5, &self.uid);
        put_text(out, 6, &self.resource_version);
        put_integer(out, 7, self.generation.unwrap_or_default().cast_unsigned());
        put_bytes(out, 8, &time(&self.creation_timestamp).unwrap_or_default());
        let deleted = time(&self.deletion_timestamp).unwrap_or_default();
        if !deleted.is_empty() {
            put_bytes(out, 9, &deleted);
        }
        if let Some(seconds) = self.deletion_grace_period_seconds {
            put_integer(out, 10, seconds.cast_unsigned());
        }
        put_map(out, 11, &self.labels);
        put_map(out, 12, &self.annotations);
        for owner in self.owner_references.iter().flatten() {
            put_bytes(out, 13, &owner.message());
        }
        for finalizer in self.finalizers.iter().flatten() {
            put_bytes(out, 14, finalizer.0.as_bytes());
        }
        let managed: Option<Vec<_>> = self
            .managed_fields
            .iter()
            .flatten()
            .map(ManagedFieldsEntry::message)
            .collect();
        for fields in managed.iter().flatten() {
            put_bytes(out, MANAGED_FIELDS, fields);
        }
    }
}

/// A member's value; the default if the member is absent or of another type.
fn read<'a, T: Deserialize<'a> + Default>(value: Option<&'a [u8]>) -> T {
    value
        .and_then(|value| serde_json::from_slice(value).ok())
        .unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: OptionalText<'a>,
    kind: OptionalText<'a>,
    name: OptionalText<'a>,
    uid: OptionalText<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl OwnerReference<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, 1, &self.kind);
        put_text(&mut out, 3, &self.name);
        put_text(&mut out, 4, &self.uid);
        put_text(&mut out, 5, &self.api_version);
        for (number, value) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(value) = value {
                put_integer(&mut out, number, value.into());
            }
        }
        out
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow)]
    manager: OptionalText<'a>,
    operation: OptionalText<'a>,
    api_version: OptionalText<'a>,
    time: OptionalText<'a>,
    fields_type: OptionalText<'a>,
    #[serde(rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
    subresource: OptionalText<'a>,
}

impl ManagedFieldsEntry<'_> {
    /// The entry's message; `None` if its time is invalid.
    fn message(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        put_text(&mut out, 1, &self.manager);
        put_text(&mut out, 2, &self.operation);
        put_text(&mut out, 3, &self.api_version);
        if self.time.is_some() {
            put_bytes(&mut out, 4, &time(&self.time)?);
        }
        put_text(&mut out, 6, &self.fields_type);
        if let Some(fields) = self.fields {
            let mut message = Vec::new();
            put_bytes(&mut message, 1, fields.get().as_bytes());
            put_bytes(&mut out, 7, &message);
        }
        put_text(&mut out, 8, &self.subresource);
        Some(out)
    }
}

fn put_text(out: &mut Vec<u8>, number: u32, text: &OptionalText<'_>) {
    let text = text.as_ref().map_or("", |text| &text.0);
    put_bytes(out, number, text.as_bytes());
}

fn put_map(out: &mut Vec<u8>, number: u32, map: &Map<'_>) {
    for (key, value) in map.iter().flatten() {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.0.as_bytes());
        put_text(&mut entry, 2, value);
        put_bytes(out, number, &entry);
    }
}

/// The message of a `Time`: seconds since 1970, and no nanoseconds. Empty if there is none, or if it is Go's zero time, the first
/// moment of year 1. `None` if the text is not a valid time.
fn time(text: &OptionalText<'_>) -> Option<Vec<u8>> {
    let Some(text) = text else {
        return Some(Vec::new());
    };
    let at = instant(&text.0)?;
    let mut out = Vec::new();
    if at != Instant::ZERO {
        put_integer(&mut out, 1, at.second.cast_unsigned());
        put_integer(&mut out, 2, 0);
    }
    Some(out)
}

#[cfg(test)]
mod tests;
