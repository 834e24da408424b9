//! Decodes the body of a write to an object of the expected kind, or refuses it with kube-apiserver's messages
//! (docs/PROTOCOL.md §6).

use serde_json::{Map, Value};

use super::json_errors::go_name;
use super::kinds::ServedKind;
use super::{nesting, object_meta, render};
use crate::protocol::status::{Status, StatusCause, StatusDetails};
use crate::resource::Layout;

/// The name of kube-apiserver's scheme in "no kind … is registered" messages. It depends on the build; this one is not taken
/// from a recording.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// Go's description of the struct that kind and version are decoded into.
const TYPE_STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// How many bytes of an undecodable body an error repeats.
const EXCERPT_LEN: usize = 30;

/// Decodes a body that creates or replaces an object. Kind and version are checked, and filled in if absent.
///
/// # Errors
/// 400 for a body that is not an object of this kind, 422 for a custom resource of another kind.
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

/// Checks a patched object, like [`decode`] checks a body. The messages are those for JSON and merge patches; kube-apiserver has
/// others for strategic merge patches, which are not copied.
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

/// The error for a patch whose result cannot be decoded.
fn unreadable_patch(kind: &ServedKind, value: &Value, why: &str) -> Status {
    let object = render::object(kind.resource.layout, value);
    let quoted = format!("{:?}", String::from_utf8_lossy(&object));
    let details = StatusDetails {
        causes: vec![StatusCause::invalid("patch", &quoted, why)],
        ..StatusDetails::default()
    };
    Status::invalid("", details)
}

/// An object of another kind or version. kube-apiserver's error for it depends on whether it is a body or a patched object.
struct Mismatch {
    /// The error for a body.
    body: Status,
    /// The reason in the error for a patched object.
    registration: String,
}

impl Mismatch {
    fn of_body(self) -> Status {
        self.body
    }

    /// For compiled-in kinds the error repeats the patched object; for custom resources it is the same as for a body.
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

/// Sets kind and version: for compiled-in kinds a client may leave them out.
fn fill_type(kind: &ServedKind, value: &mut Value) {
    if let Value::Object(map) = value {
        map.insert("kind".to_owned(), kind.resource.kind.clone().into());
        map.insert(
            "apiVersion".to_owned(),
            kind.resource.gvr.api_version().into(),
        );
    }
}

/// Checks that the metadata fits Go's `ObjectMeta`, which kube-apiserver decodes it into before all other checks.
fn check_metadata_types(kind: &ServedKind, value: &Value) -> Result<(), String> {
    let within = match kind.resource.layout {
        Layout::Typed => Some(kind.resource.kind.as_str()),
        Layout::Dynamic => None,
    };
    object_meta::check(value.get("metadata").unwrap_or(&Value::Null), within)
}

/// A member's text; `""` if it is absent or not a string.
pub(super) fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn default<'a>(text: &'a str, fallback: &'a str) -> &'a str {
    if text.is_empty() { fallback } else { text }
}

/// The start of a body as kube-apiserver shows it: text for an object, otherwise hexadecimal.
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
