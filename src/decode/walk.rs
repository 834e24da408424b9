//! One level of an object or array: where its values stand. Looks into nothing.

use crate::resource::Span;

use super::json::{Json, ScanError};

/// The keys of an object as they stand between their quotes, in wire order, each with its value's place.
///
/// # Errors
/// The bytes are not one whole object in UTF-8.
pub fn members(bytes: &[u8]) -> Result<Vec<(&str, Span)>, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut members = Vec::new();
    json.object("an object", |json, key| {
        members.push((key.raw, json.skip()?));
        Ok(())
    })?;
    json.end()?;
    Ok(members)
}

/// Where the value of an object's first member of this key stands. What comes after it is not looked at.
///
/// # Errors
/// The bytes are no object in UTF-8 as far as that.
pub fn member(bytes: &[u8], key: &str) -> Result<Option<Span>, ScanError> {
    let mut found = None;
    let mut json = Json::new(bytes)?;
    let walked = json.object("an object", |json, next| {
        let span = json.skip()?;
        if next.raw == key {
            found = Some(span);
            // Ends the walk; nobody is told.
            return json.expected("nothing more");
        }
        Ok(())
    });
    found.map_or_else(|| walked.map(|()| None), |span| Ok(Some(span)))
}

/// Where the values of an array stand.
///
/// # Errors
/// The bytes are not one whole array in UTF-8.
pub fn elements(bytes: &[u8]) -> Result<Vec<Span>, ScanError> {
    let mut json = Json::new(bytes)?;
    let mut elements = Vec::new();
    json.array("an array", |json| {
        elements.push(json.skip()?);
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
            .map(|(key, span)| (*key, str::from_utf8(span.of(object)).unwrap()))
            .collect();
        assert_eq!(
            texts,
            [("a", r#"{"a":[1]}"#), (r#"b\""#, r#""}""#), ("c", "null")]
        );
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
    fn what_is_cut_short_is_refused() {
        let object = br#"{"a":[{}],"b":"c"}"#;
        for len in 0..object.len() {
            assert!(members(&object[..len]).is_err(), "{len}");
        }
        assert!(members(b"{}{}").is_err());
        assert!(elements(b"[1]]").is_err());
    }
}
