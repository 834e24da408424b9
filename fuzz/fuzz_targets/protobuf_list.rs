//! List bodies in protobuf: items are consecutive within the body, and are those that a simple reader finds.
#![no_main]

mod message;

use kube_fanout::decode::{scan_protobuf_list, scan_protobuf_status};
use libfuzzer_sys::fuzz_target;
use message::{all, text};

const MAGIC: &[u8] = b"k8s\0";

fuzz_target!(|bytes: &[u8]| {
    let _ = scan_protobuf_status(bytes);
    let Ok(page) = scan_protobuf_list(bytes) else {
        return;
    };
    let unknown = bytes
        .strip_prefix(MAGIC)
        .expect("a body begins with the magic");
    let raw = all(unknown, 2).expect("a message").pop().expect("a list");
    let items: Vec<_> = page.items.iter().map(|span| span.of(bytes)).collect();
    assert_eq!(items, all(raw, 2).expect("items"));
    for pair in page.items.windows(2) {
        assert!(pair[0].end <= pair[1].start);
    }
    let types = all(unknown, 1)
        .expect("a message")
        .pop()
        .unwrap_or_default();
    let last = |message, number| {
        text(message, number)
            .expect("text")
            .pop()
            .unwrap_or_default()
    };
    assert_eq!(
        (&*page.api_version, &*page.kind),
        (last(types, 1), last(types, 2))
    );
    let metadata = all(raw, 1).expect("metadata");
    let found = metadata
        .into_iter()
        .flat_map(|message| text(message, 2).expect("text"))
        .last();
    assert_eq!(
        found.and_then(|digits| digits.parse().ok()),
        Some(page.resource_version)
    );
});
