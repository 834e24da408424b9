//! Finds the parts of an object in its protobuf message. Does not check the object against a schema.

use std::borrow::Cow;

use crate::decode::json::ScanError;
use crate::decode::scanner::{Bookmark, INITIAL_EVENTS_END};
use crate::resource::wire::{WireField, WireFields};
use crate::resource::{
    ByteSpan, FieldTable, FieldValue, ObjectParts, ResourceVersion, SelectableField,
};

use super::fields::{bytes_of, entry, integer, text, version};

/// Number of the field that holds `ObjectMeta`, in every kind.
const METADATA: u32 = 1;

/// Finds the parts of one object in its message, without any envelope. Spans count from the message's first byte.
///
/// A label that occurs twice, which the API server never writes, is kept twice.
///
/// # Errors
/// The bytes are not a message, a field that is read has another type, or the name or the resource version is missing or
/// unusable.
pub fn scan_protobuf_object(raw: &[u8], fields: FieldTable) -> Result<ObjectParts<'_>, ScanError> {
    let mut found = ObjectWalk {
        table: fields.fields(),
        parts: ObjectParts::before(fields),
        version: None,
    };
    let root = MessageLevel::new(found.table, u32::MAX, 0);
    for field in WireFields::new(raw) {
        let field = field?;
        if field.number == METADATA {
            found.metadata(raw, bytes_of(&field, "metadata")?)?;
        } else if root.may_have(field.number) {
            found.field(raw, &field, root)?;
        }
    }
    found.finish(raw.len())
}

/// Reads the object of a bookmark: the fields 6 (resourceVersion) and 12 (annotations) of its `ObjectMeta`.
pub(super) fn scan_protobuf_bookmark(raw: &[u8]) -> Result<Bookmark, ScanError> {
    let mut found = None;
    let mut initial_events_end = false;
    for field in WireFields::new(raw) {
        let field = field?;
        if field.number != METADATA {
            continue;
        }
        for field in WireFields::within(raw, bytes_of(&field, "metadata")?) {
            let field = field?;
            match field.number {
                6 => found = Some(version(raw, &field)?),
                12 => {
                    let (key, value) = entry(raw, bytes_of(&field, "an annotation")?)?;
                    if key == INITIAL_EVENTS_END {
                        initial_events_end = value == "true";
                    }
                }
                _ => {}
            }
        }
    }
    let (resource_version, version_span) =
        found.ok_or_else(|| missing("metadata.resourceVersion", raw.len()))?;
    Ok(Bookmark {
        resource_version,
        version_span,
        initial_events_end,
    })
}

/// A message that contains fields of the table, directly or further below.
#[derive(Clone, Copy)]
struct MessageLevel {
    /// A bit for each field of the table whose first `depth` numbers led here.
    wanted: u32,
    depth: usize,
    /// A bit for the next number of each of these fields, modulo 64. This alone is enough to skip most fields of a message.
    numbers: u64,
}

impl MessageLevel {
    fn new(table: &[SelectableField], wanted: u32, depth: usize) -> Self {
        let here = table
            .iter()
            .enumerate()
            .filter(|(index, _)| wanted & 1 << index != 0);
        let numbers = here
            .filter_map(|(_, entry)| entry.numbers.get(depth))
            .fold(0, |numbers, number| numbers | Self::bit(*number));
        Self {
            wanted,
            depth,
            numbers,
        }
    }

    const fn bit(number: u32) -> u64 {
        1 << (number % 64)
    }

    const fn may_have(self, number: u32) -> bool {
        self.numbers & Self::bit(number) != 0
    }
}

struct ObjectWalk<'a> {
    /// At most 32 fields: the bits of a `u32` stand for them.
    table: &'static [SelectableField],
    parts: ObjectParts<'a>,
    version: Option<(ResourceVersion, ByteSpan)>,
}

impl<'a> ObjectWalk<'a> {
    /// Reads the fields of `ObjectMeta`: 1 name, 3 namespace, 5 uid, 6 resourceVersion, 11 labels.
    fn metadata(&mut self, raw: &'a [u8], message: ByteSpan) -> Result<(), ScanError> {
        for field in WireFields::within(raw, message) {
            let field = field?;
            let slot = match field.number {
                1 => &mut self.parts.name,
                3 => &mut self.parts.namespace,
                5 => &mut self.parts.uid,
                6 => {
                    self.version = Some(version(raw, &field)?);
                    continue;
                }
                11 => {
                    let (key, value) = entry(raw, bytes_of(&field, "a label")?)?;
                    self.parts.labels.push((key.into(), value.into()));
                    continue;
                }
                _ => continue,
            };
            *slot = text(raw, &field)?.into();
        }
        Ok(())
    }

    /// Stores the value if a field of the table has this path, or descends if some fields are below it: no deeper than the
    /// longest path.
    fn field(
        &mut self,
        raw: &'a [u8],
        field: &WireField,
        level: MessageLevel,
    ) -> Result<(), ScanError> {
        let mut below = 0;
        for (index, entry) in self.table.iter().enumerate() {
            if level.wanted & 1 << index == 0
                || entry.numbers.get(level.depth) != Some(&field.number)
            {
                continue;
            }
            if entry.numbers.len() == level.depth + 1 {
                self.parts.fields[index] = value(raw, field, entry.value)?;
                // No other field of the table is below a value.
                return Ok(());
            }
            below |= 1 << index;
        }
        if below == 0 {
            return Ok(());
        }
        let level = MessageLevel::new(self.table, below, level.depth + 1);
        for field in WireFields::within(raw, bytes_of(field, "a message")?) {
            let field = field?;
            if level.may_have(field.number) {
                self.field(raw, &field, level)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, end: usize) -> Result<ObjectParts<'a>, ScanError> {
        if self.parts.name.is_empty() {
            return Err(missing("metadata.name", end));
        }
        let (version, at) = self
            .version
            .ok_or_else(|| missing("metadata.resourceVersion", end))?;
        self.parts.resource_version = version;
        self.parts.version_span = at;
        Ok(self.parts)
    }
}

/// A selectable field's value as text.
fn value<'a>(
    raw: &'a [u8],
    field: &WireField,
    written: FieldValue,
) -> Result<Cow<'a, str>, ScanError> {
    Ok(match written {
        FieldValue::String => text(raw, field)?.into(),
        FieldValue::Bool => if integer(field, "a bool")? == 0 {
            "false"
        } else {
            "true"
        }
        .into(),
        FieldValue::Integer => integer(field, "an integer")?.to_string().into(),
    })
}

const fn missing(what: &'static str, offset: usize) -> ScanError {
    ScanError::Missing { what, offset }
}
