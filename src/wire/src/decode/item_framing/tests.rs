//! Items of lists as a real API server sends them.

use super::*;
use crate::decode::list::scan_list;
use crate::decode::list::tests::{PODS, WIDGETS};
use crate::resource::{EventKind, Gvr, ResourceVersion};

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
