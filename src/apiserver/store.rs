//! Makes the storage usable by concurrent tasks: one lock, a clock, a source of uids, and publishers that receive every change in
//! the order of revisions. No code waits while it holds the lock.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::kinds::Catalogue;
use super::storage::{Stamp, Storage, StoredChange, WriteOutcome, WriteTarget};
use crate::protocol::status::Status;
use crate::resource::{ObjectKey, ResourceVersion};

/// Receives changes in the order of revisions, under the store's lock. A change has been published before its writer gets the
/// response.
pub trait Publisher: Send + fmt::Debug {
    /// Receives changes of one kind, at least one, in the order of their revisions.
    fn publish(&mut self, changes: &[StoredChange]);

    /// The kind has no further changes up to this revision.
    fn progress(&mut self, kind_index: usize, revision: ResourceVersion);

    /// The kind's history up to this revision is to be discarded.
    fn compact(&mut self, kind_index: usize, revision: ResourceVersion);
}

/// Storage and publishers behind one lock.
#[derive(Debug)]
pub struct Store {
    inner: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    storage: Storage,
    publishers: Vec<Box<dyn Publisher>>,
    entropy: Entropy,
}

impl Store {
    /// A store with one publisher. The publisher must already have the objects in `storage`.
    #[must_use]
    pub fn new(storage: Storage, publisher: Box<dyn Publisher>) -> Self {
        let seed = RandomState::new().hash_one(0);
        Self {
            inner: Mutex::new(StoreState {
                storage,
                publishers: vec![publisher],
                entropy: Entropy(seed),
            }),
        }
    }

    /// Performs a write, publishes its change, and returns the body of the response.
    ///
    /// # Errors
    /// The error of the write.
    pub fn write(
        &self,
        write: impl FnOnce(&mut Storage, Stamp<'_>) -> Result<WriteOutcome, Status>,
    ) -> Result<Bytes, Status> {
        let inner = &mut *self.locked();
        let stamp = inner.entropy.stamp();
        let outcome = write(&mut inner.storage, stamp.borrowed())?;
        if let Some(change) = &outcome.change {
            inner.publish(std::slice::from_ref(change));
        }
        Ok(outcome.answer)
    }

    /// Performs several writes under one lock, publishes their changes kind by kind, and returns the errors of refused writes.
    pub fn write_all<W>(&self, writes: impl IntoIterator<Item = W>) -> Vec<Status>
    where
        W: FnOnce(&mut Storage, Stamp<'_>) -> Result<WriteOutcome, Status>,
    {
        let inner = &mut *self.locked();
        let (mut changes, mut refused) = (Vec::new(), Vec::new());
        for write in writes {
            let stamp = inner.entropy.stamp();
            match write(&mut inner.storage, stamp.borrowed()) {
                Ok(outcome) => changes.extend(outcome.change),
                Err(refusal) => refused.push(refusal),
            }
        }
        // The sort is stable, so the changes of a kind stay in the order of revisions.
        changes.sort_by_key(|change| change.kind_index);
        for changes in changes.chunk_by(|one, next| one.kind_index == next.kind_index) {
            inner.publish(changes);
        }
        refused
    }

    /// Adds a publisher, which receives all later changes, after the other publishers. Returns the revision of the newest change
    /// that it does not receive.
    pub fn add_publisher(&self, publisher: Box<dyn Publisher>) -> ResourceVersion {
        let inner = &mut *self.locked();
        inner.publishers.push(publisher);
        inner.storage.revision()
    }

    /// Adds a publisher that `publisher` makes from the storage as it is. It receives all later changes.
    pub fn add_replica(&self, publisher: impl FnOnce(&Storage) -> Box<dyn Publisher>) {
        let inner = &mut *self.locked();
        let publisher = publisher(&inner.storage);
        inner.publishers.push(publisher);
    }

    /// Deletes the objects of a collection for which `is_selected` is true, and returns the list of them.
    ///
    /// # Errors
    /// The error of the first object that cannot be deleted. Objects before it are deleted.
    pub fn delete_collection(
        &self,
        target: &WriteTarget,
        is_selected: &dyn Fn(&Bytes) -> bool,
    ) -> Result<Bytes, Status> {
        let inner = &mut *self.locked();
        let stamp = inner.entropy.stamp();
        let (answer, changes) =
            inner
                .storage
                .delete_collection(target, is_selected, stamp.borrowed());
        if !changes.is_empty() {
            inner.publish(&changes);
        }
        answer
    }

    /// The bytes of one object.
    ///
    /// # Errors
    /// 404 if there is no such object.
    pub fn object(&self, kind_index: usize, key: &ObjectKey) -> Result<Bytes, Status> {
        self.locked().storage.object(kind_index, key).cloned()
    }

    /// The served kinds.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(self.locked().storage.catalogue())
    }

    /// The number of objects of a kind.
    #[must_use]
    pub fn object_count(&self, kind_index: usize) -> usize {
        self.locked().storage.object_count(kind_index)
    }

    /// Advances the kind's readers to the global revision and returns it; for consistent reads.
    pub fn reached(&self, kind_index: usize) -> ResourceVersion {
        let inner = &mut *self.locked();
        let revision = inner.storage.revision();
        inner.progress(kind_index, revision);
        revision
    }

    /// Advances the readers of all kinds to the global revision; called periodically for kinds that are not written to.
    pub fn progress_all(&self) {
        let inner = &mut *self.locked();
        let revision = inner.storage.revision();
        for kind_index in 0..inner.storage.catalogue().kinds().len() {
            inner.progress(kind_index, revision);
        }
    }

    /// Discards a kind's history up to the global revision.
    pub fn compact(&self, kind_index: usize) {
        let inner = &mut *self.locked();
        let revision = inner.storage.revision();
        for publisher in &mut inner.publishers {
            publisher.compact(kind_index, revision);
        }
    }

    /// A panic under the lock may have lost the publication of a change, but the stored objects are complete, and tests fail on the panic.
    fn locked(&self) -> MutexGuard<'_, StoreState> {
        self.inner.lock()
    }
}

