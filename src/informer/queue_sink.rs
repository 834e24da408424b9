//! The informer's sink: decodes what comes and puts deltas into the queue. Knows no store and no handler.

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

/// Changes an object before it is queued, for example to drop what nobody reads. What it leaves is what the store holds.
pub type Transform<T> = Arc<dyn Fn(&mut Cached<T>) -> Result<(), TransformError> + Send + Sync>;

/// What becomes of objects between the wire and the queue.
pub(super) struct ObjectPipeline<T> {
    pub(super) list_watch: ListWatch<T>,
    pub(super) transform: Option<Transform<T>>,
}

/// Fills a queue of deltas.
///
/// Objects are decoded as they come and their bytes dropped, so that initial data never lies twice in memory.
pub(super) struct QueueSink<T> {
    queue: Arc<DeltaFifo<Cached<T>>>,
    making: ObjectPipeline<T>,
    journal: Arc<FailureRecorder>,
    /// Initial data on its way.
    side: HashMap<ObjectKey, ListedObject<T>, RandomState>,
    /// Changes that will be queued together, in the order they came.
    batch: Vec<QueuedChange<T>>,
    version: Option<ResourceVersion>,
    /// What was changed at `version`: an event of the same version and key is a repetition, one of another key is a
    /// part of the same transaction.
    changed_at_version: HashSet<ObjectKey, RandomState>,
}

/// An object of initial data.
enum ListedObject<T> {
    Made(Arc<Cached<T>>),
    /// It cannot be made: what is known of the object with this uid stays.
    Unmade(Box<str>),
}

enum QueuedChange<T> {
    Put(EventKind, Arc<Cached<T>>),
    /// Deleted, and its last state cannot be made.
    Gone(ObjectKey),
}

impl<T: Send + Sync + 'static> QueueSink<T> {
    pub(super) fn new(
        queue: Arc<DeltaFifo<Cached<T>>>,
        making: ObjectPipeline<T>,
        journal: Arc<FailureRecorder>,
    ) -> Self {
        Self {
            queue,
            making,
            journal,
            side: HashMap::default(),
            batch: Vec::new(),
            version: None,
            changed_at_version: HashSet::default(),
        }
    }

    /// The object as it will be queued; `None`, and told, if it cannot be made.
    fn make(&self, object: &Object) -> Option<Arc<Cached<T>>> {
        match self.making.make(object) {
            Ok(cached) => Some(Arc::new(cached)),
            Err(failure) => {
                self.journal.tell(&failure);
                None
            }
        }
    }

    fn push(&self, change: QueuedChange<T>) {
        let (kind, object) = match change {
            QueuedChange::Put(kind, object) => (kind, object),
            QueuedChange::Gone(key) => return self.delete_by_name(&key),
        };
        let done = match kind {
            EventKind::Added => self.queue.add(Arc::clone(&object)),
            EventKind::Modified => self.queue.update(Arc::clone(&object)),
            EventKind::Deleted => self.queue.delete(Arc::clone(&object)),
        };
        match done {
            // Nobody wants to hear of it any more.
            Ok(()) | Err(QueueError::Closed) => {}
            Err(QueueError::Key(source)) => {
                self.tell_key(&object, source);
                if kind == EventKind::Deleted {
                    self.delete_by_name(object.key());
                }
            }
        }
    }

    /// For deletions of which nothing but namespace and name can be told. Queues may go by other keys.
    fn delete_by_name(&self, key: &ObjectKey) {
        // A closed queue needs to know nothing.
        let _ = self.queue.delete_such(key, |last| last.key() == key);
    }

    fn tell_key(&self, object: &Cached<T>, source: KeyError) {
        self.journal.tell(&WatchFailure::Key {
            key: object.key().clone(),
            version: object.resource_version(),
            source,
        });
    }

    /// Notes the event's version; false for one that was seen already.
    fn is_new(&mut self, object: &Object) -> bool {
        let version = object.resource_version();
        match self
            .version
            .map_or(Ordering::Greater, |held| version.cmp(&held))
        {
            Ordering::Less => return false,
            // Lists and bookmarks tell of all that happened up to their version.
            Ordering::Equal if self.changed_at_version.is_empty() => return false,
            Ordering::Equal => {}
            Ordering::Greater => self.stands_at(version),
        }
        self.changed_at_version.insert(object.key().into())
    }

    /// Everything up to this version is known.
    fn stands_at(&mut self, version: ResourceVersion) {
        self.version = Some(version);
        self.changed_at_version.clear();
    }
}

