//! Writes settings as a configuration file. Reading the file gives the same settings again.

use serde_json::Value;

use super::settings_error::SettingsError;
use super::{file, layers};
use crate::cli::{ProcessFlags, ServeFlags};

/// The complete file, with every setting that has a value.
pub(super) fn file(process: &ProcessFlags, serve: &ServeFlags) -> Result<String, SettingsError> {
    let head = format!("apiVersion: {}\nkind: {}\n", file::API_VERSION, file::KIND);
    let lines = values(process, serve)?.into_iter();
    let lines = lines.map(|(key, value)| format!("{key}: {}\n", yaml(&value)));
    Ok(head + &lines.collect::<String>())
}

/// Each setting that has a value, by its key in the file, in the order of the help.
pub(super) fn values(
    process: &ProcessFlags,
    serve: &ServeFlags,
) -> Result<Vec<(String, Value)>, SettingsError> {
    // Only a path can be refused: JSON, like YAML, is UTF-8.
    let written = [serde_json::to_value(serve), serde_json::to_value(process)];
    let mut found = Vec::new();
    for (id, key) in layers::keys() {
        for settings in &written {
            let settings = settings.as_ref().map_err(|_| SettingsError::NotUtf8)?;
            if let Some(value) = settings.get(&id).filter(|value| !value.is_null()) {
                found.push((key.clone(), without_empty(value)));
            }
        }
    }
    Ok(found)
}

/// Without the empty strings of a list: an empty value is how flags and variables write an empty list.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().filter(|item| *item != "").cloned().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            value.clone()
        }
    }
}

/// The value in YAML: JSON, which is YAML, except for times and lengths.
fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) if is_quantity(text) || is_mapping(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Whether this is serving rules in JSON, which a file may hold as they are.
fn is_mapping(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<Value>(text).is_ok()
}

/// Whether this is digits and letters in turn, such as `256Mi` or `1m15s`, which YAML reads as a string without quotes.
fn is_quantity(text: &str) -> bool {
    let has_ends = text.starts_with(|c: char| ('1'..='9').contains(&c)) || text == "0s";
    has_ends
        && text.ends_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
