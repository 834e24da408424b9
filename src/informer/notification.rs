//! What handlers and streams are told.

use std::sync::Arc;

use super::Cached;
use crate::resource::ObjectKey;

/// One change of the local copy. The store is at least as new as what a notification tells.
#[derive(Debug)]
pub enum Notification<T> {
    /// An object is there that was not.
    Added {
        /// Its state.
        object: Arc<Cached<T>>,
        /// Whether it was there when the handler began, as opposed to made since.
        in_initial_list: bool,
    },
    /// An object changed, or its present state is told again because of a resync: then `old` and `new` are the same.
    /// An object that was deleted and made again while the watch was away is told as one update with another uid.
    Updated {
        /// The state told before.
        old: Arc<Cached<T>>,
        /// Its state.
        new: Arc<Cached<T>>,
    },
    /// An object is gone.
    Deleted {
        /// The state told before. Whether a handler knows the object is judged by this one.
        old: Arc<Cached<T>>,
        /// Its last state, or the last one known.
        object: Arc<Cached<T>>,
        /// False if the deletion was found out by a relist: the object may have changed before it went
        /// (client-go's `DeletedFinalStateUnknown`).
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
