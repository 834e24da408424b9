//! JSON nested as deep as the API server's decoder takes it.
//!
//! serde_json's values recurse when they are copied, compared, written and dropped, so those that are nested deeper than
//! usual are handled on a stack of their own. Reading them does not recurse here. Decision 26.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread::Builder;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::body::syntax;
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;

/// Nesting that any thread's stack has room for; serde_json itself reads up to 127 levels.
const ORDINARY_DEPTH: usize = 100;
/// Room on the stack for each level: a debug build needs some 2 KiB. What is not used costs address space only.
const LEVEL_LEN: usize = 16 << 10;
const STACK_LEN: usize = (DEPTH_MAX + 1_000) * LEVEL_LEN;

thread_local! {
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs what handles values of this depth, on another stack if need be. Values that deep must not leave `run`.
///
/// # Errors
/// Those of `run`, and 500 where no stack can be had.
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

/// How deep a JSON text is nested; of a text that is no JSON, any number.
pub(super) fn text_depth(json: &[u8]) -> usize {
    let mut deepest = 0;
    each_level(json, |_, depth| deepest = deepest.max(depth));
    deepest
}

/// Tells of each opening bracket how deep it leads.
fn each_level(json: &[u8], mut tell: impl FnMut(u8, usize)) {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                tell(*byte, depth);
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

/// How deep a value is nested: 0 for a scalar.
pub(super) fn depth(value: &Value) -> usize {
    measure(value).0
}

/// The same, and how many values it took to find out: itself and all inside.
pub(super) fn measure(value: &Value) -> (usize, usize) {
    let (mut deepest, mut count) = (0, 0);
    let mut waiting = vec![(value, 0)];
    while let Some((value, above)) = waiting.pop() {
        count += 1;
        let inside = above + 1;
        match value {
            Value::Object(map) => waiting.extend(map.values().map(|value| (value, inside))),
            Value::Array(items) => waiting.extend(items.iter().map(|value| (value, inside))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => continue,
        }
        deepest = deepest.max(inside);
    }
    (deepest, count)
}

/// Reads a value, nested up to [`DEPTH_MAX`] deep.
///
/// # Errors
/// Says in Go's words what is wrong with the text.
pub(super) fn parse(json: &[u8]) -> Result<Value, String> {
    let words = |fault: serde_json::Error| syntax(&fault, json);
    let depth = text_depth(json);
    if depth > DEPTH_MAX {
        let mut culprit = None;
        each_level(json, |bracket, depth| {
            if depth > DEPTH_MAX {
                culprit.get_or_insert(bracket);
            }
        });
        let culprit = char::from(culprit.unwrap_or(b'['));
        return Err(format!("invalid character {culprit:?} exceeded max depth"));
    }
    if depth <= ORDINARY_DEPTH {
        return serde_json::from_slice(json).map_err(words);
    }
    // Neither this nor what follows recurses.
    serde_json::from_slice::<IgnoredAny>(json).map_err(words)?;
    build(json).map_err(words)
}

/// A container whose end has not been read.
enum OpenContainer {
    Object(Map<String, Value>, Option<String>),
    Array(Vec<Value>),
}

/// Builds the value of a text that is known to be JSON.
fn build(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut rest = json;
    while let Some((&first, behind)) = rest.split_first() {
        let (value, behind) = match first {
            b'{' => {
                open.push(OpenContainer::Object(Map::new(), None));
                (None, behind)
            }
            b'[' => {
                open.push(OpenContainer::Array(Vec::new()));
                (None, behind)
            }
            b'}' | b']' => (open.pop().map(OpenContainer::close), behind),
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => (None, behind),
            _ => {
                let (scalar, behind) = rest.split_at(scalar_len(rest));
                (Some(serde_json::from_slice(scalar)?), behind)
            }
        };
        rest = behind;
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

/// The length of the string, number or word that a text begins with.
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
    quote.map_or(json.len(), |at| at + 2)
}

#[cfg(test)]
mod tests;
