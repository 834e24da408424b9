//! JSON patch (RFC 6902): decoding operations, following JSON pointers (RFC 6901), applying the operations in order.
//!
//! Not by the crate `json-patch`, which bounds no patch and follows the RFC where the API server's library does not (decision 41).

use serde_json::{Map, Value};

use super::super::json_errors::go_name;
use super::super::{nesting, render};
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;

/// kube-apiserver's limits on the work of one patch: the number of operations, and the bytes of JSON that they copy.
const OPERATION_COUNT_MAX: usize = 10_000;
const COPIED_MAX: usize = 3 << 20;
/// Maximum number of list items that one patch may shift plus values that it may visit to find their depth, which takes less than a
/// second. The store is locked meanwhile; kube-apiserver has neither this limit nor the lock.
const SHIFTED_MAX: usize = 64 << 20;

/// An operation of a patch. Paths are JSON pointers, split and unescaped.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds a value at a path; in a list, before the item at the index.
    Add(PointerTokens, Value),
    /// Removes the value at a path.
    Remove(PointerTokens),
    /// Replaces the value at a path.
    Replace(PointerTokens, Value),
    /// Moves the value at the first path to the second.
    Move(PointerTokens, PointerTokens),
    /// Adds a copy of the value at the first path at the second.
    Copy(PointerTokens, PointerTokens),
    /// Fails the patch unless the value at a path equals this one.
    Test(PointerTokens, Value),
}

impl Operation {
    /// An upper bound on the nesting that the operation can give to a document that is not nested. Repeated copies and moves are not
    /// bounded by their paths, so for them it is [`DEPTH_MAX`].
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

/// A split JSON pointer; `None` for an invalid one, which is an error only when the operation is applied.
pub type PointerTokens = Option<Vec<String>>;

/// Why an operation cannot be applied. Like kube-apiserver, the server does not tell the client; the tests check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A path is not a JSON pointer.
    #[error("the path is not a JSON pointer")]
    Pointer,
    /// The operation adds or removes the whole document. RFC 6902 allows it, but kube-apiserver refuses it.
    #[error("the whole document cannot be added or removed")]
    Root,
    /// There is no value at a path.
    #[error("there is no value at the path")]
    Missing,
    /// A list index is not a number or is out of range.
    #[error("the list index is not a number or is out of range")]
    Index,
    /// A `test` operation found another value.
    #[error("the tested value differs")]
    Differs,
    /// The operation moves a value into itself.
    #[error("a value cannot be moved into itself")]
    IntoItself,
    /// The document would be nested more deeply than can be parsed again.
    #[error("the document would be nested too deeply")]
    Depth,
    /// The patch copies more than kube-apiserver's limit.
    #[error("the patch copies too much")]
    Copied,
    /// The patch shifts more list items, or visits more values, than the limit.
    #[error("the patch shifts too many list items or visits too many values")]
    Shifted,
}

/// Decodes a body.
///
/// # Errors
/// 400 for a body that is not a list of operations, 413 for more operations than kube-apiserver accepts.
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
    // Go decodes null like an absent value.
    let empty = Map::new();
    let map = match step {
        Value::Object(map) => map,
        Value::Null => &empty,
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

/// Splits a JSON pointer; `""` is the whole document. Like in kube-apiserver's library, text before the first slash is ignored; RFC
/// 6901 does not allow any.
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

/// A document to which a patch is applied, with the cost so far.
struct PatchDocument<'a> {
    root: &'a mut Value,
    /// An upper bound on the document's nesting.
    depth: usize,
    /// Bytes of JSON copied so far.
    copied: usize,
    /// List items shifted and values visited so far.
    shifted: usize,
}

