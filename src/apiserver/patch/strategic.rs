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

/// Pairs of list items or keys that one patch may compare: less than a second's work. The API server has no such bound, and no
/// lock there.
const COMPARED_MAX: usize = 4 << 20;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// A `$patch` directive other than `delete`, `merge` and `replace`.
    #[error("unknown patch type: {0}")]
    UnknownDirective(String),
    /// Its lists and those of the object are so long that too many items have to be compared.
    #[error("the patch compares too many list items")]
    Compared,
}

/// Merges `patch` into `target`; on failure it may be left half changed.
///
/// # Errors
/// See [`StrategicError`].
pub fn apply(target: &mut Value, patch: &Value) -> Result<(), StrategicError> {
    merge(target, patch, &mut ComparisonBudget::default())
}

/// What was compared so far.
#[derive(Default)]
struct ComparisonBudget(usize);

impl ComparisonBudget {
    /// Each of so many is compared with each of so many others.
    fn add(&mut self, count: usize, with: usize) -> Result<(), StrategicError> {
        self.0 = self.0.saturating_add(count.saturating_mul(with));
        if self.0 > COMPARED_MAX {
            return Err(StrategicError::Compared);
        }
        Ok(())
    }
}

fn merge(
    target: &mut Value,
    patch: &Value,
    compared: &mut ComparisonBudget,
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
        compared.add(kept.len(), target.len())?;
        target.retain(|key, _| kept.iter().any(|kept| kept.as_str() == Some(key)));
    }
    for (key, value) in patch {
        member(target, (key, value), compared)?;
    }
    Ok(())
}

fn member(
    target: &mut Map<String, Value>,
    (key, value): (&str, &Value),
    compared: &mut ComparisonBudget,
) -> Result<(), StrategicError> {
    if let Some(list) = key.strip_prefix(DELETE_FROM) {
        if let (Some(Value::Array(items)), Value::Array(gone)) = (target.get_mut(list), value) {
            compared.add(items.len(), gone.len())?;
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
        return merge(target.entry(key).or_insert(Value::Null), value, compared);
    };
    let target = target
        .entry(key)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let (Some(merge_key), Value::Array(target)) = (merge_key(key, items), &mut *target) {
        return keyed(target, (items, merge_key), compared);
    }
    if let (true, Value::Array(target)) = (SETS.contains(&key), &mut *target) {
        compared.add(items.len(), target.len())?;
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
fn keyed(
    target: &mut Vec<Value>,
    (items, key): (&[Value], &str),
    compared: &mut ComparisonBudget,
) -> Result<(), StrategicError> {
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
        compared.add(1, target.len())?;
        let at = target
            .iter()
            .position(|known| known.get(key) == item.get(key));
        match (directive(map)?, at) {
            (Directive::Delete, Some(at)) => {
                target.remove(at);
            }
            (Directive::Delete, None) => {}
            (Directive::Merge | Directive::Replace, Some(at)) => {
                merge(&mut target[at], item, compared)?;
            }
            (Directive::Merge | Directive::Replace, None) => {
                let mut new = Value::Null;
                merge(&mut new, item, compared)?;
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

/// The key that a list's items merge by; none if the list is replaced.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == field)?;
    keys.iter()
        .copied()
        .find(|key| items.iter().any(|item| item.get(*key).is_some()))
        .or_else(|| keys.first().copied())
}
