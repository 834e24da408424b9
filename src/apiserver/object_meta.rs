//! The types of `ObjectMeta`: what Go's decoder would not put into that struct, and how it says so.

use serde_json::{Map, Value};

use super::body::go_name;

/// What a field holds in Go. `null` is as good as absent; inside of lists and maps Go makes empty values of it.
#[derive(Clone, Copy)]
enum Type {
    /// Any text; how Go calls the type.
    Text(&'static str),
    Int64,
    Bool,
    Time,
    TextMap,
    Texts,
    Structs(&'static Struct),
    /// Whatever stands there.
    Raw,
}

struct Struct {
    /// Without its package.
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

/// Where Go is while it decodes.
struct DecodePath<'a> {
    /// The innermost struct.
    within: &'a str,
    /// All fields that led here, with dots.
    path: &'a str,
}

impl DecodePath<'_> {
    fn refuse(&self, found: &str, wanted: &str) -> String {
        let Self { within, path } = self;
        format!(
            "json: cannot unmarshal {found} into Go struct field {within}.{path} of type {wanted}"
        )
    }
}

/// Checks an object's `metadata`. Objects of compiled-in kinds are decoded as one struct, of which `within` is the name.
///
/// # Errors
/// Go's words for the first field that does not fit.
pub(super) fn check(metadata: &Value, within: Option<&str>) -> Result<(), String> {
    let wanted = "v1.ObjectMeta";
    match (metadata, within) {
        (Value::Null, _) => Ok(()),
        (Value::Object(map), Some(_)) => check_struct(&OBJECT_META, map, "metadata."),
        (Value::Object(map), None) => check_struct(&OBJECT_META, map, ""),
        (found, Some(within)) => {
            let path = "metadata";
            Err(DecodePath { within, path }.refuse(go_name(found), wanted))
        }
        (found, None) => Err(format!(
            "json: cannot unmarshal {} into Go value of type {wanted}",
            go_name(found)
        )),
    }
}

/// Puts into lists and maps of metadata what Go makes of `null` there.
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

fn check_struct(form: &Struct, map: &Map<String, Value>, root: &str) -> Result<(), String> {
    form.fields.iter().try_for_each(|(name, wanted)| {
        let Some(value) = map.get(*name).filter(|value| !value.is_null()) else {
            return Ok(());
        };
        let path = format!("{root}{name}");
        let place = DecodePath {
            within: form.name,
            path: &path,
        };
        check_field(&place, *wanted, value)
    })
}

fn check_field(place: &DecodePath<'_>, wanted: Type, value: &Value) -> Result<(), String> {
    let refuse = |wanted: &str| Err(place.refuse(go_name(value), wanted));
    match (wanted, value) {
        (Type::Raw, _) | (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Text(name), _) => refuse(name),
        (Type::Bool, _) => refuse("bool"),
        (Type::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Int64, Value::Number(number)) => {
            Err(place.refuse(&format!("number {number}"), "int64"))
        }
        (Type::Int64, _) => refuse("int64"),
        (Type::Time, Value::String(text)) => check_time(text),
        (Type::Time, _) => refuse("string"),
        (Type::TextMap, Value::Object(pairs)) => texts(place, pairs.values()),
        (Type::TextMap, _) => refuse("map[string]string"),
        (Type::Texts, Value::Array(items)) => texts(place, items.iter()),
        (Type::Texts, _) => refuse("[]string"),
        (Type::Structs(form), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Object(map) => check_struct(form, map, &format!("{}.", place.path)),
                Value::Null => Ok(()),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err(place.refuse(go_name(item), &format!("v1.{}", form.name)))
                }
            })
        }
        (Type::Structs(form), _) => refuse(&format!("[]v1.{}", form.name)),
    }
}

fn texts<'a>(
    place: &DecodePath<'_>,
    mut values: impl Iterator<Item = &'a Value>,
) -> Result<(), String> {
    match values.find(|value| !value.is_string() && !value.is_null()) {
        Some(found) => Err(place.refuse(go_name(found), "string")),
        None => Ok(()),
    }
}

/// What stands before a part of a time, how Go calls the part, what it is, and its first and last value.
const TIME_PARTS: [(&str, &str, &str, [u32; 2]); 6] = [
    ("", "2006", "year", [0, 9999]),
    ("-", "01", "month", [1, 12]),
    // The last day depends on the month, and is looked at in the end.
    ("-", "02", "day", [0, 99]),
    ("T", "15", "hour", [0, 23]),
    (":", "04", "minute", [0, 59]),
    (":", "05", "second", [0, 59]),
];

/// Reads a time as Go's `time.Parse` does by the layout of RFC 3339: `2006-01-02T15:04:05Z`, with parts of a second or an offset.
///
/// # Errors
/// Go's words for the first part that does not fit.
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
        // Of all parts Go takes an hour of one digit.
        let read = read.or_else(|| digits(rest, 1).filter(|_| part == "15"));
        let (found, behind) = read.ok_or_else(|| unreadable(rest, part))?;
        (*number, rest) = (found, behind);
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
        Some(behind) => behind,
        None => {
            let (hour, minute, behind) = offset(rest).ok_or_else(|| unreadable(rest, "Z07:00"))?;
            if hour > 24 {
                return Err(out_of_range("time zone offset hour"));
            }
            if minute > 60 {
                return Err(out_of_range("time zone offset minute"));
            }
            behind
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

/// The number that so many digits are, and what follows them.
fn digits(text: &str, len: usize) -> Option<(u32, &str)> {
    let (digits, behind) = text.split_at_checked(len)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .parse()
        .ok()
        .filter(|_| all)
        .map(|number| (number, behind))
}

/// Hours and minutes of an offset, and what follows it.
fn offset(text: &str) -> Option<(u32, u32, &str)> {
    let (hour, behind) = digits(text.strip_prefix(['+', '-'])?, 2)?;
    let (minute, behind) = digits(behind.strip_prefix(':')?, 2)?;
    Some((hour, minute, behind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Metadata, what Go found in it, the field, and the type that it wanted.
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
    fn check_refused(metadata: Value, wanted: &str) {
        assert_eq!(check(&metadata, Some("ConfigMap")).unwrap_err(), wanted);
    }

    #[test]
    fn fields_of_other_types_are_refused_in_go_s_words() {
        let refused = |found: &str, field: &str, wanted: &str| {
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        };
        for [metadata, found, field, wanted] in REFUSED {
            let metadata = serde_json::from_str(metadata).unwrap();
            check_refused(metadata, &refused(found, field, wanted));
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

    /// Asked of a real server.
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

    /// Each was asked of a real server.
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
        // Nothing of these may panic.
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
