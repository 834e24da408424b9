//! A local copy of a collection that follows the server, and everybody who hears of its changes.

mod changes;
mod dispatcher;
mod lifecycle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use self::dispatcher::Dispatcher;
use self::lifecycle::Lifecycle;
use super::failure_recorder::{FailureRecorder, log_failures};
use super::{
    Cached, DeltaFifo, EventHandler, HandlerOptions, HandlerPanic, IndexError, Indexer,
    InformerCounts, KeyFn, ListWatch, Lister, OnFailure, PanicHook, Processor, Reflector,
    Registration, Subscription, SubscriptionOptions, Transform, cached_key,
};
use crate::upstream::driver::{Collection, Fetch};

/// How long handlers may take, when an informer ends, over what is queued for them.
const HANDLER_GRACE: Duration = Duration::from_secs(5);

/// The informer was shut down before it held its initial list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {} was shut down before it held its initial list", collection.gvr)]
pub struct NotSynced {
    /// Which informer.
    pub collection: Collection,
}

/// What may be set about an informer before it is made.
pub struct InformerOptions<T> {
    /// Changes each object before it is stored, such as by dropping what nobody here reads.
    pub transform: Option<Transform<T>>,
    /// Hears of each failure (client-go's `WatchErrorHandler`); `None` logs them, at a bounded rate.
    pub on_failure: Option<OnFailure>,
    /// Hears of each panic of a handler; `None` logs it.
    pub on_panic: Option<PanicHook>,
    /// How often all objects are told again to handlers that do not choose for themselves; `None`, for never, suits most.
    pub resync_period: Option<Duration>,
    /// Tells the key that objects are stored under; by default namespace and name.
    pub key: KeyFn<Cached<T>>,
}

impl<T> Default for InformerOptions<T> {
    fn default() -> Self {
        Self {
            transform: None,
            on_failure: None,
            on_panic: None,
            resync_period: None,
            key: cached_key(),
        }
    }
}

impl<T> fmt::Debug for InformerOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerOptions")
            .field("transform", &self.transform.is_some())
            .field("resync_period", &self.resync_period)
            .finish_non_exhaustive()
    }
}

/// One reflector, one store, many handlers. A handle: clones are the same informer.
///
/// It runs from [`SharedInformer::start`] to [`SharedInformer::shutdown`]; when all handles are dropped it goes on for its
/// handlers. Everything that it does but calling handlers happens on the runtime's own threads and takes no lock for long.
pub struct SharedInformer<T: Send + Sync + 'static> {
    telling: Arc<Dispatcher<T>>,
    lifecycle: Arc<Lifecycle>,
    resync_period: Option<Duration>,
}

