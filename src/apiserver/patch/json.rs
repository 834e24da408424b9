//! JSON patch (RFC 6902): reading operations, walking pointers (RFC 6901), applying them in order.

use serde_json::Value;

use super::super::body::{go_name, syntax};
use super::super::render;
use crate::downstream::status::Status;

/// The API server's own bound on the work of one patch.
const OPERATION_COUNT_MAX: usize = 10_000;

/// One step of a patch. Paths are JSON pointers, split and unescaped.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Puts a value at a path, before an existing list item.
    Add(Pointer, Value),
    /// Takes away what is at a path.
    Remove(Pointer),
    /// Puts a value where there is one.
    Replace(Pointer, Value),
    /// Takes the first path's value to the second.
    Move(Pointer, Pointer),
    /// Puts a copy of the first path's value at the second.
    Copy(Pointer, Pointer),
    /// Holds the patch back unless the value at a path is this one.
    Test(Pointer, Value),
}

/// A split JSON pointer, or `None` for text that is no pointer, which fails only when it is followed.
pub type Pointer = Option<Vec<String>>;

/// Why an operation does not apply. The API server keeps the reason to itself; tests and logs do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A path that is no JSON pointer.
    #[error("the path is no JSON pointer")]
    Pointer,
    /// The whole document was to be added or removed, which the API server refuses though RFC 6902 allows it.
    #[error("the whole document cannot be added or removed")]
    Root,
    /// Nothing stands at a path.
    #[error("nothing stands at the path")]
    Missing,
    /// A list index that is no number or is out of range.
    #[error("the list index is out of range")]
    Index,
    /// A value is not what it was tested for.
    #[error("the tested value differs")]
    Differs,
    /// A value was to be moved into itself.
    #[error("a value cannot be moved into itself")]
    IntoItself,
}

/// Reads a body.
///
/// # Errors
/// 400 for a body that is no list of operations, 413 for a longer list than the API server takes.
pub fn decode(body: &[u8]) -> Result<Vec<Operation>, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let value: Value =
        serde_json::from_slice(body).map_err(|fault| refuse(syntax(&fault, body)))?;
    let steps = match &value {
        Value::Array(steps) => steps.as_slice(),
        Value::Null => &[],
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            return Err(refuse(format!(
                "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                go_name(&value)
            )));
        }
    };
    if steps.len() > OPERATION_COUNT_MAX {
        return Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATION_COUNT_MAX}, got {}",
                steps.len()
            ),
        ));
    }
    steps.iter().map(operation).collect()
}

fn operation(step: &Value) -> Result<Operation, Status> {
    let Value::Object(map) = step else {
        return Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
            go_name(step)
        )));
    };
    let refuse = |why: &str| {
        Status::bad_request(format!(
            "invalid operation {}: {why}",
            String::from_utf8_lossy(&render::json(step))
        ))
    };
    let pointer = |key: &str| match map.get(key) {
        Some(Value::String(text)) => Ok(split(text)),
        Some(found) => Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
            go_name(found)
        ))),
        None => {
            let comma = if key == "path" { "" } else { "," };
            Err(refuse(&format!(
                "failed to decode '{key}': operation{comma} missing {key} field: missing value"
            )))
        }
    };
    let value = || {
        map.get("value").cloned().ok_or_else(|| {
            refuse("failed to decode 'value': operation, missing value field: missing value")
        })
    };
    match map.get("op").and_then(Value::as_str) {
        Some("add") => value().and_then(|value| Ok(Operation::Add(pointer("path")?, value))),
        Some("remove") => Ok(Operation::Remove(pointer("path")?)),
        Some("replace") => {
            value().and_then(|value| Ok(Operation::Replace(pointer("path")?, value)))
        }
        Some("move") => Ok(Operation::Move(pointer("from")?, pointer("path")?)),
        Some("copy") => Ok(Operation::Copy(pointer("from")?, pointer("path")?)),
        Some("test") => Ok(Operation::Test(
            pointer("path")?,
            map.get("value").cloned().unwrap_or(Value::Null),
        )),
        _ => Err(refuse("unsupported operation")),
    }
}

/// Splits a JSON pointer; `""` is the whole document.
fn split(text: &str) -> Pointer {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let rest = text.strip_prefix('/')?;
    Some(
        rest.split('/')
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

/// Applies operations in order; on failure the document is left as the failing one found it.
///
/// # Errors
/// The first operation's that does not apply.
pub fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), ApplyError> {
    operations.iter().try_for_each(|operation| match operation {
        Operation::Add(path, value) => add(document, followed(path)?, value.clone()),
        Operation::Remove(path) => remove(document, followed(path)?).map(drop),
        Operation::Replace(path, value) => {
            *find_mut(document, followed(path)?)? = value.clone();
            Ok(())
        }
        Operation::Move(from, path) => {
            let (from, path) = (followed(from)?, followed(path)?);
            if path.len() > from.len() && path.starts_with(from) {
                return Err(ApplyError::IntoItself);
            }
            let value = remove(document, from)?;
            add(document, path, value)
        }
        Operation::Copy(from, path) => {
            let value = find_mut(document, followed(from)?)?.clone();
            add(document, followed(path)?, value)
        }
        Operation::Test(path, wanted) => match find_mut(document, followed(path)?) {
            Ok(found) if found == wanted => Ok(()),
            Ok(_) => Err(ApplyError::Differs),
            // The API server's library takes an absent member for null.
            Err(ApplyError::Missing) if wanted.is_null() => Ok(()),
            Err(fault) => Err(fault),
        },
    })
}

fn followed(pointer: &Pointer) -> Result<&[String], ApplyError> {
    pointer.as_deref().ok_or(ApplyError::Pointer)
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Result<&'a mut Value, ApplyError> {
    path.iter().try_fold(document, |value, part| match value {
        Value::Object(map) => map.get_mut(part).ok_or(ApplyError::Missing),
        Value::Array(items) => {
            let index = index(part, items.len())?;
            items.get_mut(index).ok_or(ApplyError::Index)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ApplyError::Missing)
        }
    })
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), ApplyError> {
    let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
    match find_mut(document, parents)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
            Ok(())
        }
        Value::Array(items) => {
            let at = if last == "-" {
                items.len()
            } else {
                index(last, items.len() + 1)?
            };
            items.insert(at, value);
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ApplyError::Missing)
        }
    }
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, ApplyError> {
    let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
    match find_mut(document, parents)? {
        Value::Object(map) => map.remove(last).ok_or(ApplyError::Missing),
        Value::Array(items) => {
            let at = index(last, items.len())?;
            Ok(items.remove(at))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ApplyError::Missing)
        }
    }
}

/// A list index below `bound`: decimal, no sign, no leading zero (RFC 6901 §4).
fn index(text: &str, bound: usize) -> Result<usize, ApplyError> {
    let decimal =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text.parse::<usize>() {
        Ok(at) if decimal && at < bound => Ok(at),
        _ => Err(ApplyError::Index),
    }
}
