//! A written body: from bytes to an object of the wanted kind, or the words it is refused with (docs/PROTOCOL.md §6).

use serde_json::{Map, Value};

use super::kinds::ServedKind;
use super::{nesting, object_meta, render};
use crate::protocol::status::{Status, StatusCause, StatusDetails};
use crate::resource::Layout;

/// How the API server names its set of known types in "no kind … is registered" texts. Depends on the build; not
/// taken from a recording.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// How Go prints the struct that kind and version are read into.
const TYPE_STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// How much of an unreadable body an error repeats.
const EXCERPT_LEN: usize = 30;

/// Reads a body that creates or replaces an object; kind and version are checked and filled in.
///
/// # Errors
/// 400 for text that is no object of this kind, 422 for a custom resource of another kind.
pub(super) fn decode(kind: &ServedKind, body: &[u8]) -> Result<Value, Status> {
    let unrecognized = |why: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            kind.resource.kind,
            excerpt(body)
        ))
    };
    let mut value = nesting::parse(body).map_err(|fault| {
        unrecognized(&format!(
            "couldn't get version/kind; json parse error: {fault}"
        ))
    })?;
    let Value::Object(map) = &value else {
        return Err(unrecognized(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_STRUCT}",
            go_name(&value)
        )));
    };
    if kind.resource.layout == Layout::Dynamic && text(map, "kind").is_empty() {
        let body = String::from_utf8_lossy(body);
        return Err(unrecognized(&format!(
            "Object 'Kind' is missing in '{body}'"
        )));
    }
    check_type(kind, map).map_err(|mismatch| mismatch.of_body())?;
    fill_type(kind, &mut value);
    check_metadata_types(kind, &value).map_err(|why| {
        Status::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {name}: {why}",
            name = kind.resource.kind,
            version = kind.resource.gvr.version,
        ))
    })?;
    object_meta::fill_nulls(&mut value);
    Ok(value)
}

/// Checks what a patch has made of an object, as [`decode`] does for a body. The words are those for JSON and merge patches; of a
/// strategic merge patch the API server names others.
///
/// # Errors
/// 422 for another kind or version, or metadata of wrong types.
pub(super) fn check_patched(kind: &ServedKind, value: &mut Value) -> Result<(), Status> {
    let Value::Object(map) = &*value else {
        return Err(unreadable_patch(
            kind,
            value,
            &format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_STRUCT}",
                go_name(value)
            ),
        ));
    };
    if kind.resource.layout == Layout::Dynamic && text(map, "kind").is_empty() {
        let object = render::json(value);
        let object = String::from_utf8_lossy(&object);
        let why = format!("Object 'Kind' is missing in '{object}'");
        return Err(unreadable_patch(kind, value, &why));
    }
    check_type(kind, map).map_err(|mismatch| mismatch.of_patch(kind, value))?;
    check_metadata_types(kind, value).map_err(|why| unreadable_patch(kind, value, &why))?;
    object_meta::fill_nulls(value);
    Ok(())
}

/// The refusal of a patch whose result cannot be read.
fn unreadable_patch(kind: &ServedKind, value: &Value, why: &str) -> Status {
    let object = render::object(kind.resource.layout, value);
    let quoted = format!("{:?}", String::from_utf8_lossy(&object));
    let details = StatusDetails {
        causes: vec![StatusCause::invalid("patch", &quoted, why)],
        ..StatusDetails::default()
    };
    Status::invalid("", details)
}

/// The words for a patch that does not apply.
pub(super) const REJECTED: &str = "the server rejected our request due to an error in our request";

/// A body of another kind or version; the two ways to refuse it.
struct Mismatch {
    body: Status,
    registration: String,
}

impl Mismatch {
    fn of_body(self) -> Status {
        self.body
    }

    /// A patch of a compiled-in kind repeats the patched object; custom resources are refused as bodies are.
    fn of_patch(self, kind: &ServedKind, value: &Value) -> Status {
        if kind.resource.layout == Layout::Dynamic {
            return self.body;
        }
        unreadable_patch(kind, value, &self.registration)
    }
}

