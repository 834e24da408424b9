//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.
//!
//! What `client-go`'s `tools/cache` is to Go. It works against any API server, against kube-fanout and the embedded server;
//! it reads typed objects (k8s-openapi's or any serde type), dynamic ones, or metadata alone.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_fanout::informer::{Cached, EventHandler, ListWatch, SharedInformerFactory, index_by};
//! use kube_fanout::upstream::client::{Client, UpstreamSource};
//!
//! struct Printer;
//!
//! impl EventHandler<Pod> for Printer {
//!     fn on_add(&self, pod: &Arc<Cached<Pod>>, in_initial_list: bool) {
//!         println!("{} is there{}", pod.key(), if in_initial_list { "" } else { " now" });
//!     }
//!
//!     fn on_update(&self, old: &Arc<Cached<Pod>>, new: &Arc<Cached<Pod>>) {
//!         println!("{}: {} -> {}", new.key(), old.resource_version(), new.resource_version());
//!     }
//!
//!     fn on_delete(&self, pod: &Arc<Cached<Pod>>, _final_state_known: bool) {
//!         println!("{} is gone", pod.key());
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let source = UpstreamSource::url("http://127.0.0.1:8001")?;
//!     let client = Arc::new(Client::connect(source).await?);
//!
//!     let factory = SharedInformerFactory::new(client);
//!     let pods = factory.informer(ListWatch::<Pod>::of_kind().with_labels("tier=backend"));
//!     let node = |pod: &Cached<Pod>| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
//!     pods.add_index("node", index_by(node))?;
//!     pods.add_handler(Printer);
//!
//!     factory.start();
//!     factory.wait_for_cache_sync().await?;
//!     for pod in pods.store().by_index("node", "node-001")? {
//!         println!("{} runs on node-001", pod.key());
//!     }
//!
//!     tokio::signal::ctrl_c().await?;
//!     factory.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! Two larger programs are in `docs/examples`, each run by one command against a server of its own:
//! `./kube-fanout example endpoints-mirror`, a controller, and `./kube-fanout example watch-printer`.
//!
//! # The way of a change
//!
//! ```text
//!  API server
//!      │ list, watch, relist, back-off                                Reflector, of a ListWatch
//!      ▼
//!  decode ─▶ transform                                                once per object and version
//!      ▼
//!  what happened to each object since it was looked at last           DeltaFifo
//!      │ popped under the queue's lock
//!      ▼
//!  objects by key, and indices                                        Indexer, Lister
//!      ▼
//!  one bounded queue for each                                         SharedInformer
//!      ├─▶ EventHandler      callbacks; may block
//!      └─▶ Subscription      a Stream
//! ```
//!
//! Each part can be had alone: a [`Reflector`] fills any sink, a [`DeltaFifo`] and an [`Indexer`] know nothing of Kubernetes.
//! Usually one wants a [`SharedInformer`], or several from a [`SharedInformerFactory`].
//!
//! # From client-go to here
//!
//! | client-go | here |
//! |---|---|
//! | `ListWatch`, `NewListWatchFromClient` | [`ListWatch`]: `of_kind`, `typed`, `packed_kind`, `raw`, `metadata` |
//! | `NewSharedIndexInformer` | [`SharedInformer::new`] |
//! | `NewSharedInformerFactory`, `Core().V1().Pods()` | [`SharedInformerFactory::new`], [`SharedInformerFactory::informer`] |
//! | `dynamicinformer`, `unstructured.Unstructured` | [`ListWatch::raw`], [`Raw`] |
//! | `metadatainformer`, `PartialObjectMetadata` | [`ListWatch::metadata`], [`Metadata`] |
//! | `meta.Accessor`: name, uid, version, labels | [`Cached`]: of every object, whatever its type |
//! | `MetaNamespaceKeyFunc`, `SplitMetaNamespaceKey` | [`Cached::key`], an [`ObjectKey`](crate::resource::ObjectKey); [`cached_key`] |
//! | `ResourceEventHandler`, `ResourceEventHandlerFuncs` | [`EventHandler`], or a closure over [`Notification`] |
//! | `FilteringResourceEventHandler` | [`EventFilter`] |
//! | `AddEventHandler`, `AddEventHandlerWithOptions` | [`SharedInformer::add_handler`], [`SharedInformer::add_handler_with`] |
//! | `ResourceEventHandlerRegistration`, `RemoveEventHandler` | [`Registration`], [`Registration::remove`] |
//! | `DeletedFinalStateUnknown` | `final_state_known` is false; the object is the last one known |
//! | `Run(stopCh)` | [`SharedInformer::start`], [`SharedInformer::shutdown`] |
//! | `WaitForCacheSync`, `HasSynced` | [`SharedInformer::synced`], [`SharedInformerFactory::wait_for_cache_sync`], [`Registration::synced`] |
//! | `Indexers`, `AddIndexers`, `MetaNamespaceIndexFunc` | [`SharedInformer::add_index`], [`index_by`], [`index_by_label`], [`index_by_namespace`] |
//! | `ByIndex`, `IndexKeys`, `ListIndexFuncValues` | [`Indexer::by_index`], [`Indexer::index_keys`], [`Indexer::index_values`] |
//! | `GetStore`, `GetIndexer`, `List` | [`SharedInformer::store`], [`Indexer::snapshot`] |
//! | `PodLister`, `List(selector)`, `Get` | [`Lister`]: `list`, `list_in`, `object` |
//! | `TransformFunc`, `SetTransform` | [`Transform`], an option of the informer |
//! | `SetWatchErrorHandler` | [`OnFailure`], an option; [`WatchFailure`] says what failed |
//! | resync period | [`HandlerOptions::with_resync`] |
//! | `LastSyncResourceVersion`, reflector metrics | [`SharedInformer::counts`], [`InformerCounts`] |
//! | `NewIndexerInformerWatcher`, a channel | [`SharedInformer::subscribe`], a [`Subscription`] |
//! | `workqueue` | not here; the examples have one in a hundred lines |
//!
//! # Pieces
//!
//! **A stream** instead of callbacks: the present state first, then each change.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout::informer::{Notification, SharedInformer};
//! use futures::StreamExt;
//!
//! # async fn follow(pods: SharedInformer<Pod>) {
//! let mut changes = pods.subscribe();
//! while let Some(change) = changes.next().await {
//!     match change {
//!         Notification::Added { object, .. } => println!("{} is there", object.key()),
//!         Notification::Updated { old, new } if old.uid() != new.uid() => println!("{} is another", new.key()),
//!         Notification::Updated { new, .. } => println!("{} changed", new.key()),
//!         Notification::Deleted { object, .. } => println!("{} is gone", object.key()),
//!     }
//! }
//! # }
//! ```
//!
//! **Less memory, and failures to somewhere else** than the log:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout::informer::{Cached, InformerOptions, ListWatch, SharedInformer, WatchFailure};
//! # use kube_fanout::upstream::client::Client;
//! # fn make(client: Arc<Client>) -> SharedInformer<Pod> {
//! let options = InformerOptions {
//!     transform: Some(Arc::new(|pod: &mut Cached<Pod>| {
//!         pod.object_mut().status = None;
//!         Ok(())
//!     })),
//!     on_failure: Some(Arc::new(|failure: &WatchFailure| eprintln!("{failure}"))),
//!     ..InformerOptions::default()
//! };
//! SharedInformer::with_options(client, ListWatch::of_kind().without_managed_fields(), options)
//! # }
//! ```
//!
//! **A handler that must hear everything**, joins while the informer runs, and goes again:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout::informer::{HandlerEnd, HandlerOptions, Notification, Overflow, SharedInformer};
//! # async fn audit(pods: SharedInformer<Pod>) -> Result<(), HandlerEnd> {
//! let options = HandlerOptions::named("audit").with_queue(10_000, Overflow::Block);
//! let audit = pods.add_handler_with(|change: &Notification<Pod>| println!("{}", change.key()), options);
//! audit.synced().await?;
//! audit.remove();
//! # Ok(())
//! # }
//! ```
//!
//! **A controller** has handlers that put keys into a work queue, and workers that compare what should be with what is: see
//! `docs/examples/endpoints_mirror/mirror.rs`.
//!
//! # What differs
//!
//! - **Memory is bounded.** client-go's queue of deltas and its buffer for each handler grow as long as somebody is slow. Here
//!   both have a bound; see below what happens at it.
//! - **Trouble on a watch does not relist.** client-go lists everything again after most errors. Here a watch that broke is
//!   resumed, and only lost history or a server that cannot go on leads to a list.
//! - **One bad object is one bad object.** What cannot be decoded, transformed or keyed is left at its last good state, counted
//!   and told; everything else goes on. Panics of handlers, hooks and index functions are caught and counted.
//! - **Nothing can be changed in place.** Objects are shared, `Arc<Cached<T>>`; there is no mutation detector because there is
//!   nothing to detect.
//! - **Deletions have the type of everything else.** There is no tombstone to unwrap.
//! - **Waiting is waiting.** `synced().await` does not poll.
//!
//! `docs/INFORMER.md` goes through client-go's behaviour case by case, with the test that proves each.
//!
//! # Levels, not edges
//!
//! A handler is told that an object changed; what it should act on is what the object *is*. Between two notifications there may
//! have been states that nobody was told of: the server lost its history, or the handler was slow and its queue was merged. An
//! object that was deleted and made again meanwhile may come as one update, with another
//! [`uid`](Cached::uid). So write a handler that puts the key into a work queue, and a worker that reads the store, compares what
//! should be with what is, and writes the difference; it may run too often and still be right. `docs/INFORMER.md` lists what may be
//! left out at each step, and what never is: the newest state, and the deletion of what a handler was told of.
//!
//! The store is at least as new as any notification from it, and often newer.
//!
//! # Slow handlers
//!
//! Every handler has a queue and a pace of its own, and may block. At the queue's bound its [`Overflow`] says what happens:
//! [`Overflow::Merge`], the default, leaves one pending change per object; [`Overflow::Block`] leaves nothing out and makes
//! everybody wait, down to the socket; [`Overflow::Remove`] gives the handler up. Handlers run on blocking threads of the runtime: a
//! few for all of them, and more while some block. As many can be stuck at once as that pool has threads (512 with tokio's default).
//!
//! # Failures
//!
//! An informer does not end because of a failure: connections, refusals, unreadable answers and objects are waited out or left
//! out, as `docs/INFORMER.md` tells for each [`FailureKind`]. They are counted in [`InformerCounts`] and told to a hook, or logged
//! if there is none. It does end with [`SharedInformer::shutdown`], which joins all it had started.
//!
//! # What it costs
//!
//! An object is decoded once, and stored once: store, queues, handlers and lists share it. [`ListWatch::raw`] keeps the bytes as
//! they came, [`ListWatch::packed_kind`] does the same with a type, and both decode where somebody looks. That is the choice where
//! objects are many: a decoded pod of k8s-openapi takes several times its JSON. [`ListWatch::metadata`] has the server send no
//! more than metadata. [`ListWatch::without_managed_fields`] cuts them off before anything is decoded. Initial data is decoded as it
//! streams in and never lies twice in memory. Reading an index or a key costs a lock for one lookup; a [`StoreSnapshot`] costs
//! nothing to make. A resync makes one notification per object, and is rarely worth it.

