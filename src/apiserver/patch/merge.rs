//! JSON merge patch (RFC 7386). No lists are merged, no type is checked.

use serde_json::{Map, Value};

/// Merges `patch` into `target`; a `null` removes, a list replaces.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            apply(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
