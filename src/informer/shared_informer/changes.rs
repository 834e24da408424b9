//! From deltas to the store, and to what is told of it.

use std::sync::Arc;

use crate::informer::{
    Cached, Delta, DeltaKind, DeltaSubject, Indexer, Notification, WatchFailure,
};
use crate::resource::ObjectKey;

/// Whom a notification concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Everybody.
    All,
    /// Handlers that are due for a resync: nothing has changed.
    Resync,
}

/// Brings the store up to date with one delta; says what is to be told of it, if anything.
///
/// # Errors
/// The object has no key; nothing was stored.
pub(super) fn apply<T>(
    store: &Indexer<Cached<T>>,
    key: &ObjectKey,
    delta: &Delta<Cached<T>>,
    in_initial_list: bool,
) -> Result<Option<(Notification<T>, Audience)>, WatchFailure> {
    match (&delta.subject, delta.kind) {
        (subject, DeltaKind::Deleted) => Ok(remove(store, key, subject)),
        (
            DeltaSubject::Object(object),
            DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced | DeltaKind::Sync,
        ) => put(store, object, delta.kind, in_initial_list),
        // Queues make such subjects of deletions only.
        (DeltaSubject::FinalStateUnknown { .. }, _) => Ok(None),
    }
}

fn put<T>(
    store: &Indexer<Cached<T>>,
    object: &Arc<Cached<T>>,
    kind: DeltaKind,
    in_initial_list: bool,
) -> Result<Option<(Notification<T>, Audience)>, WatchFailure> {
    let new = Arc::clone(object);
    let stored = store.put(Arc::clone(object));
    let stored = stored.map_err(|source| WatchFailure::Key {
        key: object.key().clone(),
        version: object.resource_version(),
        source,
    });
    let Some(old) = stored? else {
        let added = Notification::Added {
            object: new,
            in_initial_list,
        };
        return Ok(Some((added, Audience::All)));
    };
    // A relist tells of every object; those that did not change are news to nobody. A server that was restored from a
    // backup gives versions a second time, so equal ones alone prove nothing.
    let same = old.resource_version() == new.resource_version() && old.uid() == new.uid();
    let unchanged = kind == DeltaKind::Replaced && same;
    let audience = if unchanged || kind == DeltaKind::Sync {
        Audience::Resync
    } else {
        Audience::All
    };
    Ok(Some((Notification::Updated { old, new }, audience)))
}

fn remove<T>(
    store: &Indexer<Cached<T>>,
    key: &ObjectKey,
    subject: &DeltaSubject<Cached<T>>,
) -> Option<(Notification<T>, Audience)> {
    let stored = store.remove(key)?;
    let (object, final_state_known) = match subject {
        DeltaSubject::Object(object) => (Arc::clone(object), true),
        DeltaSubject::FinalStateUnknown { last, .. } => {
            (last.clone().unwrap_or_else(|| Arc::clone(&stored)), false)
        }
    };
    let deleted = Notification::Deleted {
        old: stored,
        object,
        final_state_known,
    };
    Some((deleted, Audience::All))
}
