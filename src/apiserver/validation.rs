//! Validates names, labels, owner references and finalizers of an object's metadata, with kube-apiserver's messages.

use crate::protocol::status::StatusCause;
use serde_json::{Map, Value};

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Maximum length of a DNS subdomain (RFC 1123), and so of an object name.
pub(super) const NAME_LEN_MAX: usize = 253;
/// Maximum length of a DNS label, and so of a namespace, a label value and the name part of a label key.
const LABEL_LEN_MAX: usize = 63;

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
    let mut faults = Vec::new();
    let mut fault = |text: &str| {
        faults.push(StatusCause::invalid(
            "metadata.name",
            &format!("{name:?}"),
            text,
        ))
    };
    if rule == NameRule::Segment {
        segment_rules(name).into_iter().for_each(&mut fault);
        return faults;
    }
    let (legal, rule_text, len_max) = match rule {
        NameRule::Subdomain => (
            name.split('.').all(is_dns_label),
            SUBDOMAIN_RULE,
            NAME_LEN_MAX,
        ),
        NameRule::Label | NameRule::Segment => (is_dns_label(name), LABEL_RULE, LABEL_LEN_MAX),
    };
    if name.len() > len_max {
        fault(&format!("must be no more than {len_max} bytes"));
    }
    if !legal {
        fault(rule_text);
    }
    faults
}

/// The violated rules of a name that is used as a path segment without escaping.
fn segment_rules(name: &str) -> Vec<&'static str> {
    match name {
        "." => vec!["may not be '.'"],
        ".." => vec!["may not be '..'"],
        _ => {
            let rules = [('/', "may not contain '/'"), ('%', "may not contain '%'")];
            let violated = rules.into_iter().filter(|(sign, _)| name.contains(*sign));
            violated.map(|(_, rule)| rule).collect()
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
        let mut fault = |text: &str, rule: String| {
            faults.push(StatusCause::invalid(
                "metadata.labels",
                &format!("{text:?}"),
                &rule,
            ));
        };
        key_rules(key).into_iter().for_each(|rule| fault(key, rule));
        let value = value.as_str().unwrap_or_default();
        if value.len() > LABEL_LEN_MAX {
            fault(value, format!("must be no more than {LABEL_LEN_MAX} bytes"));
        }
        if !value.is_empty() && !is_name_part(value) {
            fault(value, LABEL_VALUE_RULE.to_owned());
        }
    }
    faults
}

/// The faults of names in `metadata.finalizers`.
pub(super) fn finalizer_name_faults(metadata: &Map<String, Value>) -> Vec<StatusCause> {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
    let faults = names.flat_map(|name| key_rules(name).into_iter().map(move |rule| (name, rule)));
    faults
        .map(|(name, rule)| {
            StatusCause::invalid("metadata.finalizers", &format!("{name:?}"), &rule)
        })
        .collect()
}

/// The violated rules of a label's key, or of a finalizer: `[dns.prefix/]name`.
fn key_rules(key: &str) -> Vec<String> {
    let mut violated = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            violated.push(format!(
                "a qualified name {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return violated;
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                violated.push("prefix part must be non-empty".to_owned());
            } else if !prefix.split('.').all(is_dns_label) {
                violated.push(format!("prefix part {SUBDOMAIN_RULE}"));
            }
            name
        }
    };
    if name.is_empty() {
        violated.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LEN_MAX {
        violated.push(format!(
            "name part must be no more than {LABEL_LEN_MAX} bytes"
        ));
    }
    if !is_name_part(name) {
        violated.push(format!("name part {NAME_PART}"));
    }
    violated
}

fn is_dns_label(text: &str) -> bool {
    let legal = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(legal)
        && bytes.last().is_some_and(legal)
        && bytes.iter().all(|byte| legal(byte) || *byte == b'-')
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
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
            &["Invalid value: \"a/b/c\": a qualified name"],
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
