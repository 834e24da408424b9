//! Validates names, labels, owner references and finalizers of an object's metadata, with kube-apiserver's messages.

use serde_json::{Map, Value};

use crate::protocol::status::StatusCause;
use crate::resource::names::{
    dns_label_faults, dns_subdomain_faults, label_key_faults, label_value_faults,
};

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

/// The faults of a name; empty if it is valid.
pub(super) fn name_faults(rule: NameRule, name: &str) -> Vec<StatusCause> {
    let violated = match rule {
        NameRule::Subdomain => dns_subdomain_faults(name),
        NameRule::Label => dns_label_faults(name),
        NameRule::Segment => segment_faults(name),
    };
    let name = format!("{name:?}");
    let causes = violated.iter();
    let causes = causes.map(|rule| StatusCause::invalid("metadata.name", &name, rule));
    causes.collect()
}

/// The violated rules of a name that is used as a path segment without escaping.
fn segment_faults(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => {
            let contained = ['/', '%'].into_iter().filter(|sign| name.contains(*sign));
            contained
                .map(|sign| format!("may not contain '{sign}'"))
                .collect()
        }
    }
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
        for (text, violated) in [
            (key.as_str(), label_key_faults(key)),
            (value, label_value_faults(value)),
        ] {
            let text = format!("{text:?}");
            let causes = violated.iter();
            faults.extend(causes.map(|rule| StatusCause::invalid("metadata.labels", &text, rule)));
        }
    }
    faults
}

/// The faults of names in `metadata.finalizers`.
pub(super) fn finalizer_name_faults(metadata: &Map<String, Value>) -> Vec<StatusCause> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
    let faults = names.flat_map(|name| {
        label_key_faults(name)
            .into_iter()
            .map(move |rule| (name, rule))
    });
    faults
        .map(|(name, rule)| {
            StatusCause::invalid("metadata.finalizers", &format!("{name:?}"), &rule)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_name(rule: NameRule, name: &str, fault_count: usize) {
        assert_eq!(name_faults(rule, name).len(), fault_count, "{name}");
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

    #[track_caller]
    fn check_label(key: &str, value: &str, expected: &[&str]) {
        let metadata = json!({"labels": {key: value}});
        let faults = label_faults(metadata.as_object().unwrap());
        let starts: Vec<_> = faults
            .iter()
            .zip(expected)
            .map(|(fault, expected)| fault.message.starts_with(expected))
            .collect();
        assert_eq!(
            (faults.len(), starts),
            (expected.len(), vec![true; expected.len()]),
            "{key}={value}: {faults:?}"
        );
    }

    #[test]
    fn labels_are_judged_by_key_and_value() {
        check_label("app.kubernetes.io/name", "", &[]);
        check_label("ok", "a_b.c-1", &[]);
        check_label(
            "-bad",
            "_bad_",
            &[
                "Invalid value: \"-bad\": name part must consist",
                "Invalid value: \"_bad_\": a valid label",
            ],
        );
        check_label(
            "a/b/c",
            "x",
            &["Invalid value: \"a/b/c\": a valid label key"],
        );
        check_label(
            "UP/x",
            "1",
            &["Invalid value: \"UP/x\": prefix part a lowercase"],
        );
        check_label(
            "/x",
            "1",
            &["Invalid value: \"/x\": prefix part must be non-empty"],
        );
        check_label(
            "",
            "v",
            &[
                "Invalid value: \"\": name part must be non-empty",
                "Invalid value: \"\": name part must consist",
            ],
        );
    }
}
