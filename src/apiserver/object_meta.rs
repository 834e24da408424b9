//! Checks metadata against the types of Go's `ObjectMeta`, with the errors of Go's JSON decoder.

use serde_json::{Map, Value};

use super::json_errors::go_name;

/// The Go type of a field. For a field, `null` counts as absent; inside of lists and maps Go decodes it to an empty value.
#[derive(Clone, Copy)]
enum Type {
    /// A string; with Go's name of the type.
    Text(&'static str),
    Int64,
    Bool,
    Time,
    TextMap,
    Texts,
    Structs(&'static Struct),
    /// Any value.
    Raw,
}

struct Struct {
    /// Name without the package.
    name: &'static str,
    fields: &'static [(&'static str, Type)],
}

const STRING: Type = Type::Text("string");
const UID: Type = Type::Text("types.UID");

static OBJECT_META: Struct = Struct {
    name: "ObjectMeta",
    fields: &[
        ("name", STRING),
        ("generateName", STRING),
        ("namespace", STRING),
        ("selfLink", STRING),
        ("uid", UID),
        ("resourceVersion", STRING),
        ("generation", Type::Int64),
        ("creationTimestamp", Type::Time),
        ("deletionTimestamp", Type::Time),
        ("deletionGracePeriodSeconds", Type::Int64),
        ("labels", Type::TextMap),
        ("annotations", Type::TextMap),
        ("ownerReferences", Type::Structs(&OWNER_REFERENCE)),
        ("finalizers", Type::Texts),
        ("managedFields", Type::Structs(&MANAGED_FIELDS_ENTRY)),
    ],
};

static OWNER_REFERENCE: Struct = Struct {
    name: "OwnerReference",
    fields: &[
        ("apiVersion", STRING),
        ("kind", STRING),
        ("name", STRING),
        ("uid", UID),
        ("controller", Type::Bool),
        ("blockOwnerDeletion", Type::Bool),
    ],
};

static MANAGED_FIELDS_ENTRY: Struct = Struct {
    name: "ManagedFieldsEntry",
    fields: &[
        ("manager", STRING),
        ("operation", Type::Text("v1.ManagedFieldsOperationType")),
        ("apiVersion", STRING),
        ("time", Type::Time),
        ("fieldsType", STRING),
        ("fieldsV1", Type::Raw),
        ("subresource", STRING),
    ],
};

/// The position of Go's decoder in the object, for its errors.
struct DecodePath<'a> {
    /// Name of the innermost struct.
    within: &'a str,
    /// The fields from the root to this value, joined with dots.
    path: &'a str,
}

impl DecodePath<'_> {
    fn refuse(&self, found: &str, expected: &str) -> String {
        let Self { within, path } = self;
        format!(
            "json: cannot unmarshal {found} into Go struct field {within}.{path} of type {expected}"
        )
    }
}

/// Checks an object's `metadata`. `within` is the struct that contains it: the kind, for objects of compiled-in kinds. The metadata
/// of custom resources is decoded by itself, without a containing struct.
///
/// # Errors
/// Go's message for the first field of a wrong type.
pub(super) fn check(metadata: &Value, within: Option<&str>) -> Result<(), String> {
    let expected = "v1.ObjectMeta";
    match (metadata, within) {
        (Value::Null, _) => Ok(()),
        (Value::Object(map), Some(_)) => check_struct(&OBJECT_META, map, "metadata."),
        (Value::Object(map), None) => check_struct(&OBJECT_META, map, ""),
        (found, Some(within)) => {
            let path = "metadata";
            Err(DecodePath { within, path }.refuse(go_name(found), expected))
        }
        (found, None) => Err(format!(
            "json: cannot unmarshal {} into Go value of type {expected}",
            go_name(found)
        )),
    }
}

/// Replaces `null` inside of the metadata's lists and maps with the empty value that Go decodes it to.
pub(super) fn fill_nulls(object: &mut Value) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let fill = |value: &mut Value, empty: Value| {
        if value.is_null() {
            *value = empty;
        }
    };
    for (field, value) in metadata {
        match (field.as_str(), value) {
            ("labels" | "annotations", Value::Object(pairs)) => {
                pairs.values_mut().for_each(|value| fill(value, "".into()));
            }
            ("finalizers", Value::Array(items)) => {
                items.iter_mut().for_each(|item| fill(item, "".into()));
            }
            ("ownerReferences", Value::Array(items)) => {
                let empty = || Value::Object(Map::new());
                items.iter_mut().for_each(|item| fill(item, empty()));
            }
            _ => {}
        }
    }
}

