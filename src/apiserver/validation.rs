//! Validates names, labels, owner references and finalizers of an object's metadata.

use serde_json::{Map, Value};

use crate::protocol::status::StatusCause;
use crate::resource::names::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};

/// Fields of an owner reference that must not be empty: name, path, and the message if it is empty.
const OWNER_RULES: &[(&str, &str, &str)] = &[
    (
        "apiVersion",
        "metadata.ownerReferences.apiVersion",
        "version must not be empty",
    ),
    ("kind", "metadata.ownerReferences.kind", "must not be empty"),
    ("name", "metadata.ownerReferences.name", "must not be empty"),
    ("uid", "metadata.ownerReferences.uid", "must not be empty"),
];

/// The rule for an object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// Any text that is a valid path segment: roles and bindings.
    Segment,
}

impl NameRule {
    fn is_kept(self, name: &str) -> bool {
        match self {
            Self::Subdomain => is_dns_subdomain(name),
            Self::Label => is_dns_label(name),
            Self::Segment => !matches!(name, "." | "..") && !name.contains(['/', '%']),
        }
    }
}

/// The fault of a name; `None` if it is valid.
pub(super) fn name_fault(rule: NameRule, name: &str) -> Option<StatusCause> {
    let quoted = format!("{name:?}");
    (!rule.is_kept(name))
        .then(|| StatusCause::invalid("metadata.name", &quoted, "is not a valid name"))
}

/// The faults of `metadata.ownerReferences`; empty if all are complete or there are none.
pub(super) fn owner_faults(metadata: &Map<String, Value>) -> Vec<StatusCause> {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let mut faults = Vec::new();
    for owner in owners.into_iter().flatten() {
        for (field, path, rule) in OWNER_RULES {
            let text = owner.get(*field).and_then(Value::as_str);
            if text.unwrap_or_default().is_empty() {
                faults.push(StatusCause::invalid(path, "\"\"", rule));
            }
        }
    }
    faults
}

/// The faults of `metadata.labels`; empty if all are valid or there are none.
pub(super) fn label_faults(metadata: &Map<String, Value>) -> Vec<StatusCause> {
    let Some(Value::Object(labels)) = metadata.get("labels") else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        for (text, is_valid, rule) in [
            (key.as_str(), is_label_key(key), "is not a valid label key"),
            (value, is_label_value(value), "is not a valid label value"),
        ] {
            if !is_valid {
                let text = format!("{text:?}");
                faults.push(StatusCause::invalid("metadata.labels", &text, rule));
            }
        }
    }
    faults
}

/// The faults of names in `metadata.finalizers`.
pub(super) fn finalizer_name_faults(metadata: &Map<String, Value>) -> Vec<StatusCause> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
    names
        .filter(|name| !is_label_key(name))
        .map(|name| {
            let name = format!("{name:?}");
            StatusCause::invalid("metadata.finalizers", &name, "is not a valid name")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_name(rule: NameRule, name: &str, fault_count: usize) {
        let faults = name_fault(rule, name);
        assert_eq!(faults.into_iter().count(), fault_count, "{name}");
    }

    #[test]
    fn names_are_dns_subdomains_and_namespaces_dns_labels() {
        check_name(NameRule::Subdomain, "a.b-c.1", 0);
        check_name(NameRule::Label, "b-c1", 0);
        check_name(NameRule::Label, "a.b", 1);
        for name in ["A_b", "-a", "a-", "a..b", ".", "a/b"] {
            check_name(NameRule::Subdomain, name, 1);
        }
        check_name(NameRule::Subdomain, &"a".repeat(254), 1);
    }

    #[test]
    fn labels_are_judged_by_key_and_value() {
        for (key, value, fault_count) in [
            ("app.kubernetes.io/name", "", 0),
            ("ok", "a_b.c-1", 0),
            ("-bad", "_bad_", 2),
            ("a/b/c", "x", 1),
            ("UP/x", "1", 1),
            ("/x", "1", 1),
            ("", "v", 1),
        ] {
            let metadata = json!({"labels": {key: value}});
            let faults = label_faults(metadata.as_object().unwrap());
            assert_eq!(faults.len(), fault_count, "{key}={value}: {faults:?}");
        }
    }
}
