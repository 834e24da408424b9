//! Watch events and lists in Kubernetes' protobuf: the fields of [`Event`], found by their numbers.

use anyhow::{Context, Result, bail};
use kube_fanout::resource::ByteSpan;
use kube_fanout::resource::wire::{MAGIC, WireField, WireFields, WireValue};

use super::event::{Event, EventKind, WRITTEN_AT, WriteTime};
use super::list::ListVersions;

/// `ObjectMeta` of every object, and `ListMeta` of every list.
const METADATA: u32 = 1;
/// `items` of every list.
const ITEMS: u32 = 2;
/// `code` of a Status.
const STATUS_CODE: u32 = 6;

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
    let message = whole(frame)?;
    let kind = match last(frame, message, 1)?.map(|at| at.of(frame)) {
        Some(b"ADDED") => EventKind::Added,
        Some(b"MODIFIED") => EventKind::Modified,
        Some(b"DELETED") => EventKind::Deleted,
        Some(b"BOOKMARK") => EventKind::Bookmark,
        Some(b"ERROR") => EventKind::Error,
        other => bail!("an event of unknown type {other:?}"),
    };
    let extension = last(frame, message, 2)?.context("an event without an object")?;
    let object = last(frame, extension, 1)?.context("an event without an object")?;
    let object = object_in(frame, object)?;
    if kind == EventKind::Error {
        let event = Event {
            kind,
            version: code(frame, object)?.context("an ERROR event without a code")?,
            write: None,
        };
        return Ok((event, String::new()));
    }
    let metadata = Metadata::of(frame, object)?;
    let event = Event {
        kind,
        version: metadata.version.context("an event without a version")?,
        write: metadata.write.filter(|_| kind != EventKind::Bookmark),
    };
    Ok((event, metadata.namespaced_name()))
}

pub fn list(body: &[u8]) -> Result<ListVersions> {
    let list = object_in(body, whole(body)?)?;
    let (mut version, mut items) = (None, Vec::new());
    for field in WireFields::within(body, list) {
        let field = field?;
        match field.number {
            METADATA => {
                let at = last(body, bytes(&field)?, 2)?;
                version = at.and_then(|at| number(at.of(body)));
            }
            ITEMS => {
                let item = Metadata::of(body, bytes(&field)?)?;
                let version = item.version.context("an object without a version")?;
                items.push((item.namespaced_name(), version));
            }
            _ => {}
        }
    }
    Ok((version.context("a list without a version")?, items))
}

impl Metadata {
    fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The metadata of an object. All of its fields are visited, so that a truncated one is found.
    fn of(bytes_all: &[u8], object: ByteSpan) -> Result<Self> {
        let at = last(bytes_all, object, METADATA)?.context("an object without metadata")?;
        let mut metadata = Self::default();
        for field in WireFields::within(bytes_all, at) {
            let field = field?;
            match field.number {
                1 => metadata.name = text(bytes_all, &field)?,
                3 => metadata.namespace = text(bytes_all, &field)?,
                6 => metadata.version = number(bytes(&field)?.of(bytes_all)),
                12 => {
                    let entry = bytes(&field)?;
                    let key = last(bytes_all, entry, 1)?.map(|at| at.of(bytes_all));
                    if key == Some(WRITTEN_AT.as_bytes())
                        && let Some(value) = last(bytes_all, entry, 2)?
                    {
                        metadata.write = WriteTime::parse(value.of(bytes_all));
                    }
                }
                _ => {}
            }
        }
        Ok(metadata)
    }
}

fn whole(bytes: &[u8]) -> Result<ByteSpan> {
    let end = u32::try_from(bytes.len()).context("more than 4 GiB")?;
    Ok(ByteSpan { start: 0, end })
}

/// The message in the envelope of every object: a magic number, and `runtime.Unknown`.
fn object_in(bytes_all: &[u8], at: ByteSpan) -> Result<ByteSpan> {
    if !at.of(bytes_all).starts_with(MAGIC) {
        bail!("an object that is not in protobuf");
    }
    let unknown = ByteSpan {
        start: at.start + u32::try_from(MAGIC.len())?,
        end: at.end,
    };
    last(bytes_all, unknown, 2)?.context("an envelope without an object")
}

/// The last field with this number in a message; the other fields are visited too.
fn last(bytes_all: &[u8], message: ByteSpan, number: u32) -> Result<Option<ByteSpan>> {
    let mut found = None;
    for field in WireFields::within(bytes_all, message) {
        let field = field?;
        if field.number == number {
            found = Some(bytes(&field)?);
        }
    }
    Ok(found)
}

fn code(bytes_all: &[u8], status: ByteSpan) -> Result<Option<u64>> {
    let mut code = None;
    for field in WireFields::within(bytes_all, status) {
        if let WireField {
            number: STATUS_CODE,
            value: WireValue::Varint(value),
            ..
        } = field?
        {
            code = Some(value);
        }
    }
    Ok(code)
}

fn bytes(field: &WireField) -> Result<ByteSpan> {
    field
        .bytes()
        .with_context(|| format!("field {} is of another type", field.number))
}

fn text(bytes_all: &[u8], field: &WireField) -> Result<String> {
    let text = bytes(field)?.of(bytes_all);
    Ok(std::str::from_utf8(text)?.to_owned())
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
