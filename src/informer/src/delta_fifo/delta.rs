//! One queued change of one object.

use std::sync::Arc;

use crate::resource::ObjectKey;

/// What happened to an object (client-go's `DeltaType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaKind {
    /// The watch reported it as added.
    Added,
    /// The watch reported it as modified.
    Updated,
    /// It was deleted: the watch reported that, or a list no longer contains it.
    Deleted,
    /// A list contains it. Whether it changed since the previous list is not known.
    Replaced,
    /// Nothing happened: a resync delivers the known state again.
    Sync,
}

/// The object of a delta.
#[derive(Debug)]
pub enum DeltaSubject<V> {
    /// The state after the change; for a deletion the final state.
    Object(Arc<V>),
    /// The object was deleted, and its final state was not seen (client-go's `DeletedFinalStateUnknown`).
    FinalStateUnknown {
        /// The object's key in the queue.
        key: ObjectKey,
        /// The last known state, which may be outdated.
        last: Option<Arc<V>>,
    },
}

impl<V> DeltaSubject<V> {
    /// The newest known state.
    #[must_use]
    pub const fn object(&self) -> Option<&Arc<V>> {
        match self {
            Self::Object(object) => Some(object),
            Self::FinalStateUnknown { last, .. } => last.as_ref(),
        }
    }
}

impl<V> Clone for DeltaSubject<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::FinalStateUnknown { key, last } => Self::FinalStateUnknown {
                key: key.clone(),
                last: last.clone(),
            },
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Delta<V> {
    /// What happened.
    pub kind: DeltaKind,
    /// The object.
    pub subject: DeltaSubject<V>,
}

impl<V> Delta<V> {
    /// A change, with the state that it led to.
    #[must_use]
    pub const fn new(kind: DeltaKind, object: Arc<V>) -> Self {
        Self {
            kind,
            subject: DeltaSubject::Object(object),
        }
    }

    /// Whether this and `newer`, which follows it, can be one delta: both are deletions.
    pub(super) fn repeats(&self, newer: &Self) -> bool {
        self.kind == DeltaKind::Deleted && newer.kind == DeltaKind::Deleted
    }

    /// Whether this is a deletion whose final state was not seen.
    pub(super) const fn is_final_state_unknown(&self) -> bool {
        matches!(self.subject, DeltaSubject::FinalStateUnknown { .. })
    }
}

impl<V> Clone for Delta<V> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            subject: self.subject.clone(),
        }
    }
}
