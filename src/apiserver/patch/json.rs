//! JSON patch (RFC 6902): reading operations, walking pointers (RFC 6901), applying them in order.

use serde_json::{Map, Value};

use super::super::body::go_name;
use super::super::{nesting, render};
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;

/// The API server's own bounds on the work of one patch: operations, and bytes of JSON that it copies.
const OPERATION_COUNT_MAX: usize = 10_000;
const COPIED_MAX: usize = 3 << 20;
/// List items that one patch may shift, and values that it may look through for their depth: less than a second's work. The API
/// server has no such bound, and no lock there.
const SHIFTED_MAX: usize = 64 << 20;

/// One step of a patch. Paths are JSON pointers, split and unescaped.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Puts a value at a path, before an existing list item.
    Add(PointerTokens, Value),
    /// Takes away what is at a path.
    Remove(PointerTokens),
    /// Puts a value where there is one.
    Replace(PointerTokens, Value),
    /// Takes the first path's value to the second.
    Move(PointerTokens, PointerTokens),
    /// Puts a copy of the first path's value at the second.
    Copy(PointerTokens, PointerTokens),
    /// Holds the patch back unless the value at a path is this one.
    Test(PointerTokens, Value),
}

impl Operation {
    /// How deep it may nest a document that is not. Copies and moves may do it again and again.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Add(path, value) | Self::Replace(path, value) => {
                path.as_ref().map_or(0, Vec::len) + nesting::depth(value)
            }
            Self::Remove(_) => 0,
            Self::Move(..) | Self::Copy(..) => DEPTH_MAX,
            Self::Test(_, value) => nesting::depth(value),
        }
    }
}

/// A split JSON pointer, or `None` for text that is no pointer, which fails only when it is followed.
pub type PointerTokens = Option<Vec<String>>;

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
    /// The document would be nested deeper than can be read again.
    #[error("the document would be nested too deep")]
    Depth,
    /// More is copied than one patch may.
    #[error("the patch copies too much")]
    Copied,
    /// More list items are shifted, or values looked through, than one patch may.
    #[error("the patch moves too much about")]
    Shifted,
}