/// Checks the fields of a struct. `root` is the path to it, with a dot at the end unless it is empty.
fn check_struct(schema: &Struct, map: &Map<String, Value>, root: &str) -> Result<(), String> {
    schema.fields.iter().try_for_each(|(name, expected)| {
        let Some(value) = map.get(*name).filter(|value| !value.is_null()) else {
            return Ok(());
        };
        let path = format!("{root}{name}");
        let location = DecodePath {
            within: schema.name,
            path: &path,
        };
        check_field(&location, *expected, value)
    })
}

fn check_field(location: &DecodePath<'_>, expected: Type, value: &Value) -> Result<(), String> {
    let refuse = |expected: &str| Err(location.refuse(go_name(value), expected));
    match (expected, value) {
        (Type::Raw, _) | (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Text(name), _) => refuse(name),
        (Type::Bool, _) => refuse("bool"),
        (Type::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Int64, Value::Number(number)) => {
            Err(location.refuse(&format!("number {number}"), "int64"))
        }
        (Type::Int64, _) => refuse("int64"),
        (Type::Time, Value::String(text)) => check_time(text),
        (Type::Time, _) => refuse("string"),
        (Type::TextMap, Value::Object(pairs)) => texts(location, pairs.values()),
        (Type::TextMap, _) => refuse("map[string]string"),
        (Type::Texts, Value::Array(items)) => texts(location, items.iter()),
        (Type::Texts, _) => refuse("[]string"),
        (Type::Structs(schema), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Object(map) => check_struct(schema, map, &format!("{}.", location.path)),
                Value::Null => Ok(()),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err(location.refuse(go_name(item), &format!("v1.{}", schema.name)))
                }
            })
        }
        (Type::Structs(schema), _) => refuse(&format!("[]v1.{}", schema.name)),
    }
}

fn texts<'a>(
    location: &DecodePath<'_>,
    mut values: impl Iterator<Item = &'a Value>,
) -> Result<(), String> {
    match values.find(|value| !value.is_string() && !value.is_null()) {
        Some(found) => Err(location.refuse(go_name(found), "string")),
        None => Ok(()),
    }
}

/// The parts of a time: the separator before the part, the part in Go's layout, its name, and its first and last value.
const TIME_PARTS: [(&str, &str, &str, [u32; 2]); 6] = [
    ("", "2006", "year", [0, 9999]),
    ("-", "01", "month", [1, 12]),
    // The last day depends on the month; it is checked in the end.
    ("-", "02", "day", [0, 99]),
    ("T", "15", "hour", [0, 23]),
    (":", "04", "minute", [0, 59]),
    (":", "05", "second", [0, 59]),
];

/// Checks a time like Go's `time.Parse` with the layout of RFC 3339: `2006-01-02T15:04:05Z`, optionally with a fraction of a second
/// and an offset.
///
/// # Errors
/// Go's message for the first part that does not fit.
fn check_time(text: &str) -> Result<(), String> {
    let unreadable = |rest: &str, part: &str| {
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {rest:?} as {part:?}"
        )
    };
    let out_of_range = |what: &str| format!("parsing time {text:?}: {what} out of range");
    let mut rest = text;
    let mut numbers = [0; 6];
    for ((before, part, what, [first, last]), number) in TIME_PARTS.into_iter().zip(&mut numbers) {
        rest = rest
            .strip_prefix(before)
            .ok_or_else(|| unreadable(rest, before))?;
        let read = digits(rest, part.len());
        // Only for the hour Go accepts a single digit.
        let read = read.or_else(|| digits(rest, 1).filter(|_| part == "15"));
        let (found, tail) = read.ok_or_else(|| unreadable(rest, part))?;
        (*number, rest) = (found, tail);
        if !(first..=last).contains(&found) {
            return Err(out_of_range(what));
        }
    }
    if let Some(fraction) = rest.strip_prefix(['.', ','])
        && fraction.starts_with(|letter: char| letter.is_ascii_digit())
    {
        rest = fraction.trim_start_matches(|letter: char| letter.is_ascii_digit());
    }
    rest = match rest.strip_prefix('Z') {
        Some(tail) => tail,
        None => {
            let (hour, minute, tail) = offset(rest).ok_or_else(|| unreadable(rest, "Z07:00"))?;
            if hour > 24 {
                return Err(out_of_range("time zone offset hour"));
            }
            if minute > 60 {
                return Err(out_of_range("time zone offset minute"));
            }
            tail
        }
    };
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }
    let [year, month, day, ..] = numbers.map(|number| i16::try_from(number).unwrap_or_default());
    let part = |number: i16| i8::try_from(number).unwrap_or_default();
    let date = jiff::civil::Date::new(year, part(month), part(day));
    date.map(drop).map_err(|_| out_of_range("day"))
}