impl<T> ObjectPipeline<T> {
    fn make(&self, object: &Object) -> Result<Cached<T>, WatchFailure> {
        let (key, version) = (object.key(), object.resource_version());
        let decoded = guarded(object, FailedStep::Decode, || self.list_watch.make(object))?;
        let decoded = decoded.map_err(|source| WatchFailure::Undecodable {
            key: key.into(),
            version,
            source,
        })?;
        let mut cached = Cached::new(object, decoded);
        if let Some(transform) = &self.transform {
            let transformed = guarded(object, FailedStep::Transform, || transform(&mut cached))?;
            transformed.map_err(|source| WatchFailure::Transform {
                key: key.into(),
                version,
                source,
            })?;
        }
        Ok(cached)
    }
}

/// Runs the user's code; what it leaves behind when it panics is dropped with the object.
fn guarded<R>(
    object: &Object,
    step: FailedStep,
    run: impl FnOnce() -> R,
) -> Result<R, WatchFailure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| WatchFailure::Panicked {
        key: object.key().into(),
        version: object.resource_version(),
        step,
        message: words_of(&*panic),
    })
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no words").to_owned()
}

impl<T: Send + Sync + 'static> Sink for QueueSink<T> {
    fn restart(&mut self) {
        self.side = HashMap::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        if kind == EventKind::Deleted {
            self.side.remove(&ObjectKey::from(object.key()));
            return;
        }
        let listed = match self.make(&object) {
            Some(made) => ListedObject::Made(made),
            None => ListedObject::Unmade(object.uid().into()),
        };
        self.side.insert(object.key().into(), listed);
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        if let Some(held) = self.version.filter(|held| version < *held) {
            let listed = version;
            self.journal.tell(&WatchFailure::WentBack { held, listed });
        }
        self.stands_at(version);
        let mut objects = Vec::with_capacity(self.side.len());
        let mut kept: HashMap<ObjectKey, Box<str>, RandomState> = HashMap::default();
        for (key, listed) in std::mem::take(&mut self.side) {
            let object = match listed {
                ListedObject::Made(object) => object,
                ListedObject::Unmade(uid) => {
                    kept.insert(key, uid);
                    continue;
                }
            };
            match self.queue.key_of(&object) {
                Ok(_) => objects.push(object),
                Err(source) => {
                    self.tell_key(&object, source);
                    kept.insert(key, object.uid().into());
                }
            }
        }
        // Those without a key are out already, and a closed queue needs to know nothing.
        let is_kept =
            |last: &Cached<T>| kept.get(last.key()).is_some_and(|uid| **uid == *last.uid());
        let _ = self.queue.replace_but(objects, is_kept);
        let mut counts = self.journal.counts().lock();
        counts.replaced += 1;
        counts.last_version = self.version;
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        if !self.is_new(&object) {
            self.journal.counts().lock().ignored += 1;
            return;
        }
        match self.make(&object) {
            Some(made) => self.batch.push(QueuedChange::Put(kind, made)),
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
        let mut counts = self.journal.counts().lock();
        counts.events += events;
        counts.last_version = self.version;
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.stands_at(version);
        self.journal.counts().lock().last_version = self.version;
    }

    async fn ready(&mut self) {
        self.queue.writable().await;
    }
}

impl<T> fmt::Debug for QueueSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSink")
            .field("initial", &self.side.len())
            .field("batch", &self.batch.len())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
