//! JSON frames of a watch: the two ways to read a frame agree with each other and with a JSON tree.
#![no_main]

mod tree;

use kube_fanout::decode::{WatchLine, WireKind, scan_event, scan_line, scan_object};
use kube_fanout::resource::{FieldTable, Gvr};
use libfuzzer_sys::fuzz_target;
use tree::plain_tree;

fuzz_target!(|bytes: &[u8]| {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let (envelope, line) = (scan_event(bytes), scan_line(bytes, pods));
    let Ok(envelope) = envelope else {
        // The second way reads everything that the first reads, and more.
        assert!(line.is_err() || is_strange(bytes));
        return;
    };
    let object = envelope.object.of(bytes);
    assert!(object.starts_with(b"{") && object.ends_with(b"}"));
    let tree = plain_tree(bytes);
    if let Some(tree) = &tree {
        let found = serde_json::from_slice::<serde_json::Value>(object).expect("a valid object");
        assert_eq!(found, tree["object"]);
        assert_eq!(tree["type"], word(envelope.kind));
    }
    let (Ok(line), Some(_)) = (line, tree) else {
        return;
    };
    match line {
        WatchLine::Event {
            kind,
            object: span,
            parts,
        } => {
            assert_eq!(Some(kind), envelope.kind.event_kind());
            assert_eq!(span, envelope.object);
            let alone = scan_object(object, pods).expect("the object alone is read too");
            assert_eq!(format!("{parts:?}"), format!("{alone:?}"));
        }
        WatchLine::Bookmark(bookmark) => {
            assert_eq!(envelope.kind, WireKind::Bookmark);
            let digits = std::str::from_utf8(bookmark.version_span.of(object)).expect("digits");
            assert_eq!(digits.parse(), Ok(bookmark.resource_version));
        }
        WatchLine::Error(_) => assert_eq!(envelope.kind, WireKind::Error),
    }
});

/// Whether keys are repeated or escaped, so that the two ways may find a different key first.
fn is_strange(bytes: &[u8]) -> bool {
    plain_tree(bytes).is_none()
}

fn word(kind: WireKind) -> &'static str {
    match kind {
        WireKind::Added => "ADDED",
        WireKind::Modified => "MODIFIED",
        WireKind::Deleted => "DELETED",
        WireKind::Bookmark => "BOOKMARK",
        WireKind::Error => "ERROR",
    }
}
