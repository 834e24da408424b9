//! Removes `metadata.managedFields` from an object, which is often a quarter of its size.

use super::walk::{member, members};

/// Copies an object without its managed fields. `None` if it has none, or is not an object. Everything else stays as it was
/// written, except for whitespace between the members of the metadata.
#[must_use]
pub fn without_managed_fields(object: &[u8]) -> Option<Vec<u8>> {
    let at = member(object, "metadata").ok()??;
    let metadata = at.of(object);
    let members = members(metadata).ok()?;
    let (first, last) = (members.first()?, members.last()?);
    let kept = || members.iter().filter(|it| it.key != "managedFields");
    if kept().count() == members.len() {
        return None;
    }
    let mut out = Vec::with_capacity(object.len());
    out.extend_from_slice(&object[..at.start as usize]);
    out.extend_from_slice(&metadata[..first.start as usize]);
    for (index, member) in kept().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&metadata[member.start as usize..member.value.end as usize]);
    }
    out.extend_from_slice(&metadata[last.value.end as usize..]);
    out.extend_from_slice(&object[at.end as usize..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The same JSON written compactly, with whitespace, and on several lines.
    fn writings(object: &Value) -> [String; 3] {
        let pretty = serde_json::to_string_pretty(object).unwrap();
        [
            object.to_string(),
            pretty.replace('\n', " "),
            pretty.replace("\": ", "\"\t:\n"),
        ]
    }

    #[test]
    fn only_managed_fields_are_removed_however_the_json_is_formatted() {
        let fields = r#"[{"manager":"m","fieldsV1":{"f:a":{"k:{\"x\":1}":{}}}}]"#;
        for metadata in [
            format!(r#"{{"managedFields":{fields}}}"#),
            format!(r#"{{"managedFields":{fields},"name":"x"}}"#),
            format!(r#"{{"name":"x","managedFields":{fields}}}"#),
            format!(r#"{{"labels":{{"a":"b,}}"}},"managedFields":{fields},"name":"x"}}"#),
            r#"{"managedFields":null,"name":"x"}"#.to_owned(),
        ] {
            let text =
                format!(r#"{{"kind":"K","metadata":{metadata},"spec":{{"managedFields":1}}}}"#);
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            for written in writings(&expected) {
                let cut = without_managed_fields(written.as_bytes()).unwrap();
                let metadata = expected["metadata"].as_object_mut().unwrap();
                metadata.remove("managedFields");
                let read: Value = serde_json::from_slice(&cut)
                    .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&cut)));
                assert_eq!(read, expected, "{written}");
                assert!(!read["spec"]["managedFields"].is_null());
            }
        }
    }

    #[test]
    fn repeated_managed_fields_are_all_removed() {
        let object = br#"{"\u006detadata":{"managedFields":1,"name":"x","m\u0061nagedFields":[]}}"#;
        let cut = without_managed_fields(object).unwrap();
        assert_eq!(cut, br#"{"\u006detadata":{"name":"x"}}"#);
    }

    #[test]
    fn an_object_without_managed_fields_is_not_copied() {
        for object in [
            &br#"{"metadata":{"name":"x"},"managedFields":[]}"#[..],
            br#"{"metadata":{}}"#,
            br#"{"metadata":null}"#,
            b"{}",
            b"[]",
            br#"{"metadata":{"managedFields":[}"#,
        ] {
            assert_eq!(without_managed_fields(object), None);
        }
    }
}