/// Applies operations in order. After an error the document has the changes of the operations before the failing one, and a failing
/// move may have removed its value.
///
/// # Errors
/// The error of the first operation that cannot be applied.
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
                let path = tokens(path)?;
                self.deepen(path, nesting::depth(value))?;
                self.add(path, value.clone())
            }
            Operation::Remove(path) => self.remove(tokens(path)?).map(drop),
            Operation::Replace(path, value) => {
                let path = tokens(path)?;
                if path.is_empty() && !value.is_object() && !value.is_array() {
                    // kube-apiserver's library silently ignores the replacement of the document by a scalar.
                    return Ok(());
                }
                self.deepen(path, nesting::depth(value))?;
                *find_mut(self.root, path)? = value.clone();
                Ok(())
            }
            Operation::Move(from, path) => self.relocate(tokens(from)?, tokens(path)?),
            Operation::Copy(from, path) => {
                let (from, path) = (tokens(from)?, tokens(path)?);
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
            Operation::Test(path, expected) => self.test(tokens(path)?, expected),
        }
    }

    fn test(&mut self, path: &[String], expected: &Value) -> Result<(), ApplyError> {
        // kube-apiserver's library treats an absent member as null.
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
        (found == expected).then_some(()).ok_or(ApplyError::Differs)
    }

    /// Applies a `move` operation.
    fn relocate(&mut self, from: &[String], path: &[String]) -> Result<(), ApplyError> {
        if path.len() > from.len() && path.starts_with(from) {
            return Err(ApplyError::IntoItself);
        }
        // The depth is measured only if the bound does not suffice: a patch can have ten thousand moves.
        let depth_bound = self.depth.saturating_sub(from.len());
        if path.len() + depth_bound > DEPTH_MAX {
            let moved = self.measure(from)?;
            self.depth = self.measure(&[])?;
            self.deepen(path, moved)?;
        } else {
            self.deepen(path, depth_bound)?;
        }
        let value = self.remove(from)?;
        self.add(path, value)
    }

    /// The depth of the value at a path.
    fn measure(&mut self, path: &[String]) -> Result<usize, ApplyError> {
        let (depth, count) = nesting::measure(find_mut(self.root, path)?);
        self.shift(count)?;
        Ok(depth)
    }

    /// Updates the document's depth for a value of depth `depth` that is added at a path.
    fn deepen(&mut self, path: &[String], depth: usize) -> Result<(), ApplyError> {
        let depth = path.len() + depth;
        if depth > DEPTH_MAX {
            return Err(ApplyError::Depth);
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }

    /// Adds to the shifted items and visited values.
    fn shift(&mut self, items: usize) -> Result<(), ApplyError> {
        self.shifted += items;
        if self.shifted > SHIFTED_MAX {
            return Err(ApplyError::Shifted);
        }
        Ok(())
    }

    fn add(&mut self, path: &[String], value: Value) -> Result<(), ApplyError> {
        let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
        let (position, count) = match find_mut(self.root, parents)? {
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
        self.shift(count - position)?;
        if let Value::Array(items) = find_mut(self.root, parents)? {
            items.insert(position, value);
        }
        Ok(())
    }

    fn remove(&mut self, path: &[String]) -> Result<Value, ApplyError> {
        let (last, parents) = path.split_last().ok_or(ApplyError::Root)?;
        let (position, count) = match find_mut(self.root, parents)? {
            Value::Object(map) => return map.remove(last).ok_or(ApplyError::Missing),
            Value::Array(items) => (index(last, items.len())?, items.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(ApplyError::Missing);
            }
        };
        self.shift(count - position)?;
        let Value::Array(items) = find_mut(self.root, parents)? else {
            return Err(ApplyError::Missing);
        };
        Ok(items.remove(position))
    }
}

/// The tokens of a pointer, or the error for an invalid one.
fn tokens(pointer: &PointerTokens) -> Result<&[String], ApplyError> {
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

/// Parses a list index below `bound` like kube-apiserver's library. Unlike in RFC 6901, leading zeros and a sign are allowed, and
/// negative indices count from `bound`.
fn index(text: &str, bound: usize) -> Result<usize, ApplyError> {
    let number: i64 = text.parse().map_err(|_| ApplyError::Index)?;
    let from_end = usize::try_from(number.unsigned_abs()).map_err(|_| ApplyError::Index)?;
    let position = if number < 0 {
        bound.checked_sub(from_end)
    } else {
        Some(from_end)
    };
    position
        .filter(|position| *position < bound)
        .ok_or(ApplyError::Index)
}
