//! Event lines as a real API server sends them, whole, truncated and reordered.

use super::*;
use crate::resource::{Gvr, ResourceVersion};

const ADDED: &str = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","namespace":"default","resourceVersion":"30","labels":{"app":"demo"}},"spec":{"containers":[{"name":"c \"q\" }"}],"nodeName":"node-1"},"status":{"phase":"Running"}}}"#;
const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"31"},"spec":{"containers":null},"status":{}}}"#;
const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 2 (69)","reason":"Expired","code":410}}"#;

fn pods() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

#[test]
fn an_event_gives_its_kind_and_object() {
    let envelope = scan_event(ADDED.as_bytes()).unwrap();
    assert_eq!(envelope.kind, WireKind::Added);
    let object = envelope.object.of(ADDED.as_bytes());
    assert_eq!(object, &ADDED.as_bytes()[25..ADDED.len() - 1]);
}

#[track_caller]
fn check(text: &str, kind: WireKind, object: &str) {
    let envelope = scan_event(text.as_bytes()).unwrap();
    assert_eq!(envelope.kind, kind, "{text}");
    assert_eq!(
        envelope.object.of(text.as_bytes()),
        object.as_bytes(),
        "{text}"
    );
}

#[test]
fn order_blanks_and_unknown_keys_do_not_matter() {
    check(r#"{"object":{},"type":"DELETED"}"#, WireKind::Deleted, "{}");
    check(
        " { \"type\" : \"MODIFIED\" ,\t\"object\" : { } } \r",
        WireKind::Modified,
        "{ }",
    );
    let strange =
        r#"{"x":[{"type":"ADDED"}],"type":"BOOKMARK","object":{"type":"ERROR"},"y":null}"#;
    check(strange, WireKind::Bookmark, r#"{"type":"ERROR"}"#);
}

#[test]
fn input_that_is_not_an_event_is_refused() {
    for text in [
        "{}",
        "[]",
        r#"{"type":"ADDED"}"#,
        r#"{"object":{}}"#,
        r#"{"type":"ADDED","object":1}"#,
        r#"{"type":"added","object":{}}"#,
        r#"{"type":null,"object":{}}"#,
        r#"{"type":"ADDED","object":{}}}"#,
        r#"{"type":"ADDED","object":{}} {}"#,
        r#"{"type":"ADDED","object":{]}"#,
    ] {
        assert!(scan_event(text.as_bytes()).is_err(), "{text}");
        assert!(scan_line(text.as_bytes(), pods()).is_err(), "{text}");
    }
}

#[test]
fn every_cut_of_a_line_is_an_error() {
    for line in [ADDED, BOOKMARK, EXPIRED] {
        for len in 0..line.len() {
            assert!(
                scan_event(&line.as_bytes()[..len]).is_err(),
                "{len} of {line}"
            );
            assert!(
                scan_line(&line.as_bytes()[..len], pods()).is_err(),
                "{len} of {line}"
            );
        }
    }
}

#[test]
fn one_pass_finds_what_two_passes_find() {
    let late = format!("{{{},\"type\":\"ADDED\"}}", &ADDED[16..ADDED.len() - 1]);
    for line in [ADDED, &*late] {
        let line = line.as_bytes();
        let envelope = scan_event(line).unwrap();
        let expected = scan_object(envelope.object.of(line), pods()).unwrap();
        let WatchLine::Event {
            kind,
            object,
            parts,
        } = scan_line(line, pods()).unwrap()
        else {
            panic!("no event");
        };
        assert_eq!((kind, object), (EventKind::Added, envelope.object));
        assert_eq!(format!("{parts:?}"), format!("{expected:?}"));
        assert_eq!(parts.version_span.of(object.of(line)), b"30");
        assert_eq!(parts.type_prefix_len, 31);
    }
}

#[test]
fn bookmarks_and_errors_are_recognized() {
    match scan_line(BOOKMARK.as_bytes(), pods()).unwrap() {
        WatchLine::Bookmark(bookmark) => assert_eq!(
            (bookmark.resource_version, bookmark.initial_events_end),
            (ResourceVersion(31), false)
        ),
        other @ (WatchLine::Event { .. } | WatchLine::Error(_)) => panic!("{other:?}"),
    }
    match scan_line(EXPIRED.as_bytes(), pods()).unwrap() {
        WatchLine::Error(status) => {
            assert_eq!((status.code, &*status.reason), (410, "Expired"));
            assert!(status.is_expired());
        }
        other @ (WatchLine::Event { .. } | WatchLine::Bookmark(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_status_has_its_retry_delay_and_a_flag_for_too_large_versions() {
    let status = scan_status(br#"{"kind":"Status","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 999999, current: 26","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}],"retryAfterSeconds":1},"code":504}"#);
    assert_eq!((status.code, status.retry_after_seconds), (504, Some(1)));
    assert!(status.version_too_large);
    let plain = scan_status(b"404 page not found\n").over_http(404, None);
    assert_eq!((plain.code, &*plain.message), (404, "404 page not found\n"));
    let empty = scan_status(br#"{"code":429,"details":{},"reason":null}"#).over_http(429, Some(7));
    assert_eq!((empty.code, empty.retry_after_seconds), (429, Some(7)));
}
