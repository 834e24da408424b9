//! Strategic merge patch, for compiled-in kinds: a merge patch whose lists merge by key. Knows no Go struct tags,
//! only the merge keys that clients meet in the served kinds; other lists are replaced.

use serde_json::{Map, Value};

/// Lists of objects that merge, by field name, and the key that tells their items apart. Where one field name has
/// two keys (`ports`), the one that the patch's items carry is taken.
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
/// Lists of plain values that merge as sets.
const SETS: &[&str] = &["finalizers"];

const DIRECTIVE: &str = "$patch";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const RETAIN_KEYS: &str = "$retainKeys";

/// A directive that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown patch type: {0}")]
pub struct UnknownDirective(pub String);

/// Merges `patch` into `target`.
///
/// # Errors
/// A `$patch` directive other than `delete`, `merge` and `replace`.
pub fn apply(target: &mut Value, patch: &Value) -> Result<(), UnknownDirective> {
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
        target.retain(|key, _| kept.iter().any(|kept| kept.as_str() == Some(key)));
    }
    for (key, value) in patch {
        member(target, key, value)?;
    }
    Ok(())
}

fn member(
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
) -> Result<(), UnknownDirective> {
    if let Some(list) = key.strip_prefix(DELETE_FROM) {
        if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(list), value) {
            items.retain(|item| !gone.contains(item));
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
        return apply(target.entry(key).or_insert(Value::Null), value);
    };
    let target = target
        .entry(key)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let (Some(merge_key), Value::Array(target)) = (merge_key(key, items), &mut *target) {
        return keyed(target, items, merge_key);
    }
    if let (true, Value::Array(target)) = (SETS.contains(&key), &mut *target) {
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

/// Merges items into a list by the value of one key.
fn keyed(target: &mut Vec<Value>, items: &[Value], key: &str) -> Result<(), UnknownDirective> {
    let replaces = |item: &Value| {
        item.get(DIRECTIVE).is_some_and(|word| word == "replace") && item.get(key).is_none()
    };
    if items.iter().any(replaces) {
        *target = items
            .iter()
            .filter(|item| !replaces(item))
            .cloned()
            .collect();
        return Ok(());
    }
    for item in items {
        let Value::Object(map) = item else { continue };
        let at = target
            .iter()
            .position(|known| known.get(key) == item.get(key));
        match (directive(map)?, at) {
            (Directive::Delete, Some(at)) => {
                target.remove(at);
            }
            (Directive::Delete, None) => {}
            (Directive::Merge | Directive::Replace, Some(at)) => apply(&mut target[at], item)?,
            (Directive::Merge | Directive::Replace, None) => {
                let mut new = Value::Null;
                apply(&mut new, item)?;
                target.push(new);
            }
        }
    }
    Ok(())
}

enum Directive {
    Merge,
    Delete,
    Replace,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, UnknownDirective> {
    match patch.get(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(word) => match word.as_str().unwrap_or_default() {
            "merge" => Ok(Directive::Merge),
            "delete" => Ok(Directive::Delete),
            "replace" => Ok(Directive::Replace),
            other => Err(UnknownDirective(other.to_owned())),
        },
    }
}

/// The key that a list's items merge by; none if the list is replaced.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == field)?;
    keys.iter()
        .copied()
        .find(|key| items.iter().any(|item| item.get(*key).is_some()))
        .or_else(|| keys.first().copied())
}
