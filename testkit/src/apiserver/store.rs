//! All objects under one lock and one revision. A write is in the log, and known to the observers, before it is answered.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use super::history::{KindState, range};
use super::json;
use super::kinds::{Catalogue, ObjectKey, ServedKind};
use super::object::{Event, EventType, Object};
use super::patch::Patch;
use super::selector::Selector;
use super::status::Status;

/// Sees every event, under the store's lock.
type Observer = Box<dyn FnMut(&Event) + Send>;

/// The objects of all kinds.
#[derive(Debug)]
pub struct Store {
    catalogue: Arc<Catalogue>,
    state: Mutex<State>,
    /// The revision of the newest write.
    revision: watch::Sender<u64>,
}

pub(super) struct State {
    pub(super) kinds: Vec<KindState>,
    pub(super) revision: u64,
    pub(super) random: Random,
    observers: Vec<Observer>,
    /// The kinds with events that their watches have not been woken for.
    changed: Vec<usize>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// A write, as HTTP requests and tests make it.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The kind's index in the catalogue.
    pub kind_index: usize,
    /// Namespace and name. Of a creation only the namespace counts.
    pub key: ObjectKey,
    /// The part of the object that the write may change.
    pub part: Part,
    /// What is done.
    pub action: Action,
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status, if the kind has a status subresource.
    Whole,
    /// The status; of built-in kinds also labels, annotations and finalizers.
    Status,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates an object.
    Create(Value),
    /// Replaces an object.
    Update(Value),
    /// Patches an object.
    Patch(Patch),
    /// Deletes an object, or marks it as being deleted if it has finalizers.
    Delete(Preconditions),
}

/// What must be true of an object that is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its version, compared as text.
    pub resource_version: Option<String>,
}

impl Write {
    fn new(kind_index: usize, key: ObjectKey, action: Action) -> Self {
        Self {
            kind_index,
            key,
            part: Part::Whole,
            action,
        }
    }

    /// Creates an object in a namespace, which is empty for cluster-scoped kinds.
    #[must_use]
    pub fn create(kind_index: usize, namespace: &str, object: Value) -> Self {
        let key = ObjectKey::new(namespace, "");
        Self::new(kind_index, key, Action::Create(object))
    }

    /// Applies a merge patch.
    #[must_use]
    pub fn merge(kind_index: usize, key: ObjectKey, patch: Value) -> Self {
        Self::new(kind_index, key, Action::Patch(Patch::Merge(patch)))
    }

    /// Deletes an object.
    #[must_use]
    pub fn delete(kind_index: usize, key: ObjectKey) -> Self {
        let action = Action::Delete(Preconditions::default());
        Self::new(kind_index, key, action)
    }
}

