//! The shared informer: one reflector, one store, and all handlers and streams that receive the store's changes.
//!
//! `lifecycle` runs two tasks: one reads the collection into a queue of deltas; the other, in `dispatcher`, takes deltas out of the
//! queue, stores them (`changes`) and distributes the resulting notifications.

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
pub use self::lifecycle::NotSynced;
use super::failure_recorder::{FailureRecorder, log_failures};
use super::{
    Cached, DeltaFifo, EventHandler, HandlerOptions, HandlerPanic, IndexError, Indexer,
    InformerCounts, KeyFn, ListWatch, Lister, OnFailure, PanicHook, Processor, Reflector,
    Registration, Subscription, SubscriptionOptions, Transform, cached_key,
};
use crate::upstream::driver::{Collection, Fetch};

/// How long a shutdown waits for handlers to process the notifications that are queued for them; then these are dropped.
const HANDLER_GRACE: Duration = Duration::from_secs(5);

/// Options of an informer, set when it is created.
pub struct InformerOptions<T> {
    /// Changes each object before it is stored, for example to drop fields that the program does not read.
    pub transform: Option<Transform<T>>,
    /// Called for each failure (client-go's `WatchErrorHandler`); `None` logs failures, each kind at most once a minute.
    pub on_failure: Option<OnFailure>,
    /// Called for each panic of a handler; `None` logs it.
    pub on_panic: Option<PanicHook>,
    /// How often all objects are delivered again to handlers that set no period of their own. `None` means never, which is right for
    /// most programs.
    pub resync_period: Option<Duration>,
    /// Returns the key under which an object is stored; by default namespace and name.
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

/// One reflector and one store, shared by many handlers (client-go's `SharedIndexInformer`). Clones are handles of the same informer.
///
/// It runs from [`SharedInformer::start`] to [`SharedInformer::shutdown`]; dropping all handles does not stop it. Handlers are called
/// on the runtime's blocking threads; all other work runs on its worker threads, and holds locks only briefly.
pub struct SharedInformer<T: Send + Sync + 'static> {
    dispatcher: Arc<Dispatcher<T>>,
    lifecycle: Arc<Lifecycle>,
    resync_period: Option<Duration>,
}

impl<T: Send + Sync + 'static> SharedInformer<T> {
    /// Creates an informer with default options. It sends the requests for `list_watch` through `fetch` once it is started.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new<F: Fetch>(fetch: Arc<F>, list_watch: ListWatch<T>) -> Self {
        Self::with_options(fetch, list_watch, InformerOptions::default())
    }

    /// Creates an informer with these options; see [`SharedInformer::new`].
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
        let recorder = FailureRecorder::new(reflector.counts().clone(), on_failure);
        let read_task = reflector.run_into(Arc::clone(&queue));
        Self {
            dispatcher: Arc::new(Dispatcher::new(
                store,
                queue,
                Processor::new(Handle::current(), on_panic),
                recorder,
            )),
            lifecycle: Arc::new(Lifecycle::new(collection, Box::pin(read_task))),
            resync_period: options.resync_period,
        }
    }

    /// Adds a handler, at any time. It receives all stored objects as added, and then every change. After a shutdown the handler is
    /// never called, and its registration has already ended.
    pub fn add_handler(&self, handler: impl EventHandler<T>) -> Registration<T> {
        self.add_handler_with(handler, HandlerOptions::named("handler"))
    }

    /// Adds a handler with options: its name, the length of its queue, what happens when that is full, its resync period.
    pub fn add_handler_with(
        &self,
        handler: impl EventHandler<T>,
        mut options: HandlerOptions,
    ) -> Registration<T> {
        options.resync_period = options.resync_period.or(self.resync_period);
        let now = Instant::now().into_std();
        self.dispatcher
            .join(|processor, join| processor.add_joining(Arc::new(handler), options, now, join))
    }

    /// Returns a stream of the notifications that a handler would receive. A slow reader delays no handler: when too many
    /// notifications wait, they are merged per object.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<T> {
        self.subscribe_with(SubscriptionOptions::named("subscription"))
    }

    /// Returns a stream with options: its name, the length of its queue, what happens when that is full.
    #[must_use]
    pub fn subscribe_with(&self, options: SubscriptionOptions) -> Subscription<T> {
        self.dispatcher
            .join(|processor, join| processor.subscribe_joining(options, join))
    }

    /// Adds an index to the store, at any time. [`index_by`](super::index_by), [`index_by_label`](super::index_by_label) and
    /// [`index_by_namespace`](super::index_by_namespace) create index functions.
    ///
    /// # Errors
    /// The store already has an index of this name.
    pub fn add_index(
        &self,
        name: &str,
        values: super::IndexFn<Cached<T>>,
    ) -> Result<(), IndexError> {
        self.dispatcher.store().add_index(name, values)
    }

    /// The store of this informer. Do not write to it: only the informer may.
    #[must_use]
    pub fn store(&self) -> &Arc<Indexer<Cached<T>>> {
        self.dispatcher.store()
    }

    /// Reads the store by label selector, namespace and name.
    #[must_use]
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(self.store()))
    }

    /// The collection that this informer reads.
    #[must_use]
    pub fn collection(&self) -> &Collection {
        self.lifecycle.collection()
    }

    /// Starts reading the collection, on the current runtime. Does nothing if the informer was started before or was shut down.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.lifecycle.start(&self.dispatcher);
    }

    /// Whether the informer was started or shut down.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.lifecycle.is_started()
    }

    /// Whether the store holds the initial list. Handlers may not have processed it yet: see [`Registration::has_synced`].
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.lifecycle.has_synced()
    }

    /// Waits until the store holds the initial list, also if the informer is not started yet.
    ///
    /// # Errors
    /// The informer was shut down before its store held the initial list.
    pub async fn synced(&self) -> Result<(), NotSynced> {
        self.lifecycle.synced().await
    }

    /// Stops reading, delivers queued notifications for at most five seconds, and waits until all tasks have ended and all
    /// callbacks have returned. The store stays readable.
    ///
    /// A handler must not wait for this. If a handler never returns, neither does this: use a timeout where handlers are not
    /// trusted.
    pub async fn shutdown(&self) {
        self.dispatcher.close();
        self.lifecycle.ended().await;
        self.dispatcher.processor().shutdown(HANDLER_GRACE).await;
    }

    /// Stops reading; changes that were read are still delivered. The caller must call [`SharedInformer::shutdown`] afterwards.
    pub(super) fn stop_reading(&self) {
        self.dispatcher.close();
    }

    /// Ends an informer that was never started. Unlike [`SharedInformer::shutdown`] it has nothing to wait for.
    pub(super) fn end_unstarted(&self) {
        self.dispatcher.close();
        self.lifecycle.end_unstarted();
        self.dispatcher.processor().close();
    }

    /// Counts of what was read, and of failures, since the informer was created.
    #[must_use]
    pub fn counts(&self) -> InformerCounts {
        self.dispatcher.counts()
    }

    /// How many calls of handlers panicked, including handlers that were removed since.
    #[must_use]
    pub fn handler_panics(&self) -> u64 {
        self.dispatcher.processor().panics()
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
            dispatcher: Arc::clone(&self.dispatcher),
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
