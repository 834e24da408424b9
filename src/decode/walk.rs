//! One level of an object or array: where its values stand. Looks into nothing; how deep a value is counts by itself, for it may
//! be an object in an event.

use std::borrow::Cow;

use crate::resource::ByteSpan;

use super::json::{Json, ScanError, span};

/// One key of an object with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonMember<'a> {
    /// The key by its value: escapes are resolved.
    pub key: Cow<'a, str>,
    /// Where the key's opening quote stands.
    pub start: u32,
    /// Where the value stands. It ends the member.
    pub value: ByteSpan,
}

/// The members of an object in wire order.
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
            value: json.apart(Json::skip)?,
        });
        Ok(())
    })?;
    json.end()?;
    Ok(members)
}

/// Of members that have this key the value of the last one, which counts.
#[must_use]
pub fn value_of(members: &[JsonMember<'_>], key: &str) -> Option<ByteSpan> {
    let mut found = members.iter().rev();
    found.find(|member| member.key == key).map(|it| it.value)
}

/// Where the value of an object's first member of this key stands. What comes after it is not looked at.
///
/// # Errors
/// The bytes are no object in UTF-8 as far as that.
pub fn member(bytes: &[u8], key: &str) -> Result<Option<ByteSpan>, ScanError> {
    let mut found = None;
    let mut json = Json::new(bytes)?;
    let walked = json.object("an object", |json, next| {
        let span = json.apart(Json::skip)?;
        if next.decode()? == key {
            found = Some(span);
            // Ends the walk; nobody is told.
            return json.expected("nothing more");
        }
        Ok(())
    });
    found.map_or_else(|| walked.map(|()| None), |span| Ok(Some(span)))
}

/// The first key of an object; `None` where it is empty or no object. Looks at nothing behind it.
pub(super) fn first_key(object: &[u8]) -> Option<Cow<'_, str>> {
    let blank = |byte: &u8| !byte.is_ascii_whitespace();
    let inside = object.strip_prefix(b"{")?;
    let inside = &inside[inside.iter().position(blank)?..];
    let mut len = 1;
    // Cut behind its quote, the key is a text of its own.
    loop {
        len += memchr::memchr2(b'"', b'\\', inside.get(len..)?)?;
        if inside[len] == b'"' {
            break;
        }
        len += 2;
    }
    let mut json = Json::new(&inside[..=len]).ok()?;
    json.string("a key").ok()?.decode().ok()
}

/// Where the values of an array stand.
///
/// # Errors
/// The bytes are not one whole array in UTF-8.
pub fn elements(bytes: &[u8]) -> Result<Vec<ByteSpan>, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut elements = Vec::new();
    json.array("an array", |json| {
        elements.push(json.apart(Json::skip)?);
        Ok(())
    })?;
    json.end()?;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_whatever_they_hold() {
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
    fn one_member_is_found_without_a_look_at_what_follows() {
        let object = br#"{"a":{"b":0},"b":[1],"b":2,"c":"}"#;
        let found = |key| member(object, key).map(|span| span.map(|span| span.of(object)));
        assert_eq!(found("b"), Ok(Some(b"[1]".as_slice())));
        assert!(found("c").is_err(), "its value has no end");
        assert_eq!(member(br#"{"a":{"b":0}}"#, "b"), Ok(None));
    }

    #[test]
    fn keys_count_by_their_value_however_they_are_written() {
        let object = br#"{"\u006detadata":{"a":1},"b\"":2}"#;
        let keys: Vec<_> = members(object)
            .unwrap()
            .into_iter()
            .map(|it| it.key.into_owned())
            .collect();
        assert_eq!(keys, ["metadata", "b\""]);
        let found = member(object, "metadata").unwrap().unwrap();
        assert_eq!(found.of(object), br#"{"a":1}"#);
        assert!(members(br#"{"\x":1}"#).is_err(), "no escape of JSON's");
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let object = br#"{"a":[{}],"b":"c"}"#;
        for len in 0..object.len() {
            assert!(members(&object[..len]).is_err(), "{len}");
        }
        assert!(members(b"{}{}").is_err());
        assert!(elements(b"[1]]").is_err());
    }
}
