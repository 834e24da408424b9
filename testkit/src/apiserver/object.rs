//! One stored version of one object, its events, and their bytes, which are encoded once and shared by all watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;

use super::json;
use super::kinds::{ObjectKey, ServedKind};

const ADDED_HEAD: &[u8] = br#"{"type":"ADDED","object":"#;
const TAIL: &[u8] = b"}\n";

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object was created, or has come to match a selector.
    Added,
    /// The object was changed.
    Modified,
    /// The object was deleted, or no longer matches a selector.
    Deleted,
}

/// How objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// Their metadata, in this version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// An object at one version.
#[derive(Debug)]
pub struct Object {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its resource version.
    pub version: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// The values of the kind's selectable fields, in their order.
    pub(super) fields: Vec<String>,
    /// The line of an ADDED event, which holds the object's JSON.
    added: Bytes,
    /// Lines of other types and forms. Few are ever asked for.
    lines: Mutex<Vec<(EventType, Form, Bytes)>>,
}

impl Object {
    pub(super) fn new(kind: &ServedKind, key: ObjectKey, version: u64, value: &mut Value) -> Self {
        json::metadata_mut(value).insert("resourceVersion".into(), version.to_string().into());
        let labels = value["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let fields = kind.selectable_fields().iter();
        Self {
            key,
            version,
            labels: labels
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
            fields: fields.map(|field| field.value(value)).collect(),
            added: [ADDED_HEAD, &json::object(kind, value), TAIL]
                .concat()
                .into(),
            lines: Mutex::default(),
        }
    }

    /// Compact JSON of the whole object.
    #[must_use]
    pub fn json(&self) -> Bytes {
        let end = self.added.len() - TAIL.len();
        self.added.slice(ADDED_HEAD.len()..end)
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).unwrap_or_default()
    }

    /// The object in this form, without a newline.
    pub(super) fn body(&self, form: Form) -> Bytes {
        match form {
            Form::Whole => self.json(),
            Form::Metadata(_) => {
                let line = self.line(EventType::Added, form);
                line.slice(ADDED_HEAD.len()..line.len() - TAIL.len())
            }
        }
    }

    /// The line of a watch for an event of this type.
    pub(super) fn line(&self, event_type: EventType, form: Form) -> Bytes {
        if (event_type, form) == (EventType::Added, Form::Whole) {
            return self.added.clone();
        }
        let mut lines = self.lines.lock();
        let known = lines
            .iter()
            .find(|(of_type, of_form, _)| (*of_type, *of_form) == (event_type, form));
        if let Some((_, _, line)) = known {
            return line.clone();
        }
        let head = match event_type {
            EventType::Added => ADDED_HEAD,
            EventType::Modified => br#"{"type":"MODIFIED","object":"#,
            EventType::Deleted => br#"{"type":"DELETED","object":"#,
        };
        let object = match form {
            Form::Whole => self.json(),
            Form::Metadata(version) => json::partial(&self.json(), version),
        };
        let line = Bytes::from([head, &object, TAIL].concat());
        lines.push((event_type, form, line.clone()));
        line
    }
}

/// A change of one object.
#[derive(Debug)]
pub struct Event {
    /// The kind's index in the catalogue.
    pub kind_index: usize,
    /// What happened to the object.
    pub event_type: EventType,
    /// The new state; of a deletion the last one, with the deletion's version.
    pub object: Arc<Object>,
    /// The state before, unless the object was added.
    pub previous: Option<Arc<Object>>,
    /// The previous state with this event's version, for watches whose selector the object leaves.
    left: Mutex<Option<Arc<Object>>>,
}

impl Event {
    pub(super) fn new(
        kind_index: usize,
        event_type: EventType,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) -> Self {
        Self {
            kind_index,
            event_type,
            object,
            previous,
            left: Mutex::default(),
        }
    }

    /// The event's version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.object.version
    }

    /// The line for watches of what `matches` selects; `None` if the event does not concern them (docs/PROTOCOL.md §4.6).
    pub(super) fn line(
        &self,
        kind: &ServedKind,
        form: Form,
        matches: impl Fn(&Object) -> bool,
    ) -> Option<Bytes> {
        let did = self.previous.as_ref().is_some_and(|object| matches(object));
        let does = self.event_type != EventType::Deleted && matches(&self.object);
        match (did, does) {
            (false, false) => None,
            (false, true) => Some(self.object.line(EventType::Added, form)),
            (true, true) => Some(self.object.line(EventType::Modified, form)),
            (true, false) => Some(self.departed(kind).line(EventType::Deleted, form)),
        }
    }

    fn departed(&self, kind: &ServedKind) -> Arc<Object> {
        let Some(previous) = self
            .previous
            .as_ref()
            .filter(|_| self.event_type != EventType::Deleted)
        else {
            return Arc::clone(&self.object);
        };
        let mut left = self.left.lock();
        let left = left.get_or_insert_with(|| {
            let key = previous.key.clone();
            Arc::new(Object::new(
                kind,
                key,
                self.version(),
                &mut previous.value(),
            ))
        });
        Arc::clone(left)
    }
}
