//! Sample objects that hold a number, a model store of them, and a replay that checks notifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resource::{Object, ObjectParts, ResourceVersion};
use crate::{Cached, Notification};

/// An object whose content is its version.
pub(crate) fn object(name: &str, version: u64) -> Arc<Cached<u64>> {
    let parts = ObjectParts {
        namespace: "ns".into(),
        name: name.into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    Arc::new(Cached::new(&Object::new(parts, b"{}"), version))
}

pub(crate) fn added(name: &str, version: u64) -> Notification<u64> {
    Notification::Added {
        object: object(name, version),
        in_initial_list: false,
    }
}

pub(crate) fn initial(name: &str, version: u64) -> Notification<u64> {
    Notification::Added {
        object: object(name, version),
        in_initial_list: true,
    }
}

pub(crate) fn updated(name: &str, old: u64, new: u64) -> Notification<u64> {
    Notification::Updated {
        old: object(name, old),
        new: object(name, new),
    }
}

pub(crate) fn deleted(name: &str, old: u64, version: u64) -> Notification<u64> {
    Notification::Deleted {
        old: object(name, old),
        object: object(name, version),
        final_state_known: true,
    }
}

/// A notification as a short text: `+a1` added, `^a1` added by the initial list, `a1>2` updated, `-a1>2` deleted, `?a1>2` deleted with an
/// unknown final state.
pub(crate) fn word(notification: &Notification<u64>) -> String {
    let name = notification.key().name();
    match notification {
        Notification::Added {
            object,
            in_initial_list,
        } => {
            let sign = if *in_initial_list { '^' } else { '+' };
            format!("{sign}{name}{}", ***object)
        }
        Notification::Updated { old, new } => format!("{name}{}>{}", ***old, ***new),
        Notification::Deleted {
            old,
            object,
            final_state_known,
        } => {
            let sign = if *final_state_known { '-' } else { '?' };
            format!("{sign}{name}{}>{}", ***old, ***object)
        }
    }
}

/// The versions of objects by name.
pub(crate) type Held = BTreeMap<String, u64>;

/// A handler's view of the store: applies notifications, and panics on inconsistent ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) held: Held,
}

impl Replay {
    #[track_caller]
    pub(crate) fn apply(&mut self, notification: &Notification<u64>) {
        let name = notification.key().name().to_owned();
        let text = word(notification);
        match notification {
            Notification::Added { object, .. } => {
                assert_eq!(self.held.insert(name, ***object), None, "{text}");
            }
            Notification::Updated { old, new } => {
                let held = self.held.insert(name, ***new);
                let held = held.unwrap_or_else(|| panic!("{text}: unknown object"));
                assert!(
                    held == ***old && ***old <= ***new,
                    "{text}, but the held version is {held}"
                );
            }
            Notification::Deleted { old, object, .. } => {
                let held = self.held.remove(&name);
                let held = held.unwrap_or_else(|| panic!("{text}: unknown object"));
                assert!(
                    held == ***old && ***old <= ***object,
                    "{text}, but the held version is {held}"
                );
            }
        }
    }
}

/// A model of the informer's store. Each change returns the notification that the informer would distribute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) held: Held,
    version: u64,
}

impl Store {
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let mut store = Self::default();
        for name in names {
            store.put(&name);
        }
        store
    }

    pub(crate) fn objects(&self) -> Vec<Arc<Cached<u64>>> {
        let held = self.held.iter();
        held.map(|(name, &version)| object(name, version)).collect()
    }

    /// Creates or updates an object.
    pub(crate) fn put(&mut self, name: &str) -> Notification<u64> {
        self.version += 1;
        match self.held.insert(name.to_owned(), self.version) {
            Some(old) => updated(name, old, self.version),
            None => added(name, self.version),
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Notification<u64>> {
        self.version += 1;
        let removed = self.held.remove(name);
        removed.map(|old| deleted(name, old, self.version))
    }

    /// The notification of a resync: an update of an object to its present state.
    pub(crate) fn again(&self, name: &str) -> Option<Notification<u64>> {
        let version = *self.held.get(name)?;
        Some(updated(name, version, version))
    }
}
