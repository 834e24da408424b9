//! JSON merge patch (RFC 7386): objects are merged, lists are replaced, types are not checked.

use serde_json::{Map, Value};

/// Merges `patch` into `target`. A `null` removes a member; a list replaces the old one.
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
