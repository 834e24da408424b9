//! JSON that is nested as deeply as kube-apiserver's decoder accepts.
//!
//! serde_json's values recurse when they are cloned, compared, serialized and dropped, so deeply nested values are handled on a
//! thread with a larger stack. The parser here does not recurse.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread::Builder;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::json_errors::syntax;
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;

/// Nesting that fits on any thread's stack; serde_json itself parses up to 127 levels.
const ORDINARY_DEPTH: usize = 100;
/// Stack space for each level: a debug build needs about 2 KiB. Unused stack costs only address space.
const LEVEL_LEN: usize = 16 << 10;
const STACK_LEN: usize = (DEPTH_MAX + 1_000) * LEVEL_LEN;

// Whether this thread was started by `with_stack` and has the larger stack.
thread_local! {
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs a closure that handles values of this depth, on a thread with a larger stack if needed. Values of such a depth must not
/// leave `run`, because the caller's stack is too small to drop them.
///
/// # Errors
/// The error of `run`, or 500 if the thread cannot be started.
pub(super) fn with_stack<R: Send>(
    depth: usize,
    run: impl FnOnce() -> Result<R, Status> + Send,
) -> Result<R, Status> {
    if depth <= ORDINARY_DEPTH || IS_DEEP.get() {
        return run();
    }
    std::thread::scope(|scope| {
        let deep = Builder::new().stack_size(STACK_LEN);
        let spawned = deep.spawn_scoped(scope, || {
            IS_DEEP.set(true);
            run()
        });
        let running = spawned.map_err(|fault| Status::untyped(fault.to_string()))?;
        running.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The depth of a JSON text. The result for a text that is not JSON is arbitrary.
pub(super) fn text_depth(json: &[u8]) -> usize {
    let mut deepest = 0;
    each_level(json, |_, depth| deepest = deepest.max(depth));
    deepest
}

/// Calls `visit` for each opening bracket, with the depth inside it.
fn each_level(json: &[u8], mut visit: impl FnMut(u8, usize)) {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                visit(*byte, depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            bytes.next();
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// The depth of a value: 0 for a scalar.
pub(super) fn depth(value: &Value) -> usize {
    measure(value).0
}

/// The depth of a value, and the number of values that were visited: the value itself and all inside it.
pub(super) fn measure(value: &Value) -> (usize, usize) {
    let (mut deepest, mut count) = (0, 0);
    let mut pending = vec![(value, 0)];
    while let Some((value, above)) = pending.pop() {
        count += 1;
        let inside = above + 1;
        match value {
            Value::Object(map) => pending.extend(map.values().map(|value| (value, inside))),
            Value::Array(items) => pending.extend(items.iter().map(|value| (value, inside))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => continue,
        }
        deepest = deepest.max(inside);
    }
    (deepest, count)
}

/// Parses a value of at most [`DEPTH_MAX`] levels.
///
/// # Errors
/// Go's message for the first error in the text.
pub(super) fn parse(json: &[u8]) -> Result<Value, String> {
    let go_message = |fault: serde_json::Error| syntax(&fault, json);
    let depth = text_depth(json);
    if depth > DEPTH_MAX {
        let mut offender = None;
        each_level(json, |bracket, depth| {
            if depth > DEPTH_MAX {
                offender.get_or_insert(bracket);
            }
        });
        let offender = char::from(offender.unwrap_or(b'['));
        return Err(format!("invalid character {offender:?} exceeded max depth"));
    }
    if depth <= ORDINARY_DEPTH {
        return serde_json::from_slice(json).map_err(go_message);
    }
    // Neither the validation nor `build` recurses.
    serde_json::from_slice::<IgnoredAny>(json).map_err(go_message)?;
    build(json).map_err(go_message)
}

/// An object or array whose closing bracket has not been read. An object may have a key that waits for its value.
enum OpenContainer {
    Object(Map<String, Value>, Option<String>),
    Array(Vec<Value>),
}

/// Builds the value of a text that is known to be valid JSON.
fn build(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut rest = json;
    while let Some((&first, tail)) = rest.split_first() {
        let (value, tail) = match first {
            b'{' => {
                open.push(OpenContainer::Object(Map::new(), None));
                (None, tail)
            }
            b'[' => {
                open.push(OpenContainer::Array(Vec::new()));
                (None, tail)
            }
            b'}' | b']' => (open.pop().map(OpenContainer::close), tail),
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => (None, tail),
            _ => {
                let (scalar, tail) = rest.split_at(scalar_len(rest));
                (Some(serde_json::from_slice(scalar)?), tail)
            }
        };
        rest = tail;
        match (value, open.last_mut()) {
            (None, _) => {}
            (Some(value), None) => return Ok(value),
            (Some(value), Some(OpenContainer::Array(items))) => items.push(value),
            (Some(value), Some(OpenContainer::Object(map, key))) => match (key.take(), value) {
                (Some(key), value) => drop(map.insert(key, value)),
                (None, Value::String(text)) => *key = Some(text),
                (None, _) => {}
            },
        }
    }
    Ok(Value::Null)
}

impl OpenContainer {
    fn close(self) -> Value {
        match self {
            Self::Object(map, _) => Value::Object(map),
            Self::Array(items) => Value::Array(items),
        }
    }
}

/// The length of the scalar that the text starts with.
fn scalar_len(json: &[u8]) -> usize {
    if json.first() != Some(&b'"') {
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        return json.iter().position(ends).unwrap_or(json.len());
    }
    let mut escaped = false;
    let quote = json.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    quote.map_or(json.len(), |position| position + 2)
}

#[cfg(test)]
mod tests;
