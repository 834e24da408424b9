//! The informer's sink: decodes and transforms the driver's objects, and puts deltas into the queue.

use std::any::Any;
use std::fmt;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::Cached;
use super::delta_fifo::{DeltaFifo, QueueError};
use super::failure::{FailedStep, TransformError, WatchFailure};
use super::failure_recorder::FailureRecorder;
use super::key::KeyError;
use super::list_watch::ListWatch;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};
use crate::upstream::sink::{LateChange, Sink, UpstreamWentBack};

/// Changes an object before it is queued, for example to drop fields that the program does not read (client-go's `TransformFunc`). The
/// store holds the changed object.
pub type Transform<T> = Arc<dyn Fn(&mut Cached<T>) -> Result<(), TransformError> + Send + Sync>;

/// Decodes and transforms objects before they are queued.
pub(super) struct ObjectPipeline<T> {
    pub(super) list_watch: ListWatch<T>,
    pub(super) transform: Option<Transform<T>>,
}

/// Fills a queue of deltas.
///
/// Each object is decoded on arrival and its bytes are dropped, so that initial data is never in memory twice.
pub(super) struct QueueSink<T> {
    queue: Arc<DeltaFifo<Cached<T>>>,
    pipeline: ObjectPipeline<T>,
    recorder: Arc<FailureRecorder>,
    /// Initial data that is not complete yet.
    initial: HashMap<ObjectKey, ListedObject<T>, RandomState>,
    /// Changes that will be queued together, in order of arrival.
    batch: Vec<QueuedChange<T>>,
    /// All changes up to this version were received.
    version: Option<ResourceVersion>,
    /// The objects that upstream has at `version`, whether they could be decoded or not, by the hash of their key.
    received: HashMap<u64, ReceivedObject>,
    listed: HashMap<u64, ReceivedObject>,
    hashes: RandomState,
}

/// What is remembered of each object, to tell repetitions from news, and to compare the state with upstream's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReceivedObject {
    version: ResourceVersion,
    uid: u64,
}

/// An object of the initial data.
enum ListedObject<T> {
    Decoded(Arc<Cached<T>>),
    /// This state cannot be decoded: the store keeps the last state of the object with this uid.
    Failed(Box<str>),
}

enum QueuedChange<T> {
    Put(EventKind, Arc<Cached<T>>),
    /// The object was deleted, and its final state cannot be decoded.
    Gone(ObjectKey),
}

impl<T: Send + Sync + 'static> QueueSink<T> {
    pub(super) fn new(
        queue: Arc<DeltaFifo<Cached<T>>>,
        pipeline: ObjectPipeline<T>,
        recorder: Arc<FailureRecorder>,
    ) -> Self {
        Self {
            queue,
            pipeline,
            recorder,
            initial: HashMap::default(),
            batch: Vec::new(),
            version: None,
            received: HashMap::default(),
            listed: HashMap::default(),
            hashes: RandomState::default(),
        }
    }

    /// Decodes and transforms an object. Reports the failure and returns `None` if that is not possible.
    fn make(&self, object: &Object) -> Option<Arc<Cached<T>>> {
        match self.pipeline.make(object) {
            Ok(cached) => Some(Arc::new(cached)),
            Err(failure) => {
                self.recorder.report(&failure);
                None
            }
        }
    }

    fn push(&self, change: QueuedChange<T>) {
        let (kind, object) = match change {
            QueuedChange::Put(kind, object) => (kind, object),
            QueuedChange::Gone(key) => return self.delete_by_name(&key),
        };
        let queued = match kind {
            EventKind::Added => self.queue.add(Arc::clone(&object)),
            EventKind::Modified => self.queue.update(Arc::clone(&object)),
            EventKind::Deleted => self.queue.delete(Arc::clone(&object)),
        };
        match queued {
            // A closed queue has no consumer left.
            Ok(()) | Err(QueueError::Closed) => {}
            Err(QueueError::Key(source)) => {
                self.report_key_failure(&object, source);
                if kind == EventKind::Deleted {
                    self.delete_by_name(object.key());
                }
            }
        }
    }

    /// Queues a deletion of which only namespace and name are known. The queue may use other keys.
    fn delete_by_name(&self, key: &ObjectKey) {
        // The only error is a closed queue, which has no consumer left.
        let _ = self.queue.delete_where(key, |last| last.key() == key);
    }

    fn report_key_failure(&self, object: &Cached<T>, source: KeyError) {
        self.recorder.report(&WatchFailure::Key {
            key: object.key().clone(),
            version: object.resource_version(),
            source,
        });
    }

    fn hash_of(&self, key: &str) -> u64 {
        self.hashes.hash_one(key)
    }

    fn received(&self, object: &Object) -> ReceivedObject {
        ReceivedObject {
            version: object.resource_version(),
            uid: self.hashes.hash_one(object.uid()),
        }
    }

    /// Records an event of the held version or a newer one. Returns false if it was received before.
    fn is_new(&mut self, kind: EventKind, object: &Object) -> bool {
        let key = self.hash_of(ObjectKey::from(object.key()).as_str());
        let new = self.received(object);
        let held = self.received.get(&key).copied();
        let is_repeated = match kind {
            EventKind::Added | EventKind::Modified => held == Some(new),
            // A uid does not come back, so the deletion of a held object is new, whatever its version.
            EventKind::Deleted => held.is_none_or(|held| held.uid != new.uid),
        };
        if is_repeated && self.version.is_some_and(|version| new.version <= version) {
            return false;
        }
        self.version = self.version.max(Some(new.version));
        match kind {
            EventKind::Added | EventKind::Modified => self.received.insert(key, new),
            EventKind::Deleted => self.received.remove(&key),
        };
        true
    }

    fn queue(&mut self, kind: EventKind, object: &Object) {
        match self.make(object) {
            Some(decoded) => self.batch.push(QueuedChange::Put(kind, decoded)),
            None if kind == EventKind::Deleted => {
                self.batch.push(QueuedChange::Gone(object.key().into()));
            }
            None => {}
        }
    }
}

