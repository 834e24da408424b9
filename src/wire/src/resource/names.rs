//! The syntax of names, label keys and label values, with the API server's error texts. Objects, selectors and settings are checked by
//! the same rules.

/// Maximum length of a DNS label, and so of a namespace's name.
const DNS_LABEL_LEN_MAX: usize = 63;
/// Maximum length of a DNS subdomain, and so of the names of most objects.
pub const DNS_SUBDOMAIN_LEN_MAX: usize = 253;
/// Maximum length of a label value, and of the part of a label key after the slash.
const LABEL_LEN_MAX: usize = 63;

const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether the text is a DNS label (RFC 1123), as the names of namespaces are.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= DNS_LABEL_LEN_MAX && matches_dns_label(text)
}

/// Whether the text is a DNS subdomain (RFC 1123), as API groups and the names of most objects are. Like the API server, it does not limit
/// the length of each label.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= DNS_SUBDOMAIN_LEN_MAX && matches_dns_subdomain(text)
}

/// The rules of DNS labels that the text violates.
#[must_use]
pub fn dns_label_faults(text: &str) -> Vec<String> {
    let rule = (!matches_dns_label(text)).then(|| DNS_LABEL_RULE.to_owned());
    too_long(text, DNS_LABEL_LEN_MAX)
        .into_iter()
        .chain(rule)
        .collect()
}

/// The rules of DNS subdomains that the text violates.
#[must_use]
pub fn dns_subdomain_faults(text: &str) -> Vec<String> {
    let rule = (!matches_dns_subdomain(text)).then(|| DNS_SUBDOMAIN_RULE.to_owned());
    too_long(text, DNS_SUBDOMAIN_LEN_MAX)
        .into_iter()
        .chain(rule)
        .collect()
}

/// The rules of label keys, `[dns.prefix/]name`, that the text violates. The names of finalizers have the same rules.
#[must_use]
pub fn label_key_faults(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {LABEL_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut faults = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => dns_subdomain_faults(prefix)
            .iter()
            .map(|fault| format!("prefix part {fault}"))
            .collect(),
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, LABEL_LEN_MAX).map(|fault| format!("name part {fault}")));
    if !matches_label(name) {
        faults.push(format!("name part {LABEL_KEY_RULE}"));
    }
    faults
}

/// The rules of label values that the text violates. The empty value is valid.
#[must_use]
pub fn label_value_faults(value: &str) -> Vec<String> {
    let is_valid = value.is_empty() || matches_label(value);
    let rule = (!is_valid).then(|| LABEL_VALUE_RULE.to_owned());
    too_long(value, LABEL_LEN_MAX)
        .into_iter()
        .chain(rule)
        .collect()
}

fn too_long(text: &str, len_max: usize) -> Option<String> {
    (text.len() > len_max).then(|| format!("must be no more than {len_max} bytes"))
}

fn matches_dns_label(text: &str) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    matches(text, edge, |byte| edge(byte) || *byte == b'-')
}

fn matches_dns_subdomain(text: &str) -> bool {
    text.split('.').all(matches_dns_label)
}

fn matches_label(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    matches(text, u8::is_ascii_alphanumeric, inner)
}

/// Whether the text has legal characters at both ends and within; the empty text has no ends.
fn matches(text: &str, edge: fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(edge) && bytes.last().is_some_and(edge) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains_end_with_letters_or_digits() {
        for (text, is_label, is_subdomain) in [
            ("a", true, true),
            ("1-a", true, true),
            ("a.b-c.1", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a-.b", false, false),
            ("a..b", false, false),
            ("A", false, false),
            ("a_b", false, false),
            ("a/b", false, false),
            ("é", false, false),
        ] {
            assert_eq!(is_dns_label(text), is_label, "{text:?}");
            assert_eq!(dns_label_faults(text).is_empty(), is_label, "{text:?}");
            assert_eq!(is_dns_subdomain(text), is_subdomain, "{text:?}");
            let is_valid = dns_subdomain_faults(text).is_empty();
            assert_eq!(is_valid, is_subdomain, "{text:?}");
        }
    }

    #[test]
    fn names_may_be_so_long_and_no_longer() {
        let text = |len| "a".repeat(len);
        assert!(is_dns_label(&text(63)) && is_dns_subdomain(&text(253)));
        assert!(!is_dns_label(&text(64)) && !is_dns_subdomain(&text(254)));
        assert_eq!(
            dns_label_faults(&text(64)),
            ["must be no more than 63 bytes"]
        );
        assert_eq!(
            dns_subdomain_faults(&text(254)),
            ["must be no more than 253 bytes"]
        );
        assert_eq!(
            label_key_faults(&format!("{}/{}", text(254), text(64))),
            [
                "prefix part must be no more than 253 bytes",
                "name part must be no more than 63 bytes"
            ]
        );
        assert_eq!(
            label_value_faults(&text(64)),
            ["must be no more than 63 bytes"]
        );
    }

    #[test]
    fn every_violated_rule_of_a_label_is_listed() {
        assert!(label_key_faults("example.com/My_Name.1").is_empty());
        assert!(label_value_faults("").is_empty() && label_value_faults("My_Value").is_empty());
        assert_eq!(label_key_faults("/").len(), 3);
        assert_eq!(label_key_faults("A/_b_").len(), 2);
        assert_eq!(label_key_faults("a/b/c").len(), 1);
        assert_eq!(label_value_faults("-").len(), 1);
    }
}
