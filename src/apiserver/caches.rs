//! The watch cache of each kind, fed with the store's changes. The store publishes under its lock, so each cache has one writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::storage::{self, Storage};
use super::store::Publisher;
use crate::cache::{CacheWriter, Change, Observer, Retention};
use crate::decode::{ScanError, scan_object};
use crate::resource::{EventKind, FieldTable, Object, ResourceVersion};
use crate::view::{Hub, ServedResource};

/// The gateway's default history.
const RETENTION: Retention = Retention {
    segment_slots: 128,
    events_min: 100,
    events_max: 102_400,
    bytes_max: 256 << 20,
    age_max: Duration::from_secs(75),
};

/// The cache of each kind, by the kind's index in the catalogue.
#[derive(Debug)]
pub(super) struct Caches {
    kinds: Vec<KindCache>,
}

#[derive(Debug)]
struct KindCache {
    writer: CacheWriter,
    fields: FieldTable,
    hub: Arc<Hub>,
}

impl Caches {
    /// Caches of the objects in `storage`, without a history: watches from before would miss events.
    pub(super) fn of(storage: &Storage) -> Self {
        let kinds = storage.catalogue().kinds().iter().enumerate();
        let kinds = kinds.map(|(kind_index, kind)| {
            let hub = Arc::new(Hub::new(&kind.resource));
            let observer = Arc::clone(&hub) as Arc<dyn Observer>;
            let mut writer = CacheWriter::new(kind.resource.clone(), RETENTION, observer);
            let fields = FieldTable::of(&kind.resource.gvr);
            let objects = storage.objects(kind_index, "");
            let objects = objects.filter_map(|(_, bytes)| object(bytes, fields).ok());
            // The list cannot be refused as too old: a new cache is at version 0.
            let filled = writer.replace(objects.collect(), storage.revision(), Instant::now());
            debug_assert!(filled.is_ok(), "the first list fills the cache");
            KindCache {
                writer,
                fields,
                hub,
            }
        });
        Self {
            kinds: kinds.collect(),
        }
    }

    /// Cache and hub of each kind, for reading, by the kind's index.
    pub(super) fn served(&self) -> Vec<ServedResource> {
        let served = |kind: &KindCache| ServedResource {
            cache: Arc::clone(kind.writer.cache()),
            hub: Arc::clone(&kind.hub),
        };
        self.kinds.iter().map(served).collect()
    }
}

impl KindCache {
    /// The change for a cache; `None` for an object that cannot be scanned, which the rules of writing exclude.
    fn change(&self, change: &storage::StoredChange) -> Option<Change> {
        match object(&change.object, self.fields) {
            Ok(object) if change.event == EventKind::Deleted => Some(Change::Delete(object)),
            Ok(object) => Some(Change::Put(object)),
            Err(error) => {
                tracing::error!(key = %change.key, %error, "cannot scan a stored object; its change is lost");
                None
            }
        }
    }
}

/// Scans the stored bytes of an object.
pub(super) fn object(bytes: &[u8], fields: FieldTable) -> Result<Object, ScanError> {
    Ok(Object::new(scan_object(bytes, fields)?, bytes))
}

impl Publisher for Caches {
    fn publish(&mut self, changes: &[storage::StoredChange]) {
        let Some(kind_index) = changes.first().map(|change| change.kind_index) else {
            return;
        };
        let kind = &mut self.kinds[kind_index];
        let changes: Vec<_> = changes
            .iter()
            .filter_map(|change| kind.change(change))
            .collect();
        kind.writer.apply(changes, Instant::now());
    }

    fn progress(&mut self, kind_index: usize, revision: ResourceVersion) {
        let (writer, now) = (&mut self.kinds[kind_index].writer, Instant::now());
        writer.progress(revision, now);
        writer.expire(now);
    }

    fn compact(&mut self, kind_index: usize, revision: ResourceVersion) {
        let writer = &mut self.kinds[kind_index].writer;
        writer.progress(revision, Instant::now());
        writer.forget(revision);
    }
}