impl<T> ObjectPipeline<T> {
    fn make(&self, object: &Object) -> Result<Cached<T>, WatchFailure> {
        let (key, version) = (object.key(), object.resource_version());
        let decoded = catch_panic(object, FailedStep::Decode, || self.list_watch.make(object))?
            .map_err(|source| WatchFailure::Undecodable {
                key: key.into(),
                version,
                source,
            })?;
        let mut cached = Cached::new(object, decoded);
        if let Some(transform) = &self.transform {
            let transformed =
                catch_panic(object, FailedStep::Transform, || transform(&mut cached))?;
            transformed.map_err(|source| WatchFailure::Transform {
                key: key.into(),
                version,
                source,
            })?;
        }
        Ok(cached)
    }
}

/// Runs user code and turns a panic into a failure. `AssertUnwindSafe` is sound, because a half-changed object is dropped.
fn catch_panic<R>(
    object: &Object,
    step: FailedStep,
    run: impl FnOnce() -> R,
) -> Result<R, WatchFailure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| WatchFailure::Panicked {
        key: object.key().into(),
        version: object.resource_version(),
        step,
        message: panic_message(&*panic),
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

impl<T: Send + Sync + 'static> Sink for QueueSink<T> {
    fn restart(&mut self) {
        self.initial = HashMap::default();
        self.listed = HashMap::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        let key = ObjectKey::from(object.key());
        let hash = self.hash_of(key.as_str());
        if kind == EventKind::Deleted {
            self.initial.remove(&key);
            self.listed.remove(&hash);
            return;
        }
        self.listed.insert(hash, self.received(&object));
        let listed = match self.make(&object) {
            Some(decoded) => ListedObject::Decoded(decoded),
            None => ListedObject::Failed(object.uid().into()),
        };
        self.initial.insert(key, listed);
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        if let Some(held) = self.version.filter(|held| version < *held) {
            let listed = version;
            self.recorder
                .report(&WatchFailure::WentBack { held, listed });
        }
        self.version = Some(version);
        self.received = std::mem::take(&mut self.listed);
        let mut objects = Vec::with_capacity(self.initial.len());
        let mut kept: HashMap<ObjectKey, Box<str>, RandomState> = HashMap::default();
        for (key, listed) in std::mem::take(&mut self.initial) {
            let object = match listed {
                ListedObject::Decoded(object) => object,
                ListedObject::Failed(uid) => {
                    kept.insert(key, uid);
                    continue;
                }
            };
            match self.queue.key_of(&object) {
                Ok(_) => objects.push(object),
                Err(source) => {
                    self.report_key_failure(&object, source);
                    kept.insert(key, object.uid().into());
                }
            }
        }
        // The result can be ignored: objects without a key were removed above, and a closed queue has no consumer left.
        let _ = self.queue.replace_except(objects, |last| {
            kept.get(last.key()).is_some_and(|uid| **uid == *last.uid())
        });
        let mut counts = self.recorder.counts().lock();
        counts.replaced += 1;
        counts.last_version = self.version;
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        if self.is_new(kind, &object) {
            self.queue(kind, &object);
        } else {
            self.recorder.counts().lock().ignored += 1;
        }
    }

    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        let key = self.hash_of(ObjectKey::from(object.key()).as_str());
        let late = self.received(object);
        let held = self.received.get(&key).copied();
        match (kind, held) {
            (EventKind::Deleted, Some(held)) if held.uid == late.uid => {
                self.received.remove(&key);
                self.queue(kind, object);
                LateChange::Applied
            }
            (EventKind::Deleted, None) => LateChange::Known,
            (_, Some(held)) if held.version >= late.version => LateChange::Known,
            (_, Some(_) | None) => LateChange::Missing,
        }
    }

    fn object_count(&self) -> Option<usize> {
        Some(self.received.len())
    }

    fn holds(&self, versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        versions.iter().all(|(key, version)| {
            let held = self.received.get(&self.hash_of(key.as_str()));
            held.is_some_and(|held| held.version == *version)
        })
    }

    fn publish(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let events = batch.len() as u64;
        for change in batch {
            self.push(change);
        }
        let mut counts = self.recorder.counts().lock();
        counts.events += events;
        counts.last_version = self.version;
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.version = Some(version);
        self.recorder.counts().lock().last_version = self.version;
    }

    async fn ready(&mut self) -> Result<(), UpstreamWentBack> {
        self.queue.writable().await;
        Ok(())
    }
}

impl<T> fmt::Debug for QueueSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSink")
            .field("initial", &self.initial.len())
            .field("batch", &self.batch.len())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
