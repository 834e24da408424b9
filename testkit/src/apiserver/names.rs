//! What Kubernetes accepts as names and labels.

use super::kinds::ServedKind;

const LABEL_LEN_MAX: usize = 63;
const SUBDOMAIN_LEN_MAX: usize = 253;

/// Whether an object of a kind may have a name.
pub(super) fn is_object_name(kind: &ServedKind, name: &str) -> bool {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => name.len() <= LABEL_LEN_MAX && is_dns_label(name),
        ("rbac.authorization.k8s.io", _) => {
            !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%'])
        }
        _ => is_subdomain(name),
    }
}

/// Whether a text may be the key of a label, or a finalizer.
pub(super) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label(key),
        Some((prefix, name)) => is_subdomain(prefix) && is_label(name),
    }
}

pub(super) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label(value)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LEN_MAX && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    matches(text, is_edge, |byte| is_edge(byte) || byte == b'-')
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= LABEL_LEN_MAX && matches(text, |byte| byte.is_ascii_alphanumeric(), is_inner)
}

fn matches(text: &str, is_edge: impl Fn(u8) -> bool, is_inner: impl Fn(u8) -> bool) -> bool {
    let edges = [text.bytes().next(), text.bytes().next_back()];
    edges.into_iter().all(|edge| edge.is_some_and(&is_edge)) && text.bytes().all(is_inner)
}
