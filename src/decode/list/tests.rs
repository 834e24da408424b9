//! List envelopes as a real API server sends them.

use super::*;
use crate::decode::scan_object;
use crate::resource::{EventKind, FieldTable, Gvr};

const PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"26","continue":"eyJ2Ijoi","remainingItemCount":3},"items":[{"metadata":{"name":"p1","namespace":"default","resourceVersion":"10"},"spec":{"nodeName":"]}"}},{"metadata":{"name":"p2","resourceVersion":"11"}}]}"#;
const WIDGETS: &str = r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1","resourceVersion":"5"}}],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"19"}}"#;

#[test]
fn a_typed_page_gives_its_parts() {
    let page = scan_list(format!("{PODS}\n").as_bytes()).unwrap();
    assert_eq!(
        (&*page.kind, &*page.api_version, page.layout),
        ("PodList", "v1", Layout::Typed)
    );
    assert_eq!(page.resource_version, ResourceVersion(26));
    assert_eq!(
        (&*page.continue_token, page.remaining_item_count),
        ("eyJ2Ijoi", Some(3))
    );
    let items: Vec<_> = page
        .items
        .iter()
        .map(|item| item.of(PODS.as_bytes()))
        .collect();
    assert_eq!(
        items[1],
        br#"{"metadata":{"name":"p2","resourceVersion":"11"}}"#
    );
    assert_eq!(items.len(), 2);
}

#[test]
fn a_dynamic_page_gives_its_parts() {
    let page = scan_list(WIDGETS.as_bytes()).unwrap();
    assert_eq!((&*page.kind, page.layout), ("WidgetList", Layout::Dynamic));
    assert_eq!(
        (&*page.continue_token, page.remaining_item_count),
        ("", None)
    );
    assert_eq!(
        (page.resource_version, page.items.len()),
        (ResourceVersion(19), 1)
    );
}

#[test]
fn a_page_may_be_empty_or_null() {
    for items in ["[]", "null", "[ ]"] {
        let text = format!(
            r#"{{"kind":"L","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":{items}}}"#
        );
        assert_eq!(scan_list(text.as_bytes()).unwrap().items, []);
    }
}

#[test]
fn every_cut_of_a_page_is_an_error() {
    for text in [PODS, WIDGETS] {
        for len in 0..text.len() {
            assert!(scan_list(&text.as_bytes()[..len]).is_err(), "{len}");
        }
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for text in [
        "[]",
        "{}",
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"resourceVersion":""}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":{}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":[1]}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":[{},]}"#,
        r#"{"metadata":{"resourceVersion":"1"},"items":[{}{}]}"#,
    ] {
        assert!(scan_list(text.as_bytes()).is_err(), "{text}");
    }
}

#[track_caller]
fn check_form(item: &str, layout: Layout, expected: &str) {
    let form = watch_form(item.as_bytes(), "Pod", "v1", layout);
    assert_eq!(String::from_utf8(form).unwrap(), expected);
}

#[test]
fn an_item_takes_the_form_that_a_watch_gives_it() {
    check_form(
        r#"{"metadata":{}}"#,
        Layout::Typed,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#,
    );
    check_form(
        "{\n  \"metadata\": {}\n}",
        Layout::Typed,
        r#"{"kind":"Pod","apiVersion":"v1",  "metadata": {}}"#,
    );
    for whole in [
        r#"{"kind":"Pod","metadata":{}}"#,
        r#"{"apiVersion":"v1"}"#,
        "{}",
    ] {
        check_form(whole, Layout::Typed, whole);
    }
    check_form(r#"{"metadata":{}}"#, Layout::Dynamic, r#"{"metadata":{}}"#);
}

#[test]
fn a_watch_form_has_the_type_prefix_that_lists_leave_out() {
    let page = scan_list(PODS.as_bytes()).unwrap();
    let item = page.items[0].of(PODS.as_bytes());
    let form = watch_form(item, "Pod", "v1", page.layout);
    let parts = scan_object(&form, FieldTable::of(&Gvr::new("", "v1", "pods"))).unwrap();
    assert_eq!(&form[1 + parts.type_prefix_len as usize..], &item[1..]);
    assert_eq!(parts.fields[0], "]}");
    assert_eq!(form.capacity(), form.len());
}

#[test]
fn an_item_becomes_the_object_that_its_watch_form_shows() {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let spaced = PODS.replace("{\"metadata\"", "{\n \"metadata\"");
    for text in [PODS, WIDGETS, &spaced] {
        let page = scan_list(text.as_bytes()).unwrap();
        let form = ItemFraming::new(&page, Encoding::Json);
        let kind = page.kind.strip_suffix("List").unwrap();
        for item in page.items.iter().map(|item| item.of(text.as_bytes())) {
            let shown = watch_form(item, kind, &page.api_version, page.layout);
            let expected = Object::new(scan_object(&shown, pods).unwrap(), &shown);
            let object = form.object(item, pods).unwrap();
            assert_eq!(
                object.frame(EventKind::Added),
                expected.frame(EventKind::Added)
            );
            assert_eq!(object.bytes(), shown);
            assert_eq!(
                (object.key(), object.uid()),
                (expected.key(), expected.uid())
            );
            assert!(object.labels().eq(expected.labels()));
            for index in 0..pods.fields().len() {
                assert_eq!(object.field(index), expected.field(index));
            }
            let version = ResourceVersion(7);
            assert_eq!(
                object.deleted_frame(version),
                expected.deleted_frame(version)
            );
            assert_eq!(
                object.list_item(page.layout),
                expected.list_item(page.layout)
            );
        }
        assert!(form.object(b"{}", pods).is_err());
    }
}
