//! Watch events and lists in Kubernetes' protobuf: the fields of [`Event`], found by their numbers. Nothing here is shared with the server
//! under test.

use anyhow::{Context, Result, bail};

use super::event::{Event, EventKind, WRITTEN_AT, WriteTime};
use super::list::ListVersions;

/// Before every object in protobuf.
pub const MAGIC: &[u8] = b"k8s\0";
/// `ObjectMeta` of every object, and `ListMeta` of every list.
const METADATA: u64 = 1;
/// `items` of every list.
const ITEMS: u64 = 2;
/// `code` of a Status.
const STATUS_CODE: u64 = 6;

/// A field of a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Eight or four bytes, which no field that is read here has.
    Fixed,
}

/// The metadata of an object that is read.
#[derive(Debug, Default)]
struct Metadata {
    name: String,
    namespace: String,
    version: Option<u64>,
    write: Option<WriteTime>,
}

/// Reads a watch event without its length prefix.
pub fn event(frame: &[u8]) -> Result<Event> {
    named_event(frame).map(|(event, _)| event)
}

/// Like [`event`], with the object's namespaced name.
pub fn named_event(frame: &[u8]) -> Result<(Event, String)> {
    let kind = match last(frame, 1)? {
        Some(b"ADDED") => EventKind::Added,
        Some(b"MODIFIED") => EventKind::Modified,
        Some(b"DELETED") => EventKind::Deleted,
        Some(b"BOOKMARK") => EventKind::Bookmark,
        Some(b"ERROR") => EventKind::Error,
        other => bail!("an event of unknown type {other:?}"),
    };
    let extension = last(frame, 2)?.context("an event without an object")?;
    let object = object_in(last(extension, 1)?.context("an event without an object")?)?;
    if kind == EventKind::Error {
        let event = Event {
            kind,
            version: code(object)?.context("an ERROR event without a code")?,
            write: None,
        };
        return Ok((event, String::new()));
    }
    let metadata = Metadata::of(object)?;
    let event = Event {
        kind,
        version: metadata.version.context("an event without a version")?,
        write: metadata.write.filter(|_| kind != EventKind::Bookmark),
    };
    Ok((event, metadata.namespaced_name()))
}

pub fn list(body: &[u8]) -> Result<ListVersions> {
    let (mut version, mut items) = (None, Vec::new());
    for_each(object_in(body)?, |number, value| {
        match number {
            METADATA => version = last(bytes(value)?, 2)?.and_then(decimal),
            ITEMS => {
                let item = Metadata::of(bytes(value)?)?;
                let version = item.version.context("an object without a version")?;
                items.push((item.namespaced_name(), version));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok((version.context("a list without a version")?, items))
}

impl Metadata {
    fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn of(object: &[u8]) -> Result<Self> {
        let mut metadata = Self::default();
        let message = last(object, METADATA)?.context("an object without metadata")?;
        for_each(message, |number, value| {
            match number {
                1 => metadata.name = std::str::from_utf8(bytes(value)?)?.to_owned(),
                3 => metadata.namespace = std::str::from_utf8(bytes(value)?)?.to_owned(),
                6 => metadata.version = decimal(bytes(value)?),
                12 => {
                    let annotation = bytes(value)?;
                    if last(annotation, 1)? == Some(WRITTEN_AT.as_bytes()) {
                        metadata.write = last(annotation, 2)?.and_then(WriteTime::parse);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(metadata)
    }
}

/// The message in the envelope of every object: a magic number, and `runtime.Unknown`.
fn object_in(bytes: &[u8]) -> Result<&[u8]> {
    let unknown = bytes.strip_prefix(MAGIC);
    let unknown = unknown.context("an object that is not in protobuf")?;
    last(unknown, 2)?.context("an envelope without an object")
}

/// The last field with this number; the other fields are visited too, so that a truncated one is found.
fn last(message: &[u8], wanted: u64) -> Result<Option<&[u8]>> {
    let mut found = None;
    for_each(message, |number, value| {
        if number == wanted {
            found = Some(bytes(value)?);
        }
        Ok(())
    })?;
    Ok(found)
}

fn code(status: &[u8]) -> Result<Option<u64>> {
    let mut code = None;
    for_each(status, |number, value| {
        if let (STATUS_CODE, Value::Number(value)) = (number, value) {
            code = Some(value);
        }
        Ok(())
    })?;
    Ok(code)
}

fn for_each<'a>(
    mut message: &'a [u8],
    mut field: impl FnMut(u64, Value<'a>) -> Result<()>,
) -> Result<()> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => take(&mut message, 8).map(|_| Value::Fixed)?,
            2 => {
                let len = varint(&mut message)?;
                Value::Bytes(take(&mut message, len)?)
            }
            5 => take(&mut message, 4).map(|_| Value::Fixed)?,
            other => bail!("a field of unknown type {other}"),
        };
        field(tag >> 3, value)?;
    }
    Ok(())
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number of more than ten bytes")
}

fn take<'a>(message: &mut &'a [u8], len: u64) -> Result<&'a [u8]> {
    let taken = message.split_at_checked(usize::try_from(len)?);
    let (taken, rest) = taken.context("a truncated message")?;
    *message = rest;
    Ok(taken)
}

fn bytes<'a>(value: Value<'a>) -> Result<&'a [u8]> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Number(_) | Value::Fixed => bail!("a field of another type"),
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