/// The number of the first `len` digits, and the rest of the text.
fn digits(text: &str, len: usize) -> Option<(u32, &str)> {
    let (digits, tail) = text.split_at_checked(len)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .parse()
        .ok()
        .filter(|_| all)
        .map(|number| (number, tail))
}

/// Hours and minutes of an offset, and the rest of the text.
fn offset(text: &str) -> Option<(u32, u32, &str)> {
    let (hour, tail) = digits(text.strip_prefix(['+', '-'])?, 2)?;
    let (minute, tail) = digits(tail.strip_prefix(':')?, 2)?;
    Some((hour, minute, tail))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Metadata, the value that Go found in it, the field, and the type that Go expected.
    const REFUSED: &[[&str; 4]] = &[
        [
            r#"{"name": 1}"#,
            "number",
            "ObjectMeta.metadata.name",
            "string",
        ],
        [
            r#"{"uid": {}}"#,
            "object",
            "ObjectMeta.metadata.uid",
            "types.UID",
        ],
        [
            r#"{"generation": "1"}"#,
            "string",
            "ObjectMeta.metadata.generation",
            "int64",
        ],
        [
            r#"{"generation": 1.5}"#,
            "number 1.5",
            "ObjectMeta.metadata.generation",
            "int64",
        ],
        [
            r#"{"creationTimestamp": 5}"#,
            "number",
            "ObjectMeta.metadata.creationTimestamp",
            "string",
        ],
        [
            r#"{"labels": {"a": true}}"#,
            "bool",
            "ObjectMeta.metadata.labels",
            "string",
        ],
        [
            r#"{"labels": []}"#,
            "array",
            "ObjectMeta.metadata.labels",
            "map[string]string",
        ],
        [
            r#"{"finalizers": {}}"#,
            "object",
            "ObjectMeta.metadata.finalizers",
            "[]string",
        ],
        [
            r#"{"ownerReferences": {"a": 1}}"#,
            "object",
            "ObjectMeta.metadata.ownerReferences",
            "[]v1.OwnerReference",
        ],
        [
            r#"{"ownerReferences": ["x"]}"#,
            "string",
            "ObjectMeta.metadata.ownerReferences",
            "v1.OwnerReference",
        ],
        [
            r#"{"ownerReferences": [{"kind": 1}]}"#,
            "number",
            "OwnerReference.metadata.ownerReferences.kind",
            "string",
        ],
        [
            r#"{"ownerReferences": [{"controller": "yes"}]}"#,
            "string",
            "OwnerReference.metadata.ownerReferences.controller",
            "bool",
        ],
        [
            r#"{"managedFields": 1}"#,
            "number",
            "ObjectMeta.metadata.managedFields",
            "[]v1.ManagedFieldsEntry",
        ],
        [
            r#"{"managedFields": [{"manager": []}]}"#,
            "array",
            "ManagedFieldsEntry.metadata.managedFields.manager",
            "string",
        ],
    ];

    #[track_caller]
    fn check_refused(metadata: Value, expected: &str) {
        assert_eq!(check(&metadata, Some("ConfigMap")).unwrap_err(), expected);
    }

    #[test]
    fn fields_of_other_types_are_refused_in_go_s_words() {
        let refused = |found: &str, field: &str, expected: &str| {
            format!(
                "json: cannot unmarshal {found} into Go struct field {field} of type {expected}"
            )
        };
        for [metadata, found, field, expected] in REFUSED {
            let metadata = serde_json::from_str(metadata).unwrap();
            check_refused(metadata, &refused(found, field, expected));
        }
        check_refused(
            json!({"creationTimestamp": "soon"}),
            r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#,
        );
    }

    #[test]
    fn what_go_decodes_is_taken() {
        for metadata in [
            json!(null),
            json!({}),
            json!({"name": null, "labels": null, "ownerReferences": null, "unknown": 7}),
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]}),
            json!({"managedFields": [{"manager": "m", "time": "9999-12-31T23:59:59Z", "fieldsV1": {"f:a": {}}}]}),
        ] {
            assert_eq!(check(&metadata, Some("ConfigMap")), Ok(()), "{metadata}");
        }
    }

    /// The messages are a real API server's.
    #[test]
    fn metadata_that_is_no_object_is_refused_in_the_words_of_its_kind() {
        check_refused(
            json!(1),
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        );
        assert_eq!(
            check(&json!([]), None).unwrap_err(),
            "json: cannot unmarshal array into Go value of type v1.ObjectMeta"
        );
    }

    #[test]
    fn null_is_an_empty_value_inside_of_lists_and_maps() {
        let mut object = json!({"metadata": {
            "labels": {"a": null}, "annotations": {"b": null}, "finalizers": [null], "ownerReferences": [null],
        }});
        assert_eq!(check(&object["metadata"], None), Ok(()));
        fill_nulls(&mut object);
        let filled = json!({"metadata": {
            "labels": {"a": ""}, "annotations": {"b": ""}, "finalizers": [""], "ownerReferences": [{}],
        }});
        assert_eq!(object, filled);
    }

    /// The results are a real API server's.
    #[test]
    fn times_are_read_as_go_reads_them() {
        for text in [
            "2026-11-22T04:00:00Z",
            "2026-11-22T04:00:00.123456789Z",
            "2026-11-22T04:00:00,5Z",
            "2026-11-22T4:00:00Z",
            "2024-02-29T23:59:59+05:30",
            "2026-11-22T04:00:00+24:00",
            "0000-01-01T00:00:00Z",
        ] {
            assert_eq!(check_time(text), Ok(()), "{text}");
        }
        for (text, rest, part) in [
            ("x", "x", "2006"),
            ("2026-11-22", "", "T"),
            ("2026/11/22", "/11/22", "-"),
            ("2026-1-22T04:00:00Z", "1-22T04:00:00Z", "01"),
            ("2026-11-22 04:00:00Z", " 04:00:00Z", "T"),
            ("2026-11-22T04:00:00", "", "Z07:00"),
            ("2026-11-22T04:00:00.5", "", "Z07:00"),
            ("2026-11-22T04:00:00.Z", ".Z", "Z07:00"),
            ("2026-11-22T04:00:00z", "z", "Z07:00"),
            ("2026-11-22T04:00:00+5:30", "+5:30", "Z07:00"),
        ] {
            let expected = format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {rest:?} as {part:?}"
            );
            assert_eq!(check_time(text), Err(expected));
        }
        for (text, fault) in [
            ("2026-13-22T04:00:00Z", "month out of range"),
            ("2026-11-00T04:00:00Z", "day out of range"),
            ("2026-02-30T04:00:00Z", "day out of range"),
            ("2026-11-22T24:00:00Z", "hour out of range"),
            ("2026-11-22T04:60:00Z", "minute out of range"),
            ("2026-11-22T04:00:61Z", "second out of range"),
            (
                "2026-11-22T04:00:00+25:00",
                "time zone offset hour out of range",
            ),
            (
                "2026-11-22T04:00:00+05:61",
                "time zone offset minute out of range",
            ),
            ("2026-11-22T04:00:00Zx", "extra text: \"x\""),
        ] {
            let expected = format!("parsing time {text:?}: {fault}");
            assert_eq!(check_time(text), Err(expected));
        }
        // Malformed texts must not cause a panic.
        for text in [
            "",
            "é",
            "2026-11-2é",
            "2026-11-22T04:00:00é",
            "+026-11-22T04:00:00Z",
        ] {
            assert!(check_time(text).is_err(), "{text}");
        }
    }
}
