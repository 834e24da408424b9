//! List envelopes as a real API server sends them.

use super::*;

pub(in crate::decode) const PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"26","continue":"eyJ2Ijoi","remainingItemCount":3},"items":[{"metadata":{"name":"p1","namespace":"default","resourceVersion":"10"},"spec":{"nodeName":"]}"}},{"metadata":{"name":"p2","resourceVersion":"11"}}]}"#;
pub(in crate::decode) const WIDGETS: &str = r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1","resourceVersion":"5"}}],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"19"}}"#;

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
fn input_that_is_not_a_list_is_refused() {
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
