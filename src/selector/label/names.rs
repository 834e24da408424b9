//! Validation of label keys and label values, with the API server's own error texts.

const NAME_LEN_MAX: usize = 63;
const PREFIX_LEN_MAX: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The errors of a label key, joined by `; `; `None` if it is valid.
pub(super) fn key_fault(key: &str) -> Option<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > PREFIX_LEN_MAX {
                    faults.push(format!("prefix part {}", too_long(PREFIX_LEN_MAX)));
                }
                if !is_subdomain(prefix) {
                    faults.push(format!("prefix part {PREFIX_RULE}"));
                }
            }
            name
        }
        _ => {
            return Some(format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_LEN_MAX {
        faults.push(format!("name part {}", too_long(NAME_LEN_MAX)));
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The errors of a label value, joined by `; `; `None` if it is valid. The empty value is valid.
pub(super) fn value_fault(value: &str) -> Option<String> {
    let mut faults = Vec::new();
    if value.len() > NAME_LEN_MAX {
        faults.push(too_long(NAME_LEN_MAX));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE_RULE.to_owned());
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn too_long(len_max: usize) -> String {
    format!("must be no more than {len_max} bytes")
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    bytes.iter().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.split('.').map(str::as_bytes).all(|label| {
        label.iter().all(|b| edge(b) || *b == b'-')
            && label.first().is_some_and(edge)
            && label.last().is_some_and(edge)
    })
}
