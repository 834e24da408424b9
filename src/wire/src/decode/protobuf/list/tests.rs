//! Lists as a real server writes them.

use super::super::tests::{captured, frames, pods};
use super::*;
use crate::decode::{WatchLine, scan_frame, scan_protobuf_object};

#[test]
fn a_list_yields_the_same_objects_as_a_watch() {
    let body = captured("pods.list");
    let page = scan_protobuf_list(&body).unwrap();
    assert_eq!((&*page.kind, &*page.api_version), ("PodList", "v1"));
    assert_eq!(page.layout, Layout::Typed);
    assert_eq!(
        (&*page.continue_token, page.remaining_item_count),
        ("", None)
    );
    assert_eq!(page.items.len(), 2);
    let watched = frames(&captured("pods.frames"));
    for (item, frame) in page.items.iter().zip(&watched) {
        let WatchLine::Event { object, .. } = scan_frame(frame, pods()).unwrap() else {
            panic!("no event");
        };
        assert_eq!(item.of(&body), object.of(frame));
        let parts = scan_protobuf_object(item.of(&body), pods()).unwrap();
        assert!(parts.resource_version <= page.resource_version);
    }
}

#[test]
fn a_page_has_its_continue_token_and_remaining_count() {
    let body = captured("pods.page");
    let page = scan_protobuf_list(&body).unwrap();
    assert_eq!((page.items.len(), page.remaining_item_count), (1, Some(1)));
    assert!(
        page.continue_token
            .starts_with("eyJ2IjoibWV0YS5rOHMuaW8vdjEi")
    );
}

#[test]
fn a_list_may_be_empty() {
    let page = scan_protobuf_list(&captured("configmaps.empty.list")).unwrap();
    assert_eq!((&*page.kind, page.items.len()), ("ConfigMapList", 0));
    assert!(page.resource_version.0 > 0);
}

#[test]
fn truncated_lists_are_refused() {
    let body = captured("pods.page");
    // The two empty fields at the end may be missing, but not in part.
    for len in (0..body.len() - 4).chain([body.len() - 3, body.len() - 1]) {
        assert!(scan_protobuf_list(&body[..len]).is_err(), "{len}");
    }
}
