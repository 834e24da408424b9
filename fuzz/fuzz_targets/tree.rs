//! Values of a JSON tree, for comparison. A tree keeps only one of several equal keys, so documents with repeated keys are excluded.

use kube_fanout::decode::{elements, members};
use serde_json::Value;

/// The tree of bytes that are valid JSON without repeated keys.
pub fn plain_tree(bytes: &[u8]) -> Option<Value> {
    let tree = serde_json::from_slice(bytes).ok()?;
    is_plain(bytes).then_some(tree)
}

/// Checks every level for repeated keys, and asserts that the walk finds what the tree has.
fn is_plain(bytes: &[u8]) -> bool {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(tree)) => {
            let members = members(bytes).expect("valid JSON can be walked");
            members.len() == tree.len()
                && members
                    .iter()
                    .all(|it| tree.contains_key(&*it.key) && is_plain(it.value.of(bytes)))
        }
        Ok(Value::Array(tree)) => {
            let elements = elements(bytes).expect("valid JSON can be walked");
            assert_eq!(elements.len(), tree.len());
            elements.iter().all(|span| is_plain(span.of(bytes)))
        }
        Ok(_) => true,
        Err(error) => panic!("a part of valid JSON is valid: {error}"),
    }
}

/// A value as the scanner reads a field: strings by value, booleans as text.
#[allow(dead_code, reason = "not every target reads fields")]
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // A tree does not keep the spelling of a number.
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
