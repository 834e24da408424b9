//! The scanner never panics, and finds in valid JSON what a tree shows.
#![no_main]

use kube_fanout::decode::{scan_bookmark, scan_event, scan_line, scan_object, scan_status};
use kube_fanout::resource::{FieldTable, Gvr};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let _ = scan_status(bytes);
    let _ = scan_bookmark(bytes);
    if let Ok(envelope) = scan_event(bytes) {
        assert_eq!(envelope.object.of(bytes).first(), Some(&b'{'));
    }
    let _ = scan_line(bytes, pods);
    let Ok(parts) = scan_object(bytes, pods) else {
        return;
    };
    let digits = std::str::from_utf8(parts.version_span.of(bytes)).expect("digits");
    assert_eq!(digits.parse(), Ok(parts.resource_version));
    assert!((parts.type_prefix_len as usize) < bytes.len());
    // Invalid JSON within brackets may pass the scanner; of valid JSON it must read the same.
    if let Ok(tree) = serde_json::from_slice::<Value>(bytes) {
        let text = |path: &str| {
            tree.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        assert_eq!(parts.name, text("/metadata/name"));
        assert_eq!(parts.uid, text("/metadata/uid"));
        assert_eq!(parts.namespace, text("/metadata/namespace"));
        for (key, value) in &parts.labels {
            let known = tree["metadata"]["labels"].get(key);
            // Of labels that stand twice a tree keeps one.
            let is_twice = parts
                .labels
                .iter()
                .filter(|(other, _)| other == key)
                .count()
                > 1;
            assert!(is_twice || known.and_then(Value::as_str).unwrap_or_default() == value);
        }
    }
});
