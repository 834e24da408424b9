//! What the API server has stored, at every version: what clients are measured by.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use kube_fanout_testkit::apiserver::object::{Event, EventType};

/// Versions by key: the objects that a client should have.
pub(crate) type Objects = BTreeMap<String, u64>;

/// What a client asks for: all objects, or those with this value of the label `side`.
pub(crate) type Filter = Option<&'static str>;

/// One history for each life of the API server's state: a restored backup begins another, whose versions mean something else.
#[derive(Clone, Debug)]
pub(crate) struct History(Arc<Mutex<Vec<Versions>>>);

impl Default for History {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![Versions::default()])))
    }
}

#[derive(Debug, Default)]
struct Versions {
    /// The changes of each object, oldest first; without a state after a deletion.
    by_key: BTreeMap<String, Vec<(u64, Option<State>)>>,
    newest: u64,
}

/// An object at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) side: String,
    pub(crate) count: String,
}

impl State {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            side: text(&object["metadata"]["labels"]["side"]),
            count: text(&object["data"]["count"]),
        }
    }

    pub(crate) fn is_wanted(&self, filter: Filter) -> bool {
        filter.is_none_or(|side| self.side == side)
    }
}

impl History {
    /// Adds a write to the current life.
    pub(crate) fn record(&self, event: &Event) {
        let mut lives = self.0.lock();
        let Some(versions) = lives.last_mut() else {
            return;
        };
        versions.newest = event.version();
        let object: Value = serde_json::from_slice(&event.object.json()).unwrap();
        // Changes of other resources count for the newest version only.
        if object["kind"] != "ConfigMap" {
            return;
        }
        let state = (event.event_type != EventType::Deleted).then(|| State::of(&object));
        let key = event.object.key.as_str().to_owned();
        let changes = versions.by_key.entry(key).or_default();
        changes.push((event.version(), state));
    }

    /// The API server has lost everything.
    pub(crate) fn begin_again(&self) {
        self.0.lock().push(Versions::default());
    }

    /// The current life.
    pub(crate) fn life(&self) -> usize {
        self.0.lock().len() - 1
    }

    /// The current life and its newest version.
    pub(crate) fn newest(&self) -> (usize, u64) {
        let lives = self.0.lock();
        (lives.len() - 1, lives[lives.len() - 1].newest)
    }

    /// Whether the API server has given this version to a write.
    pub(crate) fn has_reached(&self, (life, version): (usize, u64)) -> bool {
        version <= self.0.lock()[life].newest.max(1)
    }

    /// Whether an object exists now.
    pub(crate) fn exists(&self, key: &str) -> bool {
        let lives = self.0.lock();
        let last = lives[lives.len() - 1]
            .by_key
            .get(key)
            .and_then(|changes| changes.last());
        last.is_some_and(|(_, state)| state.is_some())
    }

    /// The objects of a version.
    pub(crate) fn at(&self, (life, version): (usize, u64), filter: Filter) -> Objects {
        let lives = self.0.lock();
        let mut found = Objects::new();
        for (key, changes) in &lives[life].by_key {
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
    pub(crate) fn has_ended(&self, key: &str, (life, after): (usize, u64), filter: Filter) -> bool {
        let lives = self.0.lock();
        let changes = lives[life].by_key.get(key).into_iter().flatten();
        changes
            .filter(|(at, _)| *at > after)
            .any(|(_, state)| state.as_ref().is_none_or(|state| !state.is_wanted(filter)))
    }

    /// What became of an object after a version, for a message.
    pub(crate) fn changes_after(&self, key: &str, (life, after): (usize, u64)) -> String {
        let lives = self.0.lock();
        let changes = lives[life].by_key.get(key).into_iter().flatten();
        let changes: Vec<_> = changes.filter(|(at, _)| *at > after).collect();
        format!("{changes:?}")
    }

    /// What became of an object at exactly this version.
    pub(crate) fn change(&self, key: &str, (life, version): (usize, u64)) -> Option<Option<State>> {
        let lives = self.0.lock();
        let changes = lives[life].by_key.get(key)?;
        let found = changes.iter().find(|(at, _)| *at == version)?;
        Some(found.1.clone())
    }
}