/// Reads a body.
///
/// # Errors
/// 400 for a body that is no list of operations, 413 for a longer list than the API server takes.
pub fn decode(body: &[u8]) -> Result<Vec<Operation>, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let value = nesting::parse(body).map_err(refuse)?;
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
    // To Go, null is as good as nothing everywhere.
    let nothing = Map::new();
    let map = match step {
        Value::Object(map) => map,
        Value::Null => &nothing,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                go_name(step)
            )));
        }
    };
    let refuse = |why: &str| {
        Status::bad_request(format!(
            "invalid operation {}: {why}",
            String::from_utf8_lossy(&render::json(step))
        ))
    };
    for key in ["op", "from", "path"] {
        if let Some(found) = map.get(key)
            && !found.is_string()
            && !found.is_null()
        {
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
                go_name(found)
            )));
        }
    }
    let pointer = |key: &str| match map.get(key).and_then(Value::as_str) {
        Some(text) => Ok(split(text)),
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

/// Splits a JSON pointer; `""` is the whole document. As in the API server's library, what stands before the first slash does not
/// count, though RFC 6901 has nothing there.
fn split(text: &str) -> PointerTokens {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let (_, rest) = text.split_once('/')?;
    Some(
        rest.split('/')
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

/// What one patch may cost.
struct PatchDocument<'a> {
    root: &'a mut Value,
    /// At least as deep as the document is nested.
    depth: usize,
    /// Bytes that were copied.
    copied: usize,
    /// List items that made room or moved up, and values that were looked through.
    shifted: usize,
}

/// Applies operations in order; on failure the document is left as the failing one found it.
///
/// # Errors
/// The first operation's that does not apply.
pub fn apply(document: &mut Value, operations: &[Operation]) -> Result<(), ApplyError> {
    let depth = nesting::depth(document);
    let mut document = PatchDocument {
        root: document,
        depth,
        copied: 0,
        shifted: 0,
    };
    operations
        .iter()
        .try_for_each(|operation| document.apply(operation))
}

impl PatchDocument<'_> {
    fn apply(&mut self, operation: &Operation) -> Result<(), ApplyError> {
        match operation {
            Operation::Add(path, value) => {
                let path = followed(path)?;
                self.deepen(path, nesting::depth(value))?;
                self.add(path, value.clone())
            }
            Operation::Remove(path) => self.remove(followed(path)?).map(drop),
            Operation::Replace(path, value) => {
                let path = followed(path)?;
                if path.is_empty() && !value.is_object() && !value.is_array() {
                    // The API server's library does nothing then, and says so to nobody.
                    return Ok(());
                }
                self.deepen(path, nesting::depth(value))?;
                *find_mut(self.root, path)? = value.clone();
                Ok(())
            }
            Operation::Move(from, path) => self.relocate(followed(from)?, followed(path)?),
            Operation::Copy(from, path) => {
                let (from, path) = (followed(from)?, followed(path)?);
                if from.is_empty() {
                    return Err(ApplyError::Root);
                }
                let value = find_mut(self.root, from)?;
                self.copied += render::json(value).len();
                if self.copied > COPIED_MAX {
                    return Err(ApplyError::Copied);
                }
                let value = value.clone();
                self.deepen(path, nesting::depth(&value))?;
                self.add(path, value)
            }
            Operation::Test(path, wanted) => self.test(followed(path)?, wanted),
        }
    }

    fn test(&mut self, path: &[String], wanted: &Value) -> Result<(), ApplyError> {
        // The API server's library takes an absent member for null.
        static ABSENT: Value = Value::Null;
        let found = match path.split_last() {
            None => &*self.root,
            Some((last, parents)) => {
                let parent = find_mut(self.root, parents)?;
                if let Value::Object(map) = &*parent {
                    map.get(last).unwrap_or(&ABSENT)
                } else {
                    child_mut(parent, last)?
                }
            }
        };
        (found == wanted).then_some(()).ok_or(ApplyError::Differs)
    }

    /// Moves a value.
    fn relocate(&mut self, from: &[String], path: &[String]) -> Result<(), ApplyError> {
        if path.len() > from.len() && path.starts_with(from) {
            return Err(ApplyError::IntoItself);
        }
        // Looked at only where the bound is not good enough: a document can be moved about ten thousand times.
        let at_most = self.depth.saturating_sub(from.len());
        if path.len() + at_most > DEPTH_MAX {
            let moved = self.measure(from)?;
            self.depth = self.measure(&[])?;
            self.deepen(path, moved)?;
        } else {
            self.deepen(path, at_most)?;
        }
        let value = self.remove(from)?;
        self.add(path, value)
    }

    /// How deep the value at a path is nested.
    fn measure(&mut self, path: &[String]) -> Result<usize, ApplyError> {
        let (depth, count) = nesting::measure(find_mut(self.root, path)?);
        self.shift(count)?;
        Ok(depth)
    }

    /// Something as deep as this is put at a path.
    fn deepen(&mut self, path: &[String], depth: usize) -> Result<(), ApplyError> {
        let depth = path.len() + depth;
        if depth > DEPTH_MAX {
            return Err(ApplyError::Depth);
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }

    fn shift(&mut self, items: usize) -> Result<(), ApplyError> {
        self.shifted += items;
        if self.shifted > SHIFTED_MAX {
            return Err(ApplyError::Shifted);
        }
        Ok(())
    }

    fn add(&mut self, path: &[String], value: Value) -> Result<(), ApplyError> {
        let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
        let (at, count) = match find_mut(self.root, parents)? {
            Value::Object(map) => {
                map.insert(last.clone(), value);
                return Ok(());
            }
            Value::Array(items) if last == "-" => (items.len(), items.len()),
            Value::Array(items) => (index(last, items.len() + 1)?, items.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(ApplyError::Missing);
            }
        };
        self.shift(count - at)?;
        if let Value::Array(items) = find_mut(self.root, parents)? {
            items.insert(at, value);
        }
        Ok(())
    }

    fn remove(&mut self, path: &[String]) -> Result<Value, ApplyError> {
        let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
        let (at, count) = match find_mut(self.root, parents)? {
            Value::Object(map) => return map.remove(last).ok_or(ApplyError::Missing),
            Value::Array(items) => (index(last, items.len())?, items.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(ApplyError::Missing);
            }
        };
        self.shift(count - at)?;
        let Value::Array(items) = find_mut(self.root, parents)? else {
            return Err(ApplyError::Missing);
        };
        Ok(items.remove(at))
    }
}

fn followed(pointer: &PointerTokens) -> Result<&[String], ApplyError> {
    pointer.as_deref().ok_or(ApplyError::Pointer)
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Result<&'a mut Value, ApplyError> {
    path.iter()
        .try_fold(document, |value, part| child_mut(value, part))
}

fn child_mut<'a>(value: &'a mut Value, part: &str) -> Result<&'a mut Value, ApplyError> {
    match value {
        Value::Object(map) => map.get_mut(part).ok_or(ApplyError::Missing),
        Value::Array(items) => {
            let index = index(part, items.len())?;
            items.get_mut(index).ok_or(ApplyError::Index)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ApplyError::Missing)
        }
    }
}

/// A list index below `bound`, as the API server's library reads it: leading zeros and a sign may stand there, and what is
/// negative counts from `bound`, which RFC 6901 has not.
fn index(text: &str, bound: usize) -> Result<usize, ApplyError> {
    let number: i64 = text.parse().map_err(|_| ApplyError::Index)?;
    let from_end = usize::try_from(number.unsigned_abs()).map_err(|_| ApplyError::Index)?;
    let at = if number < 0 {
        bound.checked_sub(from_end)
    } else {
        Some(from_end)
    };
    at.filter(|at| *at < bound).ok_or(ApplyError::Index)
}
