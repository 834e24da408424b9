//! Watch events whose objects are Tables (docs/PROTOCOL.md §5.4). Rows are not read.

use crate::resource::{ByteSpan, ResourceVersion};

use super::envelope::{WireKind, scan_event};
use super::json::ScanError;
use super::scanner::scan_bookmark;
use super::walk::member;

/// One line of a watch of Tables.
#[derive(Clone, Debug)]
pub enum TableLine {
    /// An event with rows, or a bookmark.
    Event(TableEvent),
    /// An ERROR event, which ends the stream; its object is not a Table.
    Error,
}

/// The parts of an event that the gateway reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEvent {
    /// Whether the event is a bookmark.
    pub is_bookmark: bool,
    /// The version of the event.
    pub resource_version: ResourceVersion,
    /// Position of the value of `columnDefinitions` in the line: an array in a stream's first event, usually `null` later.
    pub columns: ByteSpan,
}

/// Reads one line, without its newline.
///
/// # Errors
/// The line is not a watch event, or its object is not a Table with a version and column definitions.
pub fn scan_table(line: &[u8]) -> Result<TableLine, ScanError> {
    let envelope = scan_event(line)?;
    if envelope.kind == WireKind::Error {
        return Ok(TableLine::Error);
    }
    let object = envelope.object.of(line);
    // Reads only the version of the metadata, as for a bookmark; a Table has no name.
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
    fn error_events_are_recognized() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(scan_table(line.as_bytes()), Ok(TableLine::Error)));
    }

    #[test]
    fn input_that_is_not_a_table_is_refused() {
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
