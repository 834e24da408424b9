//! One change of one object, as it waits in the queue.

use std::sync::Arc;

use crate::resource::ObjectKey;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaKind {
    /// The watch says that it is new.
    Added,
    /// The watch says that it changed.
    Updated,
    /// It is gone: the watch says so, or a list does not have it any more.
    Deleted,
    /// A list has it. Whether it changed since the last one is not known.
    Replaced,
    /// Nothing: the known state is told again.
    Sync,
}

/// What a delta is about.
#[derive(Debug)]
pub enum DeltaSubject<V> {
    /// The state after the change; of a deletion the last one.
    Object(Arc<V>),
    /// Gone without its last state being seen (client-go's `DeletedFinalStateUnknown`).
    FinalStateUnknown {
        /// Which object.
        key: ObjectKey,
        /// The last state that was seen; it may be outdated.
        last: Option<Arc<V>>,
    },
}

impl<V> DeltaSubject<V> {
    /// The newest state that is known.
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
    /// To what.
    pub subject: DeltaSubject<V>,
}

impl<V> Delta<V> {
    /// A change with the state it led to.
    #[must_use]
    pub const fn new(kind: DeltaKind, object: Arc<V>) -> Self {
        Self {
            kind,
            subject: DeltaSubject::Object(object),
        }
    }

    /// Whether this says nothing that `newer`, which follows it, does not say: both are deletions.
    pub(super) fn repeats(&self, newer: &Self) -> bool {
        self.kind == DeltaKind::Deleted && newer.kind == DeltaKind::Deleted
    }

    /// Whether the last state is among what is not known.
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