mod cached;
mod counts;
mod delta_fifo;
mod event_handler;
mod factory;
mod failure;
mod failure_recorder;
mod indexer;
mod key;
mod list_watch;
mod lister;
mod metadata;
mod notification;
mod packed;
mod processor;
mod queue_sink;
mod raw;
mod reflector;
mod shared_informer;
mod subscription;

pub use cached::Cached;
pub use counts::{InformerCounters, InformerCounts};
pub use delta_fifo::{
    Delta, DeltaFifo, DeltaKind, DeltaSubject, KnownObjects, PENDING_MAX_DEFAULT, QueueError,
};
pub use event_handler::{EventFilter, EventHandler, HandlerOptions, Overflow};
pub use factory::SharedInformerFactory;
pub use failure::{FailedStep, FailureKind, OnFailure, TransformError, WatchFailure};
pub use indexer::{
    IndexError, IndexFn, Indexer, NAMESPACE_INDEX, PointerError, StoreSnapshot, index_by,
    index_by_label, index_by_namespace, index_by_pointer,
};
pub use key::{KeyError, KeyFn, KeylessObjects, cached_key};
pub use list_watch::{DecodeError, ListWatch};
pub use lister::Lister;
pub use metadata::Metadata;
pub use notification::Notification;
pub use packed::Packed;
pub use processor::{
    HandlerCounts, HandlerEnd, HandlerPanic, InitialState, PanicHook, Processor, ProcessorEnd,
    Registration,
};
pub use queue_sink::Transform;
pub use raw::Raw;
pub use reflector::Reflector;
pub use shared_informer::{InformerOptions, NotSynced, SharedInformer};
pub use subscription::{StreamOverflow, Subscription, SubscriptionOptions};

pub use crate::decode::UpstreamStatus;
pub use crate::upstream::driver::{FrameRejection, RequestKind};
pub use crate::upstream::reflector::RelistReason;
