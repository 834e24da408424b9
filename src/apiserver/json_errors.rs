//! What Go's decoder says of JSON that it cannot decode.

use serde_json::Value;

/// The message for invalid JSON: Go's, where it can be derived from serde_json's; otherwise serde_json's.
pub(super) fn syntax(fault: &serde_json::Error, body: &[u8]) -> String {
    if fault.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = fault.to_string();
    let go_message = GO_MESSAGES.iter().find(|(ours, _)| text.starts_with(ours));
    let line = body
        .split(|byte| *byte == b'\n')
        .nth(fault.line().saturating_sub(1));
    let offender = line.and_then(|line| line.get(fault.column().checked_sub(1)?));
    match (go_message, offender) {
        (Some((_, go_message)), Some(byte)) => {
            format!("invalid character {:?} {go_message}", char::from(*byte))
        }
        _ => text,
    }
}

/// The start of serde_json's message for an unexpected character, and the end of Go's.
const GO_MESSAGES: &[(&str, &str)] = &[
    (
        "key must be a string",
        "looking for beginning of object key string",
    ),
    (
        "trailing comma",
        "looking for beginning of object key string",
    ),
    ("expected value", "looking for beginning of value"),
    ("expected `:`", "after object key"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("trailing characters", "after top-level value"),
];

/// Go's name for the type of a JSON value.
pub(super) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_is_told_in_go_s_words() {
        for (body, expected) in [
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 2}",
                "invalid character '2' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\n}\n x", "invalid character 'x' after top-level value"),
            ("{\"a\":", "unexpected end of JSON input"),
        ] {
            let fault = serde_json::from_str::<Value>(body).unwrap_err();
            assert_eq!(syntax(&fault, body.as_bytes()), expected, "{body}");
        }
    }
}
