//! The searched reading equals the parsed one.

use super::*;

const MODIFIED: &str = r#"{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm-1","namespace":"default","uid":"4f","resourceVersion":"4711","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"kube-fanout.dev/written-at":"1700000000000000001"},"managedFields":[{"fieldsV1":{"f:metadata":{"f:annotations":{"f:kube-fanout.dev/written-at":{}}}}}]},"data":{"text":"a \"resourceVersion\":\"9\" that is mere text"}}}"#;

#[track_caller]
fn check(line: &str, kind: EventKind, version: u64, write: Option<(u64, u64)>) {
    let write = write.map(|(sent_ns, late_ns)| WriteTime { sent_ns, late_ns });
    let event = Event {
        kind,
        version,
        write,
    };
    assert_eq!(Event::parse(line.as_bytes()).unwrap(), event);
    assert_eq!(Event::parse_fully(line.as_bytes()).unwrap(), event);
}

#[test]
fn searching_finds_what_parsing_finds() {
    check(
        MODIFIED,
        EventKind::Modified,
        4711,
        Some((1_700_000_000_000_000_001, 0)),
    );
    check(
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"x","resourceVersion":"5"}}}"#,
        EventKind::Added,
        5,
        None,
    );
    check(
        r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"18"}}}"#,
        EventKind::Deleted,
        18,
        None,
    );
    check(
        r#"{"type":"ADDED","object":{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"annotations":{"kube-fanout.dev/written-at":"7+12"},"name":"x","resourceVersion":"6"}}}"#,
        EventKind::Added,
        6,
        Some((7, 12)),
    );
    check(
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"14"}}}"#,
        EventKind::Bookmark,
        14,
        None,
    );
    check(
        r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"reason":"Expired","code":410}}"#,
        EventKind::Error,
        410,
        None,
    );
}

#[test]
fn anything_that_is_no_whole_event_is_an_error() {
    for cut in 0..MODIFIED.len() {
        assert!(
            Event::parse(&MODIFIED.as_bytes()[..cut]).is_err() || MODIFIED[..cut].ends_with("}}"),
            "cut at {cut}"
        );
    }
    for line in [
        "",
        "{}",
        r#"{"type":"NEW","object":{"metadata":{"resourceVersion":"1"}}}"#,
        r#"{"type":"ADDED","object":{"metadata":{}}}"#,
    ] {
        assert!(Event::parse(line.as_bytes()).is_err(), "{line}");
    }
    assert!(
        Event::parse(br#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"x"}}}"#).is_err()
    );
    assert!(
        Event::parse(
            br#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"99999999999999999999"}}}"#
        )
        .is_err()
    );
}

#[test]
fn the_time_of_a_write_is_read_as_it_is_written() {
    let write = WriteTime {
        sent_ns: 1_700_000_000_000_000_001,
        late_ns: 250,
    };
    assert_eq!(WriteTime::parse(write.to_string().as_bytes()), Some(write));
    assert_eq!(write.due_ns(), 1_699_999_999_999_999_751);
    for text in ["", "x", "12x", "12+", "12+x", "12+3x", "+3"] {
        assert_eq!(WriteTime::parse(text.as_bytes()), None, "{text}");
    }
}
