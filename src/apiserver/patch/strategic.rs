//! Strategic merge patch, for compiled-in kinds: a merge patch whose lists are merged by key. kube-apiserver takes the keys from Go
//! struct tags; here they are a table of the keys that clients use with the served kinds. Other lists are replaced.

use serde_json::{Map, Value};

/// Lists of objects that are merged, by field name, with the key that identifies an item. If a field has two keys (`ports`), the one
/// that the patch's items have is used.
const MERGE_KEYS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ports", &["containerPort", "port"]),
    ("conditions", &["type"]),
    ("addresses", &["type"]),
    ("taints", &["key"]),
    ("hostAliases", &["ip"]),
    ("podIPs", &["ip"]),
    ("ownerReferences", &["uid"]),
    ("topologySpreadConstraints", &["topologyKey"]),
];
/// Lists of plain values that are merged as sets, by field name.
const SETS: &[&str] = &["finalizers"];

const DIRECTIVE: &str = "$patch";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const RETAIN_KEYS: &str = "$retainKeys";

/// Maximum number of pairs of list items or keys that one patch may compare, which takes less than a second. The store is locked
/// meanwhile; kube-apiserver has neither this limit nor the lock.
const COMPARED_MAX: usize = 4 << 20;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The `$patch` directive is none of `delete`, `merge` and `replace`.
    #[error("unknown patch type: {0}")]
    UnknownDirective(String),
    /// Merging the lists would exceed the maximum number of comparisons.
    #[error("the patch compares too many list items")]
    Compared,
}

/// Merges `patch` into `target`. After an error the target may be partly changed.
///
/// # Errors
/// See [`StrategicError`].
pub fn apply(target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    merge(target, patch, &mut ComparisonBudget::default())
}

/// The number of comparisons that a patch has made so far.
#[derive(Default)]
struct ComparisonBudget(usize);

impl ComparisonBudget {
    /// Adds the comparisons of each of `count` items with each of `other_count` items.
    fn add(&mut self, count: usize, other_count: usize) -> Result<(), StrategicError> {
        self.0 = self.0.saturating_add(count.saturating_mul(other_count));
        if self.0 > COMPARED_MAX {
            return Err(StrategicError::Compared);
        }
        Ok(())
    }
}

fn merge(
    target: &mut Value,
    patch: &Value,
    budget: &mut ComparisonBudget,
) -> Result<(), StrategicError> {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return Ok(());
    };
    match directive(patch)? {
        Directive::Delete => {
            target.clear();
            return Ok(());
        }
        Directive::Replace => {
            *target = patch.clone();
            target.remove(DIRECTIVE);
            return Ok(());
        }
        Directive::Merge => {}
    }
    if let Some(Value::Array(kept)) = patch.get(RETAIN_KEYS) {
        budget.add(kept.len(), target.len())?;
        target.retain(|key, _| kept.iter().any(|kept| kept.as_str() == Some(key)));
    }
    for (key, value) in patch {
        merge_member(target, (key, value), budget)?;
    }
    Ok(())
}

/// Merges one member of a patch object into the target object.
fn merge_member(
    target: &mut Map<String, Value>,
    (key, value): (&str, &Value),
    budget: &mut ComparisonBudget,
) -> Result<(), StrategicError> {
    if let Some(list) = key.strip_prefix(DELETE_FROM) {
        if let (Some(Value::Array(items)), Value::Array(removed)) = (target.get_mut(list), value) {
            budget.add(items.len(), removed.len())?;
            items.retain(|item| !removed.contains(item));
        }
        return Ok(());
    }
    if key.starts_with(ELEMENT_ORDER) || key == RETAIN_KEYS || key == DIRECTIVE {
        return Ok(());
    }
    let Value::Array(items) = value else {
        if value.is_null() {
            target.remove(key);
            return Ok(());
        }
        return merge(target.entry(key).or_insert(Value::Null), value, budget);
    };
    let target = target
        .entry(key)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let (Some(merge_key), Value::Array(target)) = (merge_key(key, items), &mut *target) {
        return merge_list(target, (items, merge_key), budget);
    }
    if let (true, Value::Array(target)) = (SETS.contains(&key), &mut *target) {
        budget.add(items.len(), target.len())?;
        let new: Vec<_> = items
            .iter()
            .filter(|item| !target.contains(item))
            .cloned()
            .collect();
        target.extend(new);
    } else {
        target.clone_from(value);
    }
    Ok(())
}

/// Merges items into a list. Items with the same value of `key` are the same item.
fn merge_list(
    target: &mut Vec<Value>,
    (items, key): (&[Value], &str),
    budget: &mut ComparisonBudget,
) -> Result<(), StrategicError> {
    let is_replace_marker = |item: &Value| {
        let directive = item.get(DIRECTIVE);
        directive.is_some_and(|directive| directive == "replace") && item.get(key).is_none()
    };
    if items.iter().any(is_replace_marker) {
        *target = items
            .iter()
            .filter(|item| !is_replace_marker(item))
            .cloned()
            .collect();
        return Ok(());
    }
    for item in items {
        let Value::Object(map) = item else { continue };
        budget.add(1, target.len())?;
        let position = target
            .iter()
            .position(|known| known.get(key) == item.get(key));
        match (directive(map)?, position) {
            (Directive::Delete, Some(position)) => {
                target.remove(position);
            }
            (Directive::Delete, None) => {}
            (Directive::Merge | Directive::Replace, Some(position)) => {
                merge(&mut target[position], item, budget)?;
            }
            (Directive::Merge | Directive::Replace, None) => {
                let mut new = Value::Null;
                merge(&mut new, item, budget)?;
                target.push(new);
            }
        }
    }
    Ok(())
}

/// The value of `$patch`.
enum Directive {
    Merge,
    Delete,
    Replace,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, StrategicError> {
    match patch.get(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(word) => match word.as_str().unwrap_or_default() {
            "merge" => Ok(Directive::Merge),
            "delete" => Ok(Directive::Delete),
            "replace" => Ok(Directive::Replace),
            other => Err(StrategicError::UnknownDirective(other.to_owned())),
        },
    }
}

/// The key that identifies a list's items; `None` if the list is replaced.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == field)?;
    keys.iter()
        .copied()
        .find(|key| items.iter().any(|item| item.get(*key).is_some()))
        .or_else(|| keys.first().copied())
}
