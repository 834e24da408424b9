//! Strategic merge patch: a merge patch whose lists are merged by key. kube-apiserver takes the keys from Go's struct tags; here they
//! are a table of those that clients use. Other lists are replaced, and directives such as `$patch` are refused.

use serde_json::{Map, Value};

use crate::apiserver::status::Status;

/// Lists that are merged, by field, with their keys.
const MERGE_KEYS: [(&str, &str); 8] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("conditions", "type"),
    ("addresses", "type"),
    ("taints", "key"),
    ("ownerReferences", "uid"),
];
/// How many pairs of items one patch may compare while the store is locked.
const COMPARISONS_MAX: usize = 4 << 20;

/// Merges a patch into an object.
///
/// # Errors
/// 400 for a directive, 422 for too many comparisons.
pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), Status> {
    Merger { comparisons: 0 }.merge(object, patch)
}

struct Merger {
    comparisons: usize,
}

impl Merger {
    fn merge(&mut self, target: &mut Value, patch: &Value) -> Result<(), Status> {
        let Value::Object(patch) = patch else {
            target.clone_from(patch);
            return Ok(());
        };
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        for (key, value) in patch {
            if key.starts_with('$') {
                let message = format!("the directive {key:?} is not supported");
                return Err(Status::bad_request(message));
            }
            let Some(target) = target.as_object_mut() else {
                continue;
            };
            if value.is_null() {
                target.remove(key);
                continue;
            }
            let member = target.entry(key).or_insert(Value::Null);
            let merge_key = MERGE_KEYS.iter().find(|(field, _)| field == key);
            match (member, value, merge_key) {
                (Value::Array(list), Value::Array(items), Some((_, key))) => {
                    self.merge_list(list, items, key)?;
                }
                (member, value, _) => self.merge(member, value)?,
            }
        }
        Ok(())
    }

    /// Merges items into a list; those with the same value of `key` are the same item.
    fn merge_list(
        &mut self,
        list: &mut Vec<Value>,
        items: &[Value],
        key: &str,
    ) -> Result<(), Status> {
        for item in items {
            self.comparisons += list.len();
            if self.comparisons > COMPARISONS_MAX {
                let message = "the patch compares too many list items";
                return Err(Status::invalid(message));
            }
            let known = list
                .iter_mut()
                .find(|known| known.get(key) == item.get(key));
            match known {
                Some(known) => self.merge(known, item)?,
                None => list.push(item.clone()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_with_the_same_key_are_merged_and_other_lists_replaced() {
        let mut node = json!({"status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "Disk", "status": "True"}],
            "images": ["a", "b"], "phase": "Running",
        }});
        let patch = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}],
            "images": ["c"], "phase": null,
        }});
        apply(&mut node, &patch).unwrap();
        let expected = json!({"status": {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "x"},
                {"type": "Disk", "status": "True"},
                {"type": "New", "status": "True"},
            ],
            "images": ["c"],
        }});
        assert_eq!(node, expected);
    }

    #[test]
    fn a_directive_is_refused() {
        let patch = json!({"spec": {"$patch": "replace"}});
        assert_eq!(apply(&mut json!({}), &patch).unwrap_err().code, 400);
    }
}
