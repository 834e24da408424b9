//! What the API server has stored, at every version: what clients are measured by.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::apiserver::storage::StoredChange;
use crate::apiserver::store::Publisher;
use crate::resource::{EventKind, ResourceVersion};

/// Versions by key: the objects that a client should have.
pub(super) type Objects = BTreeMap<String, u64>;

/// What a client asks for: all objects, or those with this value of the label `side`.
pub(super) type Filter = Option<&'static str>;

#[derive(Clone, Debug, Default)]
pub(super) struct History(Arc<Mutex<Versions>>);

#[derive(Debug, Default)]
struct Versions {
    /// The changes of each object, oldest first; without a state after a deletion.
    by_key: BTreeMap<String, Vec<(u64, Option<State>)>>,
    newest: u64,
}

/// An object at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) side: String,
    pub(super) count: String,
}

impl State {
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            side: text(&object["metadata"]["labels"]["side"]),
            count: text(&object["data"]["count"]),
        }
    }

    pub(super) fn is_wanted(&self, filter: Filter) -> bool {
        filter.is_none_or(|side| self.side == side)
    }
}

impl History {
    /// The newest version of an object.
    pub(super) fn newest(&self) -> u64 {
        self.0.lock().newest
    }

    /// Whether an object exists now.
    pub(super) fn exists(&self, key: &str) -> bool {
        let versions = self.0.lock();
        let last = versions.by_key.get(key).and_then(|changes| changes.last());
        last.is_some_and(|(_, state)| state.is_some())
    }

    /// The objects of a version.
    pub(super) fn at(&self, version: u64, filter: Filter) -> Objects {
        let versions = self.0.lock();
        let mut found = Objects::new();
        for (key, changes) in &versions.by_key {
            let past = changes.partition_point(|(at, _)| *at <= version);
            if let Some((at, Some(state))) = past.checked_sub(1).map(|last| &changes[last])
                && state.is_wanted(filter)
            {
                found.insert(key.clone(), *at);
            }
        }
        found
    }

    /// Whether an object was deleted after a version, or was changed into one that the client has not asked for.
    pub(super) fn has_ended(&self, key: &str, after: u64, filter: Filter) -> bool {
        let versions = self.0.lock();
        let changes = versions.by_key.get(key).into_iter().flatten();
        changes
            .filter(|(at, _)| *at > after)
            .any(|(_, state)| state.as_ref().is_none_or(|state| !state.is_wanted(filter)))
    }

    /// What became of an object after a version, for a message.
    pub(super) fn changes_after(&self, key: &str, after: u64) -> String {
        let versions = self.0.lock();
        let changes = versions.by_key.get(key).into_iter().flatten();
        let changes: Vec<_> = changes.filter(|(at, _)| *at > after).collect();
        format!("{changes:?}")
    }

    /// What became of an object at exactly this version.
    pub(super) fn change(&self, key: &str, version: u64) -> Option<Option<State>> {
        let versions = self.0.lock();
        let changes = versions.by_key.get(key)?;
        let found = changes.iter().find(|(at, _)| *at == version)?;
        Some(found.1.clone())
    }
}

impl Publisher for History {
    fn publish(&mut self, changes: &[StoredChange]) {
        let mut versions = self.0.lock();
        for change in changes {
            let object: Value = serde_json::from_slice(&change.object).unwrap();
            let state = (change.event != EventKind::Deleted).then(|| State::of(&object));
            let (key, at) = (change.key.as_str().to_owned(), change.version.0);
            versions.newest = at;
            versions.by_key.entry(key).or_default().push((at, state));
        }
    }

    fn progress(&mut self, _: usize, _: ResourceVersion) {}

    fn compact(&mut self, _: usize, _: ResourceVersion) {}
}
