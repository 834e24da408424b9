//! The objects of one reflector: version and time of the last write by name, and a fingerprint of all.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::verify::reference::object_print;
use crate::wire::event::{Event, EventKind, WriteTime};

/// Names are kept as hashes: thousands of reflectors hold the same services.
#[derive(Debug, Default)]
pub struct Objects {
    by_name: HashMap<u64, ObjectState>,
    print: u64,
}

#[derive(Debug, Clone, Copy)]
struct ObjectState {
    version: u64,
    /// When its last write was sent, nanoseconds since the epoch; 0 if unknown.
    sent_ns: u64,
}

impl Objects {
    /// The objects of a list, whose times are unknown.
    pub fn from_list(list: Vec<(String, u64)>) -> Self {
        let mut objects = Self::default();
        for (name, version) in list {
            objects.set(&name, version, 0);
        }
        objects
    }

    /// Keeps an object of an initial state.
    pub fn put(&mut self, name: &str, event: &Event) {
        let sent_ns = event.write.map_or(0, |write| write.sent_ns);
        self.set(name, event.version, sent_ns);
    }

    /// Applies an event. Returns the time of the write that caused it, unless it is that of an earlier write: a change of the status
    /// leaves the annotation as it was, and a deleted object carries that of its last change.
    pub fn apply(&mut self, name: &str, event: &Event) -> Option<WriteTime> {
        let known_ns = match event.kind {
            EventKind::Deleted => {
                if let Some(state) = self.by_name.remove(&hash(name)) {
                    self.print ^= object_print(name, state.version);
                }
                return None;
            }
            _ => self.by_name.get(&hash(name)).map(|state| state.sent_ns),
        };
        self.put(name, event);
        event
            .write
            .filter(|write| known_ns.is_none_or(|known| write.sent_ns > known))
    }

    /// As [`fingerprint`](crate::verify::reference::fingerprint) of names and versions.
    pub fn fingerprint(&self) -> u64 {
        self.print
    }

    fn set(&mut self, name: &str, version: u64, sent_ns: u64) {
        let state = ObjectState { version, sent_ns };
        if let Some(before) = self.by_name.insert(hash(name), state) {
            self.print ^= object_print(name, before.version);
        }
        self.print ^= object_print(name, version);
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