impl<T: Send + Sync + 'static> SharedInformer<T> {
    /// An informer that will follow `list_watch` through `fetch`, with default options.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new<F: Fetch>(fetch: Arc<F>, list_watch: ListWatch<T>) -> Self {
        Self::with_options(fetch, list_watch, InformerOptions::default())
    }

    /// The same with options.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn with_options<F: Fetch>(
        fetch: Arc<F>,
        list_watch: ListWatch<T>,
        options: InformerOptions<T>,
    ) -> Self {
        let collection = list_watch.collection().clone();
        let on_failure = options
            .on_failure
            .unwrap_or_else(|| log_failures(&collection));
        let mut reflector = Reflector::new(fetch, list_watch).on_failure(Arc::clone(&on_failure));
        if let Some(transform) = options.transform {
            reflector = reflector.transformed(transform);
        }
        let store = Arc::new(Indexer::new(Arc::clone(&options.key)));
        let queue = Arc::new(DeltaFifo::new(options.key, Arc::clone(&store) as _));
        let on_panic = options.on_panic.unwrap_or_else(|| log_panics(&collection));
        let journal = FailureRecorder::new(reflector.counts().clone(), on_failure);
        let reading = reflector.run_into(Arc::clone(&queue));
        Self {
            telling: Arc::new(Dispatcher::new(
                store,
                queue,
                Processor::new(Handle::current(), on_panic),
                journal,
            )),
            lifecycle: Arc::new(Lifecycle::new(collection, Box::pin(reading))),
            resync_period: options.resync_period,
        }
    }

    /// Adds a handler, at any time: it is told of what is there, then of every change. After a shutdown the registration
    /// has ended from the beginning.
    pub fn add_handler(&self, handler: impl EventHandler<T>) -> Registration<T> {
        self.add_handler_with(handler, HandlerOptions::named("handler"))
    }

    /// The same with a name, a queue of a certain length, or a resync period of its own.
    pub fn add_handler_with(
        &self,
        handler: impl EventHandler<T>,
        mut options: HandlerOptions,
    ) -> Registration<T> {
        options.resync_period = options.resync_period.or(self.resync_period);
        let now = Instant::now().into_std();
        self.telling.join(|processor, joining| {
            processor.add_joining(Arc::new(handler), options, now, joining)
        })
    }

    /// A stream of the same notifications. Reading it slowly delays nobody: what waits is merged per object.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<T> {
        self.subscribe_with(SubscriptionOptions::named("subscription"))
    }

    /// The same with a name or a queue of a certain length.
    #[must_use]
    pub fn subscribe_with(&self, options: SubscriptionOptions) -> Subscription<T> {
        self.telling
            .join(|processor, joining| processor.subscribe_joining(options, joining))
    }

    /// Adds an index to the store, at any time. See [`index_by`](super::index_by) and its like.
    ///
    /// # Errors
    /// There is an index of this name.
    pub fn add_index(
        &self,
        name: &str,
        values: super::IndexFn<Cached<T>>,
    ) -> Result<(), IndexError> {
        self.telling.store().add_index(name, values)
    }

    /// The objects. Nobody but the informer may write to it.
    #[must_use]
    pub fn store(&self) -> &Arc<Indexer<Cached<T>>> {
        self.telling.store()
    }

    /// The objects, by selector and name.
    #[must_use]
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(self.store()))
    }

    /// What is followed.
    #[must_use]
    pub fn collection(&self) -> &Collection {
        self.lifecycle.collection()
    }

    /// Begins to follow the collection, on the current runtime. Does nothing if that was done before, or after a shutdown.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.lifecycle.start(&self.telling);
    }

    /// Whether it was started.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.lifecycle.is_started()
    }

    /// Whether the store holds the initial list. Handlers may still be at it: see [`Registration::has_synced`].
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.lifecycle.has_synced()
    }

    /// Waits until the store holds the initial list; if need be, for somebody to start the informer.
    ///
    /// # Errors
    /// The informer was shut down before.
    pub async fn synced(&self) -> Result<(), NotSynced> {
        self.lifecycle.synced().await
    }

    /// Stops following, tells handlers what is queued for them (for at most five seconds), and waits until all tasks and
    /// callbacks are done. The store stays readable. Not to be waited for by a handler; one that never returns makes this
    /// wait for ever, so put a limit on it where handlers are not trusted.
    pub async fn shutdown(&self) {
        self.telling.close();
        self.lifecycle.ended().await;
        self.telling.processor().shutdown(HANDLER_GRACE).await;
    }

    /// Reads nothing more; what was read is still told. [`SharedInformer::shutdown`] is to follow.
    pub(super) fn stop_reading(&self) {
        self.telling.close();
    }

    /// Ends an informer that was never started; what [`SharedInformer::shutdown`] does, without anything to wait for.
    pub(super) fn end_unstarted(&self) {
        self.telling.close();
        self.lifecycle.end_unstarted();
        self.telling.processor().close();
    }

    /// What was read and what went wrong so far.
    #[must_use]
    pub fn counts(&self) -> InformerCounts {
        self.telling.counts()
    }

    /// Calls of handlers that panicked, of all handlers that ever were.
    #[must_use]
    pub fn handler_panics(&self) -> u64 {
        self.telling.processor().panics()
    }
}

fn log_panics(collection: &Collection) -> PanicHook {
    let resource = collection.gvr.to_string();
    Arc::new(move |panic: &HandlerPanic| {
        let HandlerPanic {
            handler,
            key,
            message,
        } = panic;
        tracing::error!(%resource, %handler, %key, message, "a handler panicked");
    })
}

impl<T: Send + Sync + 'static> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self {
            telling: Arc::clone(&self.telling),
            lifecycle: Arc::clone(&self.lifecycle),
            resync_period: self.resync_period,
        }
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("collection", self.collection())
            .field("objects", &self.store().len())
            .field("has_synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
