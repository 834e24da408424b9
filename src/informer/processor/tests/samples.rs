//! Objects that are a number, a store of them, and what a handler makes of what it is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::informer::{Cached, Notification};
use crate::resource::{Object, ObjectParts, ResourceVersion};

/// An object whose value is its version.
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

/// A notification in words: `+a1` added, `^a1` of the initial list, `a1>2` updated, `-a1>2` deleted, `?a1>2` final state unknown.
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

/// Objects by name with their versions.
pub(crate) type Held = BTreeMap<String, u64>;

/// Believes what it is told, and objects to what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) held: Held,
}

impl Replay {
    #[track_caller]
    pub(crate) fn told(&mut self, notification: &Notification<u64>) {
        let name = notification.key().name().to_owned();
        let said = word(notification);
        match notification {
            Notification::Added { object, .. } => {
                assert_eq!(self.held.insert(name, ***object), None, "{said}");
            }
            Notification::Updated { old, new } => {
                let held = self.held.insert(name, ***new);
                let held = held.unwrap_or_else(|| panic!("{said}: was not there"));
                assert!(held == ***old && ***old <= ***new, "{said} of {held}");
            }
            Notification::Deleted { old, object, .. } => {
                let held = self.held.remove(&name);
                let held = held.unwrap_or_else(|| panic!("{said}: was not there"));
                assert!(held == ***old && ***old <= ***object, "{said} of {held}");
            }
        }
    }
}

/// What the informer's store would hold; each change is told as it would be.
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

    pub(crate) fn present(&self) -> Vec<Arc<Cached<u64>>> {
        let held = self.held.iter();
        held.map(|(name, &version)| object(name, version)).collect()
    }

    /// Makes or changes an object.
    pub(crate) fn put(&mut self, name: &str) -> Notification<u64> {
        self.version += 1;
        match self.held.insert(name.to_owned(), self.version) {
            Some(old) => updated(name, old, self.version),
            None => added(name, self.version),
        }
    }

    /// Deletes an object that is there.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Notification<u64>> {
        self.version += 1;
        let removed = self.held.remove(name);
        removed.map(|old| deleted(name, old, self.version))
    }

    /// Tells an object's state once more.
    pub(crate) fn again(&self, name: &str) -> Option<Notification<u64>> {
        let version = *self.held.get(name)?;
        Some(updated(name, version, version))
    }
}
