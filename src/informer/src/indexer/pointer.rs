//! Reads the value at a JSON pointer from an object's bytes. Fields that are not on the pointer's path are skipped without decoding.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A malformed JSON pointer: it is not empty and does not begin with a slash, or it contains a tilde that is not followed by 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON pointer: {0:?}")]
pub struct PointerError(Box<str>);

/// A JSON pointer, RFC 6901.
#[derive(Debug)]
pub(super) struct JsonPointer(Vec<Box<str>>);

impl JsonPointer {
    pub(super) fn parse(text: &str) -> Result<Self, PointerError> {
        let error = || PointerError(text.into());
        let Some((before, rest)) = text.split_once('/') else {
            return if text.is_empty() {
                Ok(Self(Vec::new()))
            } else {
                Err(error())
            };
        };
        if !before.is_empty() {
            return Err(error());
        }
        let segments: Option<_> = rest.split('/').map(unescaped).collect();
        segments.map(Self).ok_or_else(error)
    }

    /// The string, number or boolean at this pointer; `None` for other values, or if the JSON is malformed.
    pub(super) fn text_in(&self, json: &[u8]) -> Option<String> {
        let mut json = serde_json::Deserializer::from_slice(json);
        PointerRest(&self.0).deserialize(&mut json).ok().flatten()
    }
}

fn unescaped(segment: &str) -> Option<Box<str>> {
    let mut text = String::with_capacity(segment.len());
    let mut parts = segment.split('~');
    text.push_str(parts.next()?);
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        text.push(escaped);
        text.push_str(rest);
    }
    Some(text.into())
}

/// The rest of the pointer's path, below the value that is being read.
#[derive(Clone, Copy)]
struct PointerRest<'a>(&'a [Box<str>]);

impl PointerRest<'_> {
    /// The text of a scalar, if the path ends at it.
    fn scalar(self, text: impl ToString) -> Option<String> {
        self.0.is_empty().then(|| text.to_string())
    }
}

impl<'de> DeserializeSeed<'de> for PointerRest<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PointerRest<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_on_path) =
            map.next_key_seed(FieldNameSeed(self.0.first().map(|name| &**name)))?
        {
            if is_on_path {
                found = map.next_value_seed(PointerRest(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.first().and_then(|index| index.parse::<usize>().ok());
        let mut found = None;
        for index in 0_usize.. {
            if Some(index) == wanted {
                let Some(value) = items.next_element_seed(PointerRest(&self.0[1..]))? else {
                    break;
                };
                found = value;
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.scalar(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(self.scalar(value))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Reads a field's name, and returns whether it is this one.
struct FieldNameSeed<'a>(Option<&'a str>);

impl<'de> DeserializeSeed<'de> for FieldNameSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(self.0 == Some(name))
    }
}
