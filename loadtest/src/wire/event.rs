//! One watch event's line: the swarm finds the fields that it needs by searching instead of parsing.
//!
//! The search relies on the servers' field order (docs/PROTOCOL.md §4.4: type first, then the object) and on JSON's escaping: inside a
//! string a quote is always preceded by a backslash, so `"resourceVersion":"` cannot occur in user text. The first one belongs to
//! `metadata` for every built-in kind. [`Event::parse_fully`] parses the line, and is used on a sample to check the search.

use std::fmt;

use anyhow::{Context, Result, bail};
use memchr::memmem;
use tokio::time::Instant;

use crate::recorder::now_ns;

/// The annotation with the time of the write: `SENT`, or `SENT+LATE` if it was sent later than it was due; both in nanoseconds, `SENT`
/// since the epoch.
pub const WRITTEN_AT: &str = "kube-fanout.dev/written-at";

const VERSION_FIELD: &[u8] = b"\"resourceVersion\":\"";
const NAME_FIELD: &[u8] = b"\"name\":\"";
const NAMESPACE_FIELD: &[u8] = b"\"namespace\":\"";
const WRITTEN_AT_FIELD: &[u8] = b"\"kube-fanout.dev/written-at\":\"";

/// Event types of the watch protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// An object was created, or matches the selector now.
    Added,
    Modified,
    /// An object was deleted, or no longer matches the selector.
    Deleted,
    Bookmark,
    /// A Status; the last event of its stream.
    Error,
}

/// The time of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTime {
    /// When the write was sent, nanoseconds since the epoch.
    pub sent_ns: u64,
    /// Delay of the sending, nanoseconds.
    pub late_ns: u64,
}

impl WriteTime {
    /// For a write that is sent now and was due then.
    pub fn now(due: Instant) -> Self {
        Self {
            sent_ns: now_ns(),
            late_ns: u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// When the write was due, nanoseconds since the epoch.
    pub const fn due_ns(self) -> u64 {
        self.sent_ns.saturating_sub(self.late_ns)
    }

    /// Parses the annotation's value, which ends with a quote or with the text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (sent_ns, rest) = digits(text)?;
        let late_ns = match rest {
            [b'+', rest @ ..] => match digits(rest)? {
                (late_ns, [] | [b'"', ..]) => late_ns,
                _ => return None,
            },
            [] | [b'"', ..] => 0,
            _ => return None,
        };
        Some(Self { sent_ns, late_ns })
    }
}

impl fmt::Display for WriteTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.sent_ns, self.late_ns)
    }
}

/// The fields of an event that the swarm uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// Resource version; for [`EventKind::Error`] the Status code.
    pub version: u64,
    /// The time of the write, from the annotation.
    pub write: Option<WriteTime>,
}

impl Event {
    /// Reads a line by searching.
    pub fn parse(line: &[u8]) -> Result<Self> {
        let Some(rest) = line.strip_prefix(b"{\"type\":\"") else {
            bail!("not an event: {}", excerpt(line))
        };
        if !line.ends_with(b"}}") {
            bail!("an event without its end: {}", excerpt(line));
        }
        let kind = match rest {
            [b'M', ..] => EventKind::Modified,
            [b'A', ..] => EventKind::Added,
            [b'D', ..] => EventKind::Deleted,
            [b'B', ..] => EventKind::Bookmark,
            [b'E', ..] => return Self::parse_fully(line),
            _ => bail!("an event of unknown type: {}", excerpt(line)),
        };
        let Some(at) = memmem::find(line, VERSION_FIELD) else {
            bail!("an event without a version: {}", excerpt(line))
        };
        let after = &line[at + VERSION_FIELD.len()..];
        let Some(version) = quoted_number(after) else {
            bail!("a version that is not a number: {}", excerpt(after))
        };
        let write = match kind {
            EventKind::Bookmark => None,
            // Custom resources have sorted fields, so the annotation may also be before the version.
            _ => find_write(after).or_else(|| find_write(&line[..at])),
        };
        Ok(Self {
            kind,
            version,
            write,
        })
    }

    /// Reads a line with a JSON parser.
    pub fn parse_fully(line: &[u8]) -> Result<Self> {
        Self::of(&serde_json::from_slice(line).context("an event that is not JSON")?)
    }

    /// The fields of an event that a JSON parser has read.
    pub fn of(value: &serde_json::Value) -> Result<Self> {
        let kind = match value["type"].as_str() {
            Some("ADDED") => EventKind::Added,
            Some("MODIFIED") => EventKind::Modified,
            Some("DELETED") => EventKind::Deleted,
            Some("BOOKMARK") => EventKind::Bookmark,
            Some("ERROR") => EventKind::Error,
            other => bail!("an event of unknown type {other:?}"),
        };
        let object = &value["object"];
        if kind == EventKind::Error {
            let version = object["code"]
                .as_u64()
                .context("an ERROR event without a code")?;
            return Ok(Self {
                kind,
                version,
                write: None,
            });
        }
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .context("an event without a version")?;
        let write = metadata["annotations"][WRITTEN_AT].as_str();
        Ok(Self {
            kind,
            version,
            write: write.and_then(|text| WriteTime::parse(text.as_bytes())),
        })
    }
}

/// The first resource version in a document: its own, for a single object of a built-in kind.
pub fn first_version(document: &[u8]) -> Option<u64> {
    memmem::find(document, VERSION_FIELD)
        .and_then(|at| quoted_number(&document[at + VERSION_FIELD.len()..]))
}

/// The namespaced name of a line's object by searching: built-in kinds have name and namespace first.
pub fn first_name(line: &[u8]) -> Option<String> {
    let name_at = memmem::find(line, NAME_FIELD)? + NAME_FIELD.len();
    let name = text_until_quote(&line[name_at..])?;
    let namespace = memmem::find(&line[name_at..], NAMESPACE_FIELD)
        .and_then(|at| text_until_quote(&line[name_at + at + NAMESPACE_FIELD.len()..]));
    Some(format!("{}/{name}", namespace.unwrap_or_default()))
}

/// Names contain no escapes.
fn text_until_quote(text: &[u8]) -> Option<&str> {
    let end = memchr::memchr(b'"', text)?;
    std::str::from_utf8(&text[..end]).ok()
}

/// The namespaced name of a line's object, by a JSON parser.
pub fn object_name(line: &[u8]) -> Result<String> {
    let value: serde_json::Value = serde_json::from_slice(line)?;
    name_of(&value["object"]).context("an object without a name")
}

/// `namespace/name` of an object.
pub fn name_of(object: &serde_json::Value) -> Option<String> {
    let metadata = &object["metadata"];
    Some(format!(
        "{}/{}",
        metadata["namespace"].as_str().unwrap_or_default(),
        metadata["name"].as_str()?
    ))
}

fn find_write(text: &[u8]) -> Option<WriteTime> {
    let at = memmem::find(text, WRITTEN_AT_FIELD)?;
    WriteTime::parse(&text[at + WRITTEN_AT_FIELD.len()..])
}

/// The decimal number at the start of `text`, if a quote follows it.
fn quoted_number(text: &[u8]) -> Option<u64> {
    match digits(text)? {
        (number, [b'"', ..]) => Some(number),
        _ => None,
    }
}

/// The decimal number at the start of `text`, and the rest.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number: u64 = 0;
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let len = text.iter().take_while(|byte| is_digit(byte)).count();
    let (of_number, rest) = text.split_at(len);
    for byte in of_number {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(byte - b'0'))?;
    }
    (len > 0).then_some((number, rest))
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}

#[cfg(test)]
mod tests;
