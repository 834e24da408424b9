//! The informer's sink: decodes and transforms the driver's objects, and puts deltas into the queue.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::Cached;
use super::delta_fifo::{DeltaFifo, QueueError};
use super::failure::{FailedStep, TransformError, WatchFailure};
use super::failure_recorder::FailureRecorder;
use super::key::KeyError;
use super::list_watch::ListWatch;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};
use crate::upstream::sink::{Sink, UpstreamWentBack};

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
    /// Objects changed at `version`. An event of the same version and key is a repetition; one of another key is part of the same
    /// transaction. Empty if `version` comes from a list or a bookmark.
    changed_at_version: HashSet<ObjectKey, RandomState>,
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
            changed_at_version: HashSet::default(),
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

    /// Records the event's version. Returns false if the event was received before.
    fn is_new(&mut self, object: &Object) -> bool {
        let version = object.resource_version();
        match self
            .version
            .map_or(Ordering::Greater, |held| version.cmp(&held))
        {
            Ordering::Less => return false,
            // The version comes from a list or a bookmark, which covers all changes up to its version.
            Ordering::Equal if self.changed_at_version.is_empty() => return false,
            Ordering::Equal => {}
            Ordering::Greater => self.set_version(version),
        }
        self.changed_at_version.insert(object.key().into())
    }

    /// Records that all changes up to this version were received.
    fn set_version(&mut self, version: ResourceVersion) {
        self.version = Some(version);
        self.changed_at_version.clear();
    }
}

impl<T> ObjectPipeline<T> {
    fn make(&self, object: &Object) -> Result<Cached<T>, WatchFailure> {
        let (key, version) = (object.key(), object.resource_version());
        let decoded = catch_panic(object, FailedStep::Decode, || self.list_watch.make(object))?;
        let decoded = decoded.map_err(|source| WatchFailure::Undecodable {
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
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

impl<T: Send + Sync + 'static> Sink for QueueSink<T> {
    fn restart(&mut self) {
        self.initial = HashMap::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        if kind == EventKind::Deleted {
            self.initial.remove(&ObjectKey::from(object.key()));
            return;
        }
        let listed = match self.make(&object) {
            Some(decoded) => ListedObject::Decoded(decoded),
            None => ListedObject::Failed(object.uid().into()),
        };
        self.initial.insert(object.key().into(), listed);
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        if let Some(held) = self.version.filter(|held| version < *held) {
            let listed = version;
            self.recorder
                .report(&WatchFailure::WentBack { held, listed });
        }
        self.set_version(version);
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
        let is_kept =
            |last: &Cached<T>| kept.get(last.key()).is_some_and(|uid| **uid == *last.uid());
        let _ = self.queue.replace_except(objects, is_kept);
        let mut counts = self.recorder.counts().lock();
        counts.replaced += 1;
        counts.last_version = self.version;
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        if !self.is_new(&object) {
            self.recorder.counts().lock().ignored += 1;
            return;
        }
        match self.make(&object) {
            Some(decoded) => self.batch.push(QueuedChange::Put(kind, decoded)),
            None if kind == EventKind::Deleted => {
                self.batch.push(QueuedChange::Gone(object.key().into()));
            }
            None => {}
        }
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
        self.set_version(version);
        self.recorder.counts().lock().last_version = self.version;
    }

    async fn ready(&mut self) {
        self.queue.writable().await;
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
