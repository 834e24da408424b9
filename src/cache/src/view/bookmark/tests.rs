//! Bookmarks as an API server writes them, from guessed templates and from templates taken from its bookmarks.

use super::*;
use crate::cache::samples::kind;
use crate::decode::{WatchLine, scan_event, scan_line};
use crate::resource::{FieldTable, Layout};

const POD: &str = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"57"},"spec":{"containers":null},"status":{}}}"#;
const POD_MARKER: &str = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"57","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}"#;
const WIDGET: &str = r#"{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"57"}}}"#;
const WIDGET_MARKER: &str = r#"{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"57"}}}"#;

fn learnt(line: &str) -> Option<JsonTemplate> {
    let Ok(WatchLine::Bookmark(bookmark)) = scan_line(line.as_bytes(), FieldTable::default())
    else {
        panic!("no bookmark: {line}");
    };
    let object = scan_event(line.as_bytes()).unwrap().object;
    JsonTemplate::seen(object.of(line.as_bytes()), bookmark.version_span)
}

/// Checks that the template writes these two lines at version 57, and the same with other versions.
#[track_caller]
fn check(template: &JsonTemplate, plain: &str, marker: &str) {
    for version in ["57", "1", "18446744073709551615"] {
        for (kind, expected) in [(Marker::None, plain), (Marker::InitialEventsEnd, marker)] {
            let line = template.frame(version.parse().unwrap(), kind);
            let expected = expected.replace("57", version) + "\n";
            assert_eq!(String::from_utf8_lossy(&line), expected);
        }
    }
}

#[test]
fn a_template_learnt_from_one_form_serves_both() {
    for (plain, marker) in [(POD, POD_MARKER), (WIDGET, WIDGET_MARKER)] {
        check(&learnt(plain).unwrap(), plain, marker);
        check(&learnt(marker).unwrap(), plain, marker);
    }
}

#[test]
fn a_shape_is_of_the_encoding_that_the_kind_has() {
    let mut kind = kind(Layout::Typed);
    let Ok(WatchLine::Bookmark(bookmark)) = scan_line(POD.as_bytes(), FieldTable::default()) else {
        panic!("no bookmark");
    };
    let object = scan_event(POD.as_bytes())
        .unwrap()
        .object
        .of(POD.as_bytes());
    let template = BookmarkTemplate::seen(object, bookmark.version_span, &kind).unwrap();
    assert_eq!(template, BookmarkTemplate::Json(learnt(POD).unwrap()));
    let version = ResourceVersion(57);
    assert_eq!(template.frame(version, Marker::None), format!("{POD}\n"));
    kind.encoding = Encoding::Protobuf;
    let span = bookmark.version_span;
    assert_eq!(BookmarkTemplate::seen(object, span, &kind), None);
}

#[test]
fn a_guess_is_right_where_nothing_but_metadata_is_written() {
    check(
        &JsonTemplate::guessed(&kind(Layout::Dynamic)),
        WIDGET,
        WIDGET_MARKER,
    );
    let config_map = |line: &str| {
        line.replace("Pod", "ConfigMap")
            .replace(",\"spec\":{\"containers\":null},\"status\":{}", "")
    };
    check(
        &JsonTemplate::guessed(&kind(Layout::Typed)),
        &config_map(POD),
        &config_map(POD_MARKER),
    );
}

#[test]
fn bookmarks_with_unexpected_layout_give_no_template() {
    for line in [
        // Metadata with more after the version than the marker.
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"57","creationTimestamp":null}}}"#,
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"57","annotations":{"k8s.io/initial-events-end":"true","other":"x"}}}}"#,
    ] {
        assert_eq!(learnt(line), None, "{line}");
    }
}

#[test]
fn a_learnt_template_writes_complete_bookmarks() {
    for line in [
        r#"{"type":"BOOKMARK","object":{ "kind":"Pod","metadata":{"resourceVersion" : "57"}}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"57"},"kind":"Pod"}}"#,
        r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"k8s.io/initial-events-end":"true","z":"1"},"resourceVersion":"57"}}}"#,
        r#"{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"creationTimestamp":null,"resourceVersion":"57"}}}"#,
    ] {
        let Some(template) = learnt(line) else {
            continue;
        };
        for marker in [Marker::None, Marker::InitialEventsEnd] {
            let written = template.frame(ResourceVersion(60), marker);
            let text = written.strip_suffix(b"\n").unwrap();
            let read = scan_line(text, FieldTable::default());
            let Ok(WatchLine::Bookmark(bookmark)) = read else {
                panic!("{read:?} of {written:?}");
            };
            assert_eq!(bookmark.resource_version, ResourceVersion(60));
            let expected = marker == Marker::InitialEventsEnd;
            assert_eq!(bookmark.initial_events_end, expected, "{written:?}");
        }
    }
}