fn check_type(kind: &ServedKind, map: &Map<String, Value>) -> Result<(), Mismatch> {
    let wanted_version = kind.resource.gvr.api_version();
    let wanted_kind = kind.resource.kind.as_str();
    let (version, name) = (text(map, "apiVersion"), text(map, "kind"));
    let refuse = |body| {
        Err(Mismatch {
            body,
            registration: format!(
                "no kind \"{name}\" is registered for version \"{version}\" in scheme \"{SCHEME}\""
            ),
        })
    };
    if kind.resource.layout == Layout::Dynamic {
        if version != wanted_version {
            return refuse(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted_version})"
            )));
        }
        if name != wanted_kind {
            let object = map.get("metadata").and_then(Value::as_object);
            let object_name = object.map_or("", |metadata| text(metadata, "name"));
            let subject = format!("{name}.{}", kind.resource.gvr.group);
            let rule = format!("must be {wanted_kind}");
            let details = StatusDetails {
                kind: name.to_owned(),
                causes: vec![StatusCause::invalid("kind", &format!("{name:?}"), &rule)],
                ..kind.kind_details(object_name)
            };
            return refuse(Status::invalid(&subject, details));
        }
        return Ok(());
    }
    let (version, name) = (
        default(version, &wanted_version),
        default(name, wanted_kind),
    );
    if version == wanted_version && name == wanted_kind {
        return Ok(());
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    refuse(Status::bad_request(format!(
        "{name} in version \"{short}\" cannot be handled as a {wanted_kind}: no kind \"{name}\" is registered for version \"{version}\" in scheme \"{SCHEME}\""
    )))
}

/// Kind and version of compiled-in kinds may be left out by the client.
fn fill_type(kind: &ServedKind, value: &mut Value) {
    if let Value::Object(map) = value {
        map.insert("kind".to_owned(), kind.resource.kind.clone().into());
        map.insert(
            "apiVersion".to_owned(),
            kind.resource.gvr.api_version().into(),
        );
    }
}

/// Metadata is read into Go structs; what does not fit there is refused before anything else.
fn check_metadata_types(kind: &ServedKind, value: &Value) -> Result<(), String> {
    let within = match kind.resource.layout {
        Layout::Typed => Some(kind.resource.kind.as_str()),
        Layout::Dynamic => None,
    };
    object_meta::check(value.get("metadata").unwrap_or(&Value::Null), within)
}

/// A text member; `""` when absent or of another type.
pub(super) fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// What is wrong with a text that is no JSON, in Go's words where they can be told from the parser's.
pub(super) fn syntax(fault: &serde_json::Error, body: &[u8]) -> String {
    if fault.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = fault.to_string();
    let place = GO_PLACES.iter().find(|(ours, _)| text.starts_with(ours));
    let line = body
        .split(|byte| *byte == b'\n')
        .nth(fault.line().saturating_sub(1));
    let culprit = line.and_then(|line| line.get(fault.column().checked_sub(1)?));
    match (place, culprit) {
        (Some((_, place)), Some(byte)) => {
            format!("invalid character {:?} {place}", char::from(*byte))
        }
        _ => text,
    }
}

/// Where a character is wrong: how the parser's message begins, and how Go's ends.
const GO_PLACES: &[(&str, &str)] = &[
    (
        "key must be a string",
        "looking for beginning of object key string",
    ),
    (
        "trailing comma",
        "looking for beginning of object key string",
    ),
    ("expected value", "looking for beginning of value"),
    ("expected `:`", "after object key"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("trailing characters", "after top-level value"),
];

/// What Go calls a JSON value's type.
pub(super) fn go_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn default<'a>(text: &'a str, fallback: &'a str) -> &'a str {
    if text.is_empty() { fallback } else { text }
}

fn excerpt(body: &[u8]) -> String {
    let cut = &body[..body.len().min(EXCERPT_LEN)];
    let more = if body.len() > EXCERPT_LEN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => {
            let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

#[cfg(test)]
mod tests;
