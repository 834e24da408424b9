//! The notifications that handlers and streams receive.

use std::sync::Arc;

use super::Cached;
use crate::resource::ObjectKey;

/// One change of the local copy. The store is at least as new as every delivered notification.
#[derive(Debug)]
pub enum Notification<T> {
    /// An object was added, or is part of the initial state.
    Added {
        /// The object's present state.
        object: Arc<Cached<T>>,
        /// Whether the object belongs to the state that the handler starts with: it was not created since.
        in_initial_list: bool,
    },
    /// An object changed, or a resync delivers its present state again: then `old` and `new` are the same.
    /// An object that was deleted and recreated while the watch was interrupted is delivered as one update with another uid.
    Updated {
        /// The state delivered before.
        old: Arc<Cached<T>>,
        /// The object's present state.
        new: Arc<Cached<T>>,
    },
    /// An object was deleted.
    Deleted {
        /// The state delivered before. [`EventFilter`](super::EventFilter) decides by this state whether a handler knows the object.
        old: Arc<Cached<T>>,
        /// The object's final state, or the last known state.
        object: Arc<Cached<T>>,
        /// False if `object` is only the last known state (client-go's `DeletedFinalStateUnknown`): a relist found the deletion, or
        /// the final state could not be decoded. The object may have changed before it was deleted.
        final_state_known: bool,
    },
}

impl<T> Notification<T> {
    /// The object's key.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Added { object, .. } | Self::Deleted { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
        }
    }
}

impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added {
                object,
                in_initial_list,
            } => Self::Added {
                object: Arc::clone(object),
                in_initial_list: *in_initial_list,
            },
            Self::Updated { old, new } => Self::Updated {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Self::Deleted {
                old,
                object,
                final_state_known,
            } => Self::Deleted {
                old: Arc::clone(old),
                object: Arc::clone(object),
                final_state_known: *final_state_known,
            },
        }
    }
}