impl StoreState {
    fn publish(&mut self, changes: &[StoredChange]) {
        for publisher in &mut self.publishers {
            publisher.publish(changes);
        }
    }

    fn progress(&mut self, kind_index: usize, revision: ResourceVersion) {
        for publisher in &mut self.publishers {
            publisher.progress(kind_index, revision);
        }
    }
}

/// An owned [`Stamp`].
struct OwnedStamp {
    now: String,
    uid: String,
    entropy: u64,
}

impl OwnedStamp {
    fn borrowed(&self) -> Stamp<'_> {
        Stamp {
            now: &self.now,
            uid: &self.uid,
            entropy: self.entropy,
        }
    }
}

/// A pseudorandom generator for uids and names, unfit for secrets: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Entropy(pub(super) u64);

impl Entropy {
    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A version 4 UUID (RFC 9562 §5.4).
    pub(super) fn uuid(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-")
    }

    fn stamp(&mut self) -> OwnedStamp {
        OwnedStamp {
            now: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uid: self.uuid(),
            entropy: self.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::Catalogue;
    use super::super::storage::{Preconditions, WritablePart, WriteMode};
    use super::*;

    #[derive(Debug)]
    struct Recorder(Arc<Mutex<Vec<u64>>>);

    impl Publisher for Recorder {
        fn publish(&mut self, changes: &[StoredChange]) {
            for change in changes {
                self.0.lock().push(change.version.0);
            }
        }

        fn progress(&mut self, _: usize, _: ResourceVersion) {}

        fn compact(&mut self, _: usize, _: ResourceVersion) {}
    }

    #[test]
    fn changes_of_many_writers_are_published_in_revision_order() {
        let versions = Arc::new(Mutex::default());
        let storage = Storage::new(Arc::new(Catalogue::new(&[])));
        let store = Store::new(storage, Box::new(Recorder(Arc::clone(&versions))));
        std::thread::scope(|scope| {
            for kind_index in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    let key = ObjectKey::new("ns", "a");
                    let target = WriteTarget {
                        kind_index,
                        key,
                        part: WritablePart::Whole,
                        mode: WriteMode::Keep,
                    };
                    for _ in 0..50 {
                        let body = json!({"metadata": {"name": "a"}});
                        store
                            .write(|storage, stamp| storage.create(&target, body, stamp))
                            .unwrap();
                        store
                            .write(|storage, stamp| {
                                storage.delete(&target, &Preconditions::default(), stamp)
                            })
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(*versions.lock(), (2..402).collect::<Vec<_>>());
    }

    #[test]
    fn uids_are_version_4_and_differ() {
        let mut entropy = Entropy(1);
        let uids: std::collections::BTreeSet<_> = (0..1000).map(|_| entropy.uuid()).collect();
        assert_eq!(uids.len(), 1000);
        for uid in uids {
            assert_eq!((uid.len(), uid.as_bytes()[14]), (36, b'4'), "{uid}");
            assert!(b"89ab".contains(&uid.as_bytes()[19]), "{uid}");
        }
    }
}
