//! Finds the values on one level of an object or array, without decoding them. The nesting depth of a value counts from the
//! value itself, because it may be a whole object in an event.

use std::borrow::Cow;

use crate::resource::ByteSpan;

use super::json::{Json, ScanError, span};

/// One key of an object with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonMember<'a> {
    /// The key with its escapes resolved.
    pub key: Cow<'a, str>,
    /// Offset of the key's opening quote.
    pub start: u32,
    /// Position of the value. The member ends with it.
    pub value: ByteSpan,
}

/// The members of an object, in the order in which they were written.
///
/// # Errors
/// The bytes are not one whole object in UTF-8.
pub fn members(bytes: &[u8]) -> Result<Vec<JsonMember<'_>>, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut members = Vec::new();
    json.object("an object", |json, key| {
        let start = span(key.start - 1, key.start)?.start;
        members.push(JsonMember {
            key: key.decode()?,
            start,
            value: json.with_own_depth(Json::skip)?,
        });
        Ok(())
    })?;
    json.end()?;
    Ok(members)
}

/// The value of the last member with this key: if a key occurs twice, the last one counts.
#[must_use]
pub fn value_of(members: &[JsonMember<'_>], key: &str) -> Option<ByteSpan> {
    members
        .iter()
        .rev()
        .find(|member| member.key == key)
        .map(|it| it.value)
}

/// Position of the value of the first member with this key. What follows the value is checked for UTF-8 but not parsed.
///
/// # Errors
/// The bytes are not UTF-8, or those up to the end of the value are not the beginning of an object.
pub fn member(bytes: &[u8], key: &str) -> Result<Option<ByteSpan>, ScanError> {
    let mut found = None;
    let mut json = Json::new(bytes)?;
    let walked = json.object("an object", |json, member_key| {
        let span = json.with_own_depth(Json::skip)?;
        if member_key.decode()? == key {
            found = Some(span);
            // This error only ends the walk; it is not returned.
            return json.expected("nothing more");
        }
        Ok(())
    });
    found.map_or_else(|| walked.map(|()| None), |span| Ok(Some(span)))
}

/// The first key of an object that starts with the first byte; `None` if there is none or it is invalid. Nothing after the key is
/// read.
pub(super) fn first_key(object: &[u8]) -> Option<Cow<'_, str>> {
    let inside = object.strip_prefix(b"{")?;
    let inside = &inside[inside.iter().position(|byte| !byte.is_ascii_whitespace())?..];
    // Finds the closing quote: only the key is then checked and parsed, however long the object is.
    let mut len = 1;
    loop {
        len += memchr::memchr2(b'"', b'\\', inside.get(len..)?)?;
        if inside[len] == b'"' {
            break;
        }
        len += 2;
    }
    Json::new(&inside[..=len])
        .ok()?
        .string("a key")
        .ok()?
        .decode()
        .ok()
}

/// Positions of the values of an array.
///
/// # Errors
/// The bytes are not one whole array in UTF-8.
pub fn elements(bytes: &[u8]) -> Result<Vec<ByteSpan>, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut elements = Vec::new();
    json.array("an array", |json| {
        elements.push(json.with_own_depth(Json::skip)?);
        Ok(())
    })?;
    json.end()?;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_are_found() {
        let object = br#"{"a":{"a":[1]}, "b\"" : "}" ,"c":null}"#;
        let members = members(object).unwrap();
        let texts: Vec<_> = members
            .iter()
            .map(|it| (&*it.key, str::from_utf8(it.value.of(object)).unwrap()))
            .collect();
        assert_eq!(
            texts,
            [("a", r#"{"a":[1]}"#), ("b\"", r#""}""#), ("c", "null")]
        );
        assert!(members.iter().all(|it| object[it.start as usize] == b'"'));
        let array = br#"[ {"a":1},2]"#;
        let elements = elements(array).unwrap();
        let texts: Vec<_> = elements.iter().map(|span| span.of(array)).collect();
        assert_eq!(texts, [br#"{"a":1}"#.as_slice(), b"2"]);
    }

    #[test]
    fn one_member_is_found_without_parsing_what_follows() {
        let object = br#"{"a":{"b":0},"b":[1],"b":2,"c":"}"#;
        let found = |key| member(object, key).map(|span| span.map(|span| span.of(object)));
        assert_eq!(found("b"), Ok(Some(b"[1]".as_slice())));
        assert!(found("c").is_err(), "the value of `c` has no end");
        assert_eq!(member(br#"{"a":{"b":0}}"#, "b"), Ok(None));
    }

    #[test]
    fn keys_are_compared_with_their_escapes_resolved() {
        let object = br#"{"\u006detadata":{"a":1},"b\"":2}"#;
        let keys: Vec<_> = members(object)
            .unwrap()
            .into_iter()
            .map(|it| it.key.into_owned())
            .collect();
        assert_eq!(keys, ["metadata", "b\""]);
        let found = member(object, "metadata").unwrap().unwrap();
        assert_eq!(found.of(object), br#"{"a":1}"#);
        assert!(members(br#"{"\x":1}"#).is_err(), "not a valid escape");
    }

    #[test]
    fn truncated_or_trailing_bytes_are_refused() {
        let object = br#"{"a":[{}],"b":"c"}"#;
        for len in 0..object.len() {
            assert!(members(&object[..len]).is_err(), "{len}");
        }
        assert!(members(b"{}{}").is_err());
        assert!(elements(b"[1]]").is_err());
    }
}
