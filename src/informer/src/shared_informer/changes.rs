//! Applies deltas to the store, and derives the notifications that handlers receive.

use std::sync::Arc;

use crate::resource::ObjectKey;
use crate::{Cached, Delta, DeltaKind, DeltaSubject, Indexer, Notification, WatchFailure};

/// Which handlers receive a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// All handlers and streams.
    All,
    /// Only handlers whose resync is running: the object has not changed.
    Resync,
}

/// Applies one delta to the store, and returns the notification to distribute, if any.
///
/// # Errors
/// The object has no key; the store is unchanged.
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
        // Unreachable: the queue creates this subject only for deletions.
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
    let stored = store
        .put(Arc::clone(object))
        .map_err(|source| WatchFailure::Key {
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
    // A relist queues every object, and handlers need not see those that did not change. A server that was restored from a backup
    // may assign a version a second time, so an equal version alone does not prove that the object is unchanged.
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
