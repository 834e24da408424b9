//! The three fields of a token's JSON, decoded as Go does: names in any case, the last of repeated fields counts, `null` is absent.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::syntax;

/// The fields of a token; absent ones have Go's zero value.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) v: String,
    pub(super) rv: i64,
    pub(super) start: String,
}

impl Fields {
    /// Parses the JSON. The error is Go's message: a syntax error anywhere, else the first wrong type.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        syntax::check(json)?;
        let text = String::from_utf8_lossy(json);
        let text = text.trim_ascii();
        if text == "null" {
            return Ok(Self::default());
        }
        if !text.starts_with('{') {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type storage.continueToken",
                type_of(text)
            ));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let entries = deserializer
            .deserialize_map(ObjectEntries)
            .map_err(|fault| fault.to_string())?;
        let mut fields = Self::default();
        let mut first_fault = None;
        for (key, value) in entries {
            if let Err(fault) = fields.take(&key, value.get()) {
                first_fault.get_or_insert(fault);
            }
        }
        first_fault.map_or(Ok(fields), Err)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        if value == "null" {
            return Ok(());
        }
        let key = key.to_ascii_lowercase();
        let (target, mut found) = match &*key {
            "v" | "start" => {
                if let Ok(text) = serde_json::from_str(value) {
                    *(if key == "v" {
                        &mut self.v
                    } else {
                        &mut self.start
                    }) = text;
                    return Ok(());
                }
                ("string", type_of(value).to_owned())
            }
            "rv" => {
                if let Ok(number) = value.parse() {
                    self.rv = number;
                    return Ok(());
                }
                ("int64", type_of(value).to_owned())
            }
            _ => return Ok(()),
        };
        if target == "int64" && found == "number" {
            found = format!("number {value}");
        }
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field continueToken.{key} of type {target}"
        ))
    }
}

/// Go's name for the type of a valid JSON value.
fn type_of(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        _ => "number",
    }
}

/// Collects an object's entries in their order, with the values unparsed.
struct ObjectEntries;

impl<'de> Visitor<'de> for ObjectEntries {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
