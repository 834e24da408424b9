//! Protobuf objects cut down, and the metadata of custom resources, which have no protobuf of their own, written in it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::ScanError;
use crate::resource::Span;
use crate::resource::wire::{WireError, WireField, WireFields, put_bytes, put_head, put_integer};

/// Of every kind, the field that holds `ObjectMeta`.
const METADATA: u32 = 1;
const MANAGED_FIELDS: u32 = 17;

/// The message of `PartialObjectMetadata` of a raw object: its metadata as it stands.
///
/// # Errors
/// The bytes are no message.
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

/// A raw object without `metadata.managedFields`; all else stands as it stood.
///
/// # Errors
/// The bytes are no object.
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
        let kept = |field: &WireField| field.number != MANAGED_FIELDS;
        let mut len = 0;
        for field in WireFields::within(raw, metadata) {
            let field = field?;
            len += if kept(&field) {
                span_len(field.span)
            } else {
                0
            };
        }
        put_head(&mut out, METADATA, len);
        for field in WireFields::within(raw, metadata).flatten().filter(kept) {
            out.extend_from_slice(field.span.of(raw));
        }
    }
    Ok(out)
}

const fn span_len(span: Span) -> usize {
    (span.end - span.start) as usize
}

/// The message of `ObjectMeta` for a custom resource's `metadata` in JSON, byte for byte as the API server writes it in a
/// `PartialObjectMetadata` (protocol.md §5.3): strings and numbers even when empty, maps by key.
///
/// # Errors
/// A member is of another type than in `ObjectMeta`, or a time is none. The API server keeps such objects out.
pub(super) fn metadata_of_json(metadata: &[u8]) -> Result<Vec<u8>, ScanError> {
    let metadata: ObjectMeta<'_> =
        serde_json::from_slice(metadata).map_err(|error| ScanError::Expected {
            what: "an object's metadata",
            offset: error.column(),
        })?;
    let mut out = Vec::with_capacity(256);
    metadata.put(&mut out)?;
    Ok(out)
}

/// Text that may be `null` or absent.
type Text<'a> = Option<Cow<'a, str>>;

/// Text by key; in the order of the bytes, as Go sorts.
type Map<'a> = Option<BTreeMap<Cow<'a, str>, Text<'a>>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    generate_name: Text<'a>,
    namespace: Text<'a>,
    self_link: Text<'a>,
    uid: Text<'a>,
    resource_version: Text<'a>,
    generation: Option<i64>,
    creation_timestamp: Text<'a>,
    deletion_timestamp: Text<'a>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Map<'a>,
    annotations: Map<'a>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Option<Vec<Cow<'a, str>>>,
    managed_fields: Option<Vec<ManagedFields<'a>>>,
}

impl ObjectMeta<'_> {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), ScanError> {
        put_text(out, 1, &self.name);
        put_text(out, 2, &self.generate_name);
        put_text(out, 3, &self.namespace);
        put_text(out, 4, &self.self_link);
        put_text(out, 5, &self.uid);
        put_text(out, 6, &self.resource_version);
        put_integer(out, 7, self.generation.unwrap_or_default().cast_unsigned());
        put_bytes(out, 8, &time(&self.creation_timestamp)?);
        let deleted = time(&self.deletion_timestamp)?;
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
            put_bytes(out, 14, finalizer.as_bytes());
        }
        for fields in self.managed_fields.iter().flatten() {
            put_bytes(out, MANAGED_FIELDS, &fields.message()?);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    kind: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
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
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Text<'a>,
    operation: Text<'a>,
    api_version: Text<'a>,
    time: Text<'a>,
    fields_type: Text<'a>,
    #[serde(rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
    subresource: Text<'a>,
}

impl ManagedFields<'_> {
    fn message(&self) -> Result<Vec<u8>, ScanError> {
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
        Ok(out)
    }
}

fn put_text(out: &mut Vec<u8>, number: u32, text: &Text<'_>) {
    put_bytes(out, number, text.as_deref().unwrap_or_default().as_bytes());
}

fn put_map(out: &mut Vec<u8>, number: u32, map: &Map<'_>) {
    for (key, value) in map.iter().flatten() {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_text(&mut entry, 2, value);
        put_bytes(out, number, &entry);
    }
}

/// The message of a `Time`: seconds since 1970 and no nanoseconds; empty for none and for Go's zero, the first second of year 1.
fn time(text: &Text<'_>) -> Result<Vec<u8>, ScanError> {
    const ZERO: i64 = -62_135_596_800;
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let time: jiff::Timestamp = text.parse().map_err(|_| ScanError::Expected {
        what: "a time in metadata",
        offset: 0,
    })?;
    let mut out = Vec::new();
    if time.as_second() != ZERO {
        put_integer(&mut out, 1, time.as_second().cast_unsigned());
        put_integer(&mut out, 2, 0);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
