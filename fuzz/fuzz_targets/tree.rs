//! What a JSON tree shows, for comparison. A tree keeps one of several equal keys, so documents with such are set apart.

use kube_fanout::decode::{elements, members};
use serde_json::Value;

/// The tree of bytes that are valid JSON, written without a key that stands twice.
pub fn plain_tree(bytes: &[u8]) -> Option<Value> {
    let tree = serde_json::from_slice(bytes).ok()?;
    is_plain(bytes).then_some(tree)
}

/// Looks at every level, and checks on the way that the walk finds what the tree shows.
fn is_plain(bytes: &[u8]) -> bool {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(tree)) => {
            let members = members(bytes).expect("valid JSON is walked");
            members.len() == tree.len()
                && members
                    .iter()
                    .all(|it| tree.contains_key(&*it.key) && is_plain(it.value.of(bytes)))
        }
        Ok(Value::Array(tree)) => {
            let elements = elements(bytes).expect("valid JSON is walked");
            assert_eq!(elements.len(), tree.len());
            elements.iter().all(|span| is_plain(span.of(bytes)))
        }
        Ok(_) => true,
        Err(error) => panic!("a part of valid JSON is valid: {error}"),
    }
}

/// A value as the scanner reads a field: strings by value, numbers and booleans by their text.
#[allow(dead_code, reason = "not every target reads fields")]
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // Of numbers a tree keeps no spelling.
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
