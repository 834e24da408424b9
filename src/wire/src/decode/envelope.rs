//! The envelope of a watch event: `{"type":…,"object":…}`. Reads one line; `frames.rs` splits a stream into lines.

use crate::resource::{ByteSpan, EventKind, FieldTable, ObjectParts};

use super::json::{Json, ScanError};
use super::scanner::{Bookmark, bookmark_parts, object_parts, scan_bookmark, scan_object};
use super::status::{UpstreamStatus, scan_status};

/// The `type` of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
    /// `BOOKMARK`: the object has only a version.
    Bookmark,
    /// `ERROR`: the object is a `Status`, and the stream ends.
    Error,
}

impl WireKind {
    /// The value of `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }

    /// What happened to the object; `None` for bookmarks and errors.
    #[must_use]
    pub const fn event_kind(self) -> Option<EventKind> {
        match self {
            Self::Added => Some(EventKind::Added),
            Self::Modified => Some(EventKind::Modified),
            Self::Deleted => Some(EventKind::Deleted),
            Self::Bookmark | Self::Error => None,
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            "ERROR" => Self::Error,
            _ => return None,
        })
    }
}

/// An event's type, and the position of its object in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventEnvelope {
    /// The event's type.
    pub kind: WireKind,
    /// Position of the object, from its opening to its closing brace.
    pub object: ByteSpan,
}

/// One watch event, completely read: a line of JSON or a frame of protobuf.
#[derive(Clone, Debug)]
pub enum WatchLine<'a> {
    /// A change of an object.
    Event {
        /// What happened.
        kind: EventKind,
        /// Position of the object in the line or frame.
        object: ByteSpan,
        /// The object's parts; their spans count from its first byte.
        parts: ObjectParts<'a>,
    },
    /// A bookmark; its span counts from the object's first byte.
    Bookmark(Bookmark),
    /// An ERROR event, which ends the stream.
    Error(UpstreamStatus),
}

/// Reads the envelope alone. Accepts any order of keys, unknown keys and whitespace.
///
/// # Errors
/// The line is not one whole object in UTF-8, or `type` is missing or unknown, or `object` is missing or not an object.
pub fn scan_event(line: &[u8]) -> Result<EventEnvelope, ScanError> {
    let mut json = Json::new(line)?;
    let mut kind = None;
    let mut object = None;
    json.object("a watch event", |json, key| {
        match &*key.decode()? {
            "type" => kind = Some(wire_kind(json)?),
            "object" if json.peek() == Some(b'{') => {
                object = Some(json.with_own_depth(Json::skip)?)
            }
            "object" => return json.expected("an object"),
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    json.end()?;
    Ok(EventEnvelope {
        kind: kind.ok_or_else(|| missing("type", &json))?,
        object: object.ok_or_else(|| missing("object", &json))?,
    })
}

/// Reads envelope and object. This takes a single pass if `type` comes before `object`, as it does in practice.
///
/// # Errors
/// As [`scan_event`], and as `scan_object` and `scan_bookmark` for the object.
pub fn scan_line(line: &[u8], fields: FieldTable) -> Result<WatchLine<'_>, ScanError> {
    if let Some(offset) = memchr::memchr(b'\n', line) {
        return Err(ScanError::Expected {
            what: "an event on one line",
            offset,
        });
    }
    let mut json = Json::new(line)?;
    let mut kind = None;
    let mut event = None;
    let mut unread_object = None;
    json.object("a watch event", |json, key| {
        match &*key.decode()? {
            "type" => kind = Some(wire_kind(json)?),
            "object" => match kind {
                Some(kind) => {
                    event = Some(json.with_own_depth(|json| read_object(json, kind, fields))?);
                }
                None => unread_object = Some(json.with_own_depth(Json::skip)?),
            },
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    json.end()?;
    if let Some(event) = event {
        return Ok(event);
    }
    let kind = kind.ok_or_else(|| missing("type", &json))?;
    let object = unread_object.ok_or_else(|| missing("object", &json))?;
    late_object(line, object, kind, fields)
}

fn read_object<'a>(
    json: &mut Json<'a>,
    kind: WireKind,
    fields: FieldTable,
) -> Result<WatchLine<'a>, ScanError> {
    if json.peek() != Some(b'{') {
        return json.expected("an object");
    }
    let start = json.at();
    let Some(event_kind) = kind.event_kind() else {
        return match kind {
            WireKind::Bookmark => bookmark_parts(json).map(WatchLine::Bookmark),
            WireKind::Added | WireKind::Modified | WireKind::Deleted | WireKind::Error => json
                .skip()
                .map(|at| WatchLine::Error(scan_status(json.bytes_of(at)))),
        };
    };
    let parts = object_parts(json, fields)?;
    Ok(WatchLine::Event {
        kind: event_kind,
        object: super::json::span(start, json.at())?,
        parts,
    })
}

/// Reads the object of a line whose `type` comes after it.
fn late_object(
    line: &[u8],
    object: ByteSpan,
    kind: WireKind,
    fields: FieldTable,
) -> Result<WatchLine<'_>, ScanError> {
    let bytes = object.of(line);
    Ok(match kind.event_kind() {
        Some(kind) => WatchLine::Event {
            kind,
            object,
            parts: scan_object(bytes, fields)?,
        },
        None if kind == WireKind::Bookmark => WatchLine::Bookmark(scan_bookmark(bytes)?),
        None => WatchLine::Error(scan_status(bytes)),
    })
}

fn wire_kind(json: &mut Json<'_>) -> Result<WireKind, ScanError> {
    const WHAT: &str = "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR";
    json.peek();
    let offset = json.at();
    WireKind::of(&json.string(WHAT)?.decode()?).ok_or(ScanError::Expected { what: WHAT, offset })
}

const fn missing(what: &'static str, json: &Json<'_>) -> ScanError {
    ScanError::Missing {
        what,
        offset: json.at(),
    }
}

#[cfg(test)]
mod tests;
