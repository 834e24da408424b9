//! Objects reduced to their metadata: valid input gives valid output, and the output contains nothing that the object does not.
#![no_main]

mod tree;

use kube_fanout::resource::Layout;
use kube_fanout::view::{MetaVersion, Partial};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tree::plain_tree;

fuzz_target!(|bytes: &[u8]| {
    let tree = plain_tree(bytes);
    for layout in [Layout::Typed, Layout::Dynamic] {
        let partial = Partial {
            version: MetaVersion::V1,
            layout,
        };
        let _ = partial.event_line(bytes);
        let (Ok(cut), Some(tree)) = (partial.object(bytes), &tree) else {
            continue;
        };
        let found = serde_json::from_slice::<Value>(&cut).expect("the cut of valid JSON is valid");
        assert_eq!(found["kind"], "PartialObjectMetadata");
        assert_eq!(found["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(found.as_object().map(serde_json::Map::len), Some(3));
        let metadata = tree.get("metadata").cloned().unwrap_or_else(|| json!({}));
        match layout {
            Layout::Typed => assert_eq!(found["metadata"], metadata),
            Layout::Dynamic => is_part(&found["metadata"], &metadata),
        }
        assert_eq!(
            partial.object(&cut).as_ref(),
            Ok(&cut),
            "cut again it is the same"
        );
        let line = [br#"{"type":"ADDED","object":"#, bytes, b"}\n"].concat();
        let line = partial.event_line(&line).expect("the object in a line");
        assert_eq!(line.last(), Some(&b'\n'));
        let event = serde_json::from_slice::<Value>(&line).expect("a valid line");
        assert_eq!(event, json!({"type": "ADDED", "object": found}));
    }
});

/// Asserts that every value is in `whole` too, at the same path.
#[track_caller]
fn is_part(part: &Value, whole: &Value) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (key, value) in part {
                is_part(value, &whole[key]);
            }
        }
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len());
            part.iter()
                .zip(whole)
                .for_each(|(part, whole)| is_part(part, whole));
        }
        _ => assert_eq!(part, whole),
    }
}
