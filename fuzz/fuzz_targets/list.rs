//! List pages never panic, and of valid JSON give the items that a tree shows.
#![no_main]

use kube_fanout::decode::{scan_list, watch_form};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = scan_list(bytes) else {
        return;
    };
    let tree = serde_json::from_slice::<Value>(bytes).ok();
    if let Some(tree) = &tree {
        assert_eq!(
            tree["items"].as_array().map_or(0, Vec::len),
            page.items.len()
        );
    }
    for item in &page.items {
        let item = item.of(bytes);
        let form = watch_form(item, "Pod", "v1", page.layout);
        assert_eq!(form.first(), Some(&b'{'));
        assert!(!form.contains(&b'\n'));
        if tree.is_some() {
            let form = serde_json::from_slice::<Value>(&form).expect("a valid item");
            let item = serde_json::from_slice::<Value>(item).expect("a valid item");
            let (Some(form), Some(item)) = (form.as_object(), item.as_object()) else {
                panic!("items are objects");
            };
            assert!(item.iter().all(|(key, value)| form.get(key) == Some(value)));
        }
    }
});
