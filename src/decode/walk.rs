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
    fn what_is_cut_short_is_refused() {
        let object = br#"{"a":[{}],"b":"c"}"#;
        for len in 0..object.len() {
            assert!(members(&object[..len]).is_err(), "{len}");
        }
        assert!(members(b"{}{}").is_err());
        assert!(elements(b"[1]]").is_err());
    }
}
