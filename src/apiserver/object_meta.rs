//! The types of `ObjectMeta`: what Go's decoder would not put into that struct, and how it says so.

use serde_json::{Map, Value};

use super::body::go_name;

/// What a field holds in Go. `null` is as good as absent; inside of lists and maps Go makes empty values of it, and it is refused
/// here.
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
struct Place<'a> {
    /// The innermost struct.
    within: &'static str,
    /// All fields that led here, with dots.
    path: &'a str,
}

impl Place<'_> {
    fn refuse(&self, found: &str, wanted: &str) -> String {
        let Self { within, path } = self;
        format!(
            "json: cannot unmarshal {found} into Go struct field {within}.{path} of type {wanted}"
        )
    }
}

/// Checks an object's `metadata`; `root` leads to its fields, `metadata.` where Go decodes the object as one struct.
///
/// # Errors
/// Go's words for the first field that does not fit.
pub(super) fn check(metadata: &Value, root: &str) -> Result<(), String> {
    match metadata {
        Value::Null => Ok(()),
        Value::Object(map) => check_struct(&OBJECT_META, map, root),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let place = Place {
                within: OBJECT_META.name,
                path: &format!("{root}metadata"),
            };
            Err(place.refuse(go_name(metadata), "v1.ObjectMeta"))
        }
    }
}

fn check_struct(form: &Struct, map: &Map<String, Value>, root: &str) -> Result<(), String> {
    form.fields.iter().try_for_each(|(name, wanted)| {
        let Some(value) = map.get(*name).filter(|value| !value.is_null()) else {
            return Ok(());
        };
        let path = format!("{root}{name}");
        let place = Place {
            within: form.name,
            path: &path,
        };
        check_field(&place, *wanted, value)
    })
}

fn check_field(place: &Place<'_>, wanted: Type, value: &Value) -> Result<(), String> {
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
        (Type::Time, Value::String(text)) if is_time(text) => Ok(()),
        (Type::Time, Value::String(text)) => Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )),
        (Type::Time, _) => refuse("string"),
        (Type::TextMap, Value::Object(pairs)) => texts(place, pairs.values()),
        (Type::TextMap, _) => refuse("map[string]string"),
        (Type::Texts, Value::Array(items)) => texts(place, items.iter()),
        (Type::Texts, _) => refuse("[]string"),
        (Type::Structs(form), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item {
                Value::Object(map) => check_struct(form, map, &format!("{}.", place.path)),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => Err(place.refuse(go_name(item), &format!("v1.{}", form.name))),
            })
        }
        (Type::Structs(form), _) => refuse(&format!("[]v1.{}", form.name)),
    }
}

fn texts<'a>(place: &Place<'_>, mut values: impl Iterator<Item = &'a Value>) -> Result<(), String> {
    match values.find(|value| !value.is_string()) {
        Some(found) => Err(place.refuse(go_name(found), "string")),
        None => Ok(()),
    }
}

/// Whether Go reads a text as RFC 3339: `2006-01-02T15:04:05Z`, with parts of a second or an offset.
fn is_time(text: &str) -> bool {
    let number = |from: usize, len: usize| -> Option<i16> {
        let digits = text.get(from..from + len)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| all)
    };
    let is_at = |at: usize, byte: u8| text.as_bytes().get(at) == Some(&byte);
    let separated = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !separated.iter().all(|(at, byte)| is_at(*at, *byte)) {
        return false;
    }
    let date = number(0, 4).zip(number(5, 2)).zip(number(8, 2));
    let is_date = date.is_some_and(|((year, month), day)| {
        let (month, day) = (i8::try_from(month), i8::try_from(day));
        month.is_ok_and(|month| {
            day.is_ok_and(|day| jiff::civil::Date::new(year, month, day).is_ok())
        })
    });
    let below = |at, bound| number(at, 2).is_some_and(|number| number < bound);
    let is_clock = below(11, 24) && below(14, 60) && below(17, 60);
    let behind = text.get(19..).unwrap_or_default();
    let zone = match behind.strip_prefix(['.', ',']) {
        Some(fraction) => fraction.trim_start_matches(|letter: char| letter.is_ascii_digit()),
        None => behind,
    };
    let at = text.len() - zone.len();
    let has_fraction = zone.len() == behind.len() || zone.len() + 1 < behind.len();
    let is_offset = zone.len() == 6
        && matches!(zone.as_bytes().first(), Some(b'+' | b'-'))
        && is_at(at + 3, b':')
        && below(at + 1, 24)
        && below(at + 4, 60);
    is_date && is_clock && has_fraction && (zone == "Z" || is_offset)
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
        assert_eq!(check(&metadata, "metadata.").unwrap_err(), wanted);
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
            assert_eq!(check(&metadata, "metadata."), Ok(()), "{metadata}");
        }
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        for text in [
            "2026-11-22T04:00:00Z",
            "2026-11-22T04:00:00.123456789Z",
            "2024-02-29T23:59:59+05:30",
            "0001-01-01T00:00:00Z",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in [
            "",
            "2026-11-22",
            "2026-11-22T04:00:00",
            "2026-11-22T04:00:00.Z",
            "2026-02-30T04:00:00Z",
            "2026-11-22T24:00:00Z",
            "2026-11-22 04:00:00Z",
            "2026-11-22T04:00:00+5:30",
            "+026-11-22T04:00:00Z",
            "2026-11-22T04:00:00Zé",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }
}
