//! Events of a watch whose objects are Tables (docs/PROTOCOL.md §5.4). Reads no rows.

use crate::resource::{ByteSpan, ResourceVersion};

use super::envelope::{WireKind, scan_event};
use super::json::ScanError;
use super::scanner::scan_bookmark;
use super::walk::member;

/// One line of a watch of Tables.
#[derive(Clone, Debug)]
pub enum TableLine {
    /// A row, or a version alone.
    Event(TableEvent),
    /// The stream ends with this; it is no Table.
    Error,
}

/// What is read of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEvent {
    /// Whether it tells of nothing but its version.
    pub is_bookmark: bool,
    /// The version of the event.
    pub resource_version: ResourceVersion,
    /// Where the value of `columnDefinitions` stands in the line: an array in a stream's first event, mostly `null` later.
    pub columns: ByteSpan,
}

/// Reads one line, its newline left out.
///
/// # Errors
/// The line is no watch event, or its object is no Table with a version and column definitions.
pub fn scan_table(line: &[u8]) -> Result<TableLine, ScanError> {
    let envelope = scan_event(line)?;
    if envelope.kind == WireKind::Error {
        return Ok(TableLine::Error);
    }
    let object = envelope.object.of(line);
    let version = scan_bookmark(object)?.resource_version;
    let columns = member(object, "columnDefinitions")?
        .map(|span| ByteSpan {
            start: envelope.object.start + span.start,
            end: envelope.object.start + span.end,
        })
        .ok_or(ScanError::Missing {
            what: "columnDefinitions",
            offset: envelope.object.start as usize,
        })?;
    Ok(TableLine::Event(TableEvent {
        is_bookmark: envelope.kind == WireKind::Bookmark,
        resource_version: version,
        columns,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, is_bookmark: bool, version: u64, columns: &str) {
        let Ok(TableLine::Event(event)) = scan_table(line.as_bytes()) else {
            panic!("no event: {line}");
        };
        assert_eq!(event.is_bookmark, is_bookmark);
        assert_eq!(event.resource_version, ResourceVersion(version));
        assert_eq!(event.columns.of(line.as_bytes()), columns.as_bytes());
    }

    #[test]
    fn version_and_columns_are_found() {
        check(
            r#"{"type":"ADDED","object":{"kind":"Table","metadata":{"resourceVersion":"6"},"columnDefinitions":[{"name":"A","x":"}]"}],"rows":[{"cells":["columnDefinitions"]}]}}"#,
            false,
            6,
            r#"[{"name":"A","x":"}]"}]"#,
        );
        check(
            r#"{"object":{"columnDefinitions":null,"metadata":{"resourceVersion":"7"}},"type":"BOOKMARK"}"#,
            true,
            7,
            "null",
        );
    }

    #[test]
    fn errors_are_told_as_what_they_are() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(scan_table(line.as_bytes()), Ok(TableLine::Error)));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for line in [
            r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#,
            r#"{"type":"ADDED","object":{"metadata":{},"columnDefinitions":null}}"#,
            r#"{"type":"ADDED","object":[]}"#,
            "{",
        ] {
            assert!(scan_table(line.as_bytes()).is_err(), "{line}");
        }
    }
}
