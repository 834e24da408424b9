//! The syntax of names, label keys and label values. Objects, selectors and settings are checked by the same rules.

/// Maximum length of a DNS label, and so of a namespace's name.
const DNS_LABEL_LEN_MAX: usize = 63;
/// Maximum length of a DNS subdomain, and so of the names of most objects.
pub const DNS_SUBDOMAIN_LEN_MAX: usize = 253;
/// Maximum length of a label value, and of the part of a label key after the slash.
const LABEL_LEN_MAX: usize = 63;

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

/// Whether the text is a label key, `[dns.prefix/]name`. The names of finalizers have the same rules.
#[must_use]
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) => (Some(prefix), name),
    };
    prefix.is_none_or(is_dns_subdomain) && name.len() <= LABEL_LEN_MAX && matches_label(name)
}

/// Whether the text is a label value. The empty value is one.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || value.len() <= LABEL_LEN_MAX && matches_label(value)
}

fn matches_dns_label(text: &str) -> bool {
    matches(text, is_lower_alphanumeric, |byte| {
        is_lower_alphanumeric(byte) || *byte == b'-'
    })
}

const fn is_lower_alphanumeric(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn matches_dns_subdomain(text: &str) -> bool {
    text.split('.').all(matches_dns_label)
}

fn matches_label(text: &str) -> bool {
    matches(text, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(byte)
    })
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
            assert_eq!(is_dns_subdomain(text), is_subdomain, "{text:?}");
        }
    }

    #[test]
    fn names_have_a_length_limit() {
        let text = |len| "a".repeat(len);
        assert!(is_dns_label(&text(63)) && is_dns_subdomain(&text(253)));
        assert!(!is_dns_label(&text(64)) && !is_dns_subdomain(&text(254)));
        assert!(is_label_key(&format!("{}/{}", text(253), text(63))));
        assert!(!is_label_key(&format!("{}/a", text(254))));
        assert!(!is_label_key(&text(64)));
        assert!(is_label_value(&text(63)) && !is_label_value(&text(64)));
    }

    #[test]
    fn labels_have_a_key_and_a_value() {
        for key in ["a", "A_b.c-1", "example.com/My_Name.1"] {
            assert!(is_label_key(key), "{key:?}");
        }
        for key in [
            "", "/", "/a", "a/", "a/b/c", "A/b", "a..b/c", "-a", "_a", "a-", "é", "a b",
        ] {
            assert!(!is_label_key(key), "{key:?}");
        }
        assert!(is_label_value("") && is_label_value("My_Value.1"));
        assert!(!is_label_value("-") && !is_label_value("a/b") && !is_label_value("é"));
    }
}