impl Store {
    /// An empty store. As in a new cluster, whose etcd begins with revision 1, the first write gets revision 2.
    #[must_use]
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        let revision = 1;
        let state = State {
            kinds: catalogue
                .kinds()
                .iter()
                .map(|_| KindState::new(revision))
                .collect(),
            revision,
            random: Random(RandomState::new().hash_one(0)),
            observers: Vec::new(),
            changed: Vec::new(),
        };
        Self {
            catalogue,
            state: Mutex::new(state),
            revision: watch::Sender::new(revision),
        }
    }

    /// The served kinds.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Performs a write; returns the body of its answer.
    ///
    /// # Errors
    /// kube-apiserver's error.
    pub fn write(&self, write: Write) -> Result<Bytes, Status> {
        let mut state = self.locked();
        let answer = state.apply(&self.catalogue, write);
        self.wake(&mut state);
        answer
    }

    /// Performs several writes, and wakes the watches once. Returns the errors.
    pub fn write_all(&self, writes: impl IntoIterator<Item = Write>) -> Vec<Status> {
        let mut state = self.locked();
        let answers = writes
            .into_iter()
            .map(|write| state.apply(&self.catalogue, write));
        let errors = answers.filter_map(Result::err).collect();
        self.wake(&mut state);
        errors
    }

    /// Deletes what a selector selects, with the options of `target`; returns the objects as they were, and their revision.
    ///
    /// # Errors
    /// The error of the first object that cannot be deleted. Those before it are deleted.
    pub(super) fn delete_collection(
        &self,
        target: &Write,
        selector: &Selector,
    ) -> Result<(Vec<Arc<Object>>, u64), Status> {
        let mut state = self.locked();
        let revision = state.revision;
        let objects = &state.kinds[target.kind_index].objects;
        let selected =
            range(objects, target.key.namespace(), "").filter(|object| selector.matches(object));
        let selected: Vec<_> = selected.cloned().collect();
        let outcome = selected.iter().try_for_each(|object| {
            let key = object.key.clone();
            let write = Write {
                key,
                ..target.clone()
            };
            state.apply(&self.catalogue, write).map(drop)
        });
        self.wake(&mut state);
        outcome.map(|()| (selected, revision))
    }

    /// Stores an object that exists before the first write, and has no revision of its own.
    pub(super) fn put_initial(&self, kind_index: usize, mut object: Value) {
        let kind = self.catalogue.kind(kind_index);
        let mut state = self.locked();
        let key = ObjectKey::new("", json::metadata_text(&object, "name"));
        let object = Object::new(kind, key.clone(), state.revision, &mut object);
        state.kinds[kind_index]
            .objects
            .insert(key, Arc::new(object));
    }

    /// The JSON of one object.
    ///
    /// # Errors
    /// 404.
    pub fn object(&self, kind_index: usize, key: &ObjectKey) -> Result<Bytes, Status> {
        Ok(self.stored(kind_index, key)?.json())
    }

    pub(super) fn stored(&self, kind_index: usize, key: &ObjectKey) -> Result<Arc<Object>, Status> {
        let object = self.locked().kinds[kind_index].objects.get(key).cloned();
        object.ok_or_else(|| Status::not_found(self.catalogue.kind(kind_index), key.name()))
    }

    /// The number of a kind's objects.
    #[must_use]
    pub fn object_count(&self, kind_index: usize) -> usize {
        self.locked().kinds[kind_index].objects.len()
    }

    /// The revision of the newest write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.locked().revision
    }

    /// Lets `observer` see all later events, in their order and before their writes are answered. Returns the revision of the newest
    /// event that it does not see. It must not use the store.
    pub fn observe(&self, observer: impl FnMut(&Event) + Send + 'static) -> u64 {
        let mut state = self.locked();
        state.observers.push(Box::new(observer));
        state.revision
    }

    /// Discards a kind's history.
    pub fn compact(&self, kind_index: usize) {
        let mut state = self.locked();
        let revision = state.revision;
        state.kinds[kind_index].compact(revision);
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Notices when the revision rises.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn wake(&self, state: &mut State) {
        state.changed.sort_unstable();
        state.changed.dedup();
        for kind_index in std::mem::take(&mut state.changed) {
            state.kinds[kind_index].changed.send_replace(());
        }
        self.revision.send_if_modified(|revision| {
            let is_new = *revision != state.revision;
            *revision = state.revision;
            is_new
        });
    }
}

impl State {
    /// Stores the next state of an object, or removes it if `event_type` says so, under the next revision.
    pub(super) fn commit(
        &mut self,
        kind: &ServedKind,
        kind_index: usize,
        key: ObjectKey,
        change: Change,
    ) -> Arc<Object> {
        self.revision += 1;
        let objects = &mut self.kinds[kind_index].objects;
        let (event_type, object, previous) = match change {
            Change::Put(mut value) => {
                let object = Arc::new(Object::new(kind, key.clone(), self.revision, &mut value));
                let previous = objects.insert(key, Arc::clone(&object));
                let event_type = match previous {
                    Some(_) => EventType::Modified,
                    None => EventType::Added,
                };
                (event_type, object, previous)
            }
            Change::Remove(mut value) => {
                let previous = objects.remove(&key);
                let object = Object::new(kind, key, self.revision, &mut value);
                (EventType::Deleted, Arc::new(object), previous)
            }
        };
        let event = Arc::new(Event::new(
            kind_index,
            event_type,
            Arc::clone(&object),
            previous,
        ));
        for observer in &mut self.observers {
            observer(&event);
        }
        self.kinds[kind_index].log(event);
        self.changed.push(kind_index);
        object
    }
}

/// A change that the rules of writing allow.
pub(super) enum Change {
    Put(Value),
    /// The removal of an object, whose last state this is.
    Remove(Value),
}

/// Pseudorandom numbers for uids, names and churn, unfit for secrets: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A version 4 UUID (RFC 9562 §5.4).
    pub(super) fn uuid(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    }
}

/// The current time as Kubernetes writes it: `2026-11-21T08:16:18Z`.
pub(super) fn now_text() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}
