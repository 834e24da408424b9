//! The client half of list-watch as a library: a local copy of a collection that stays up to date, and handlers for its changes.
//!
//! It is to Rust what client-go's `tools/cache` is to Go. It works with any API server, with kube-fanout, and with the embedded
//! API server. Objects can be typed (k8s-openapi's kinds or any serde type), dynamic, or metadata only.
//!
//! Start with [`SharedInformer`], or with [`SharedInformerFactory`] if a program needs several informers:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_fanout_informer::{Cached, EventHandler, ListWatch, SharedInformerFactory, index_by};
//! use kube_fanout_informer::client::{Client, ConnectSource};
//!
//! struct Printer;
//!
//! impl EventHandler<Pod> for Printer {
//!     fn on_add(&self, pod: &Arc<Cached<Pod>>, in_initial_list: bool) {
//!         println!("{} {}", pod.key(), if in_initial_list { "exists" } else { "was created" });
//!     }
//!
//!     fn on_update(&self, old: &Arc<Cached<Pod>>, new: &Arc<Cached<Pod>>) {
//!         println!("{}: {} -> {}", new.key(), old.resource_version(), new.resource_version());
//!     }
//!
//!     fn on_delete(&self, pod: &Arc<Cached<Pod>>, _final_state_known: bool) {
//!         println!("{} was deleted", pod.key());
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let source = ConnectSource::url("http://127.0.0.1:8001")?;
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
//! The folder `examples` has two larger programs. One command runs each of them against a server of its own:
//! `./kube-fanout example endpoints-mirror` is a controller, and `./kube-fanout example watch-printer` prints the changes of a
//! resource.
//!
//! # How a change travels
//!
//! ```text
//!  API server
//!      │ list, watch, relist, back-off              Reflector, reads what a ListWatch describes
//!      ▼
//!  decode ─▶ transform                              once per object and version
//!      ▼
//!  a queue of deltas, grouped by object             DeltaFifo
//!      │ popped under the queue's lock
//!      ▼
//!  objects by key, and indices                      Indexer, Lister
//!      ▼
//!  one bounded queue per handler or stream          SharedInformer
//!      ├─▶ EventHandler      callbacks; may block
//!      └─▶ Subscription      a Stream
//! ```
//!
//! Most programs need only a [`SharedInformer`]. Each part can also be used alone: a [`Reflector`] fills any sink, and a
//! [`DeltaFifo`] and an [`Indexer`] hold values of any type.
//!
//! # From client-go to this library
//!
//! | client-go | this library |
//! |---|---|
//! | `ListWatch`, `NewListWatchFromClient` | [`ListWatch`]: `of_kind`, `typed`, `packed_kind`, `raw`, `metadata` |
//! | `NewSharedIndexInformer` | [`SharedInformer::new`] |
//! | `NewSharedInformerFactory`, `Core().V1().Pods()` | [`SharedInformerFactory::new`], [`SharedInformerFactory::informer`] |
//! | `dynamicinformer`, `unstructured.Unstructured` | [`ListWatch::raw`], [`Raw`] |
//! | `metadatainformer`, `PartialObjectMetadata` | [`ListWatch::metadata`], [`Metadata`] |
//! | `meta.Accessor`: name, uid, version, labels | [`Cached`], for objects of every type |
//! | `MetaNamespaceKeyFunc`, `SplitMetaNamespaceKey` | [`Cached::key`], an [`ObjectKey`](crate::resource::ObjectKey); [`cached_key`] |
//! | `ResourceEventHandler`, `ResourceEventHandlerFuncs` | [`EventHandler`], or a closure over [`Notification`] |
//! | `FilteringResourceEventHandler` | [`EventFilter`] |
//! | `AddEventHandler`, `AddEventHandlerWithOptions` | [`SharedInformer::add_handler`], [`SharedInformer::add_handler_with`] |
//! | `ResourceEventHandlerRegistration`, `RemoveEventHandler` | [`Registration`], [`Registration::remove`] |
//! | `DeletedFinalStateUnknown` | `final_state_known` is false, and the object is the last known state |
//! | `Run(stopCh)` | [`SharedInformer::start`], [`SharedInformer::shutdown`] |
//! | `HasSynced`, `WaitForCacheSync` | [`SharedInformer::synced`], [`Registration::synced`] |
//! | `WaitForCacheSync` of a factory | [`SharedInformerFactory::wait_for_cache_sync`] |
//! | `Indexers`, `AddIndexers` | [`SharedInformer::add_index`] |
//! | `IndexFunc`, `MetaNamespaceIndexFunc` | [`index_by`], [`index_by_namespace`], [`index_by_label`], [`index_by_pointer`] |
//! | `ByIndex`, `IndexKeys`, `ListIndexFuncValues` | [`Indexer::by_index`], [`Indexer::index_keys`], [`Indexer::index_values`] |
//! | `GetStore`, `GetIndexer`, `List` | [`SharedInformer::store`], [`Indexer::snapshot`] |
//! | `PodLister`, `List(selector)`, `Get` | [`Lister`]: `list`, `list_in`, `object` |
//! | `TransformFunc`, `SetTransform` | [`Transform`], set in [`InformerOptions`] |
//! | `SetWatchErrorHandler` | [`OnFailure`], set in [`InformerOptions`]; [`WatchFailure`] describes the failure |
//! | resync period | [`HandlerOptions::with_resync`] |
//! | `LastSyncResourceVersion`, reflector metrics | [`SharedInformer::counts`], [`InformerCounts`] |
//! | `NewIndexerInformerWatcher`, a channel | [`SharedInformer::subscribe`], a [`Subscription`] |
//! | `workqueue` | not included; `examples/endpoints_mirror/work_queue.rs` has one of about a hundred lines |
//!
//! # Examples
//!
//! **A stream** instead of callbacks delivers the present state first, and then each change:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout_informer::{Notification, SharedInformer};
//! use futures::StreamExt;
//!
//! # async fn follow(pods: SharedInformer<Pod>) {
//! let mut changes = pods.subscribe();
//! while let Some(change) = changes.next().await {
//!     match change {
//!         Notification::Added { object, .. } => println!("{} added", object.key()),
//!         Notification::Updated { old, new } if old.uid() != new.uid() => println!("{} recreated", new.key()),
//!         Notification::Updated { new, .. } => println!("{} updated", new.key()),
//!         Notification::Deleted { object, .. } => println!("{} deleted", object.key()),
//!     }
//! }
//! # }
//! ```
//!
//! **Options** can reduce memory, and send failures elsewhere than to the log:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout_informer::{Cached, InformerOptions, ListWatch, SharedInformer, WatchFailure};
//! # use kube_fanout_informer::client::Client;
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
//! **A handler that must see every change** uses [`Overflow::Block`]. Handlers can be added to a running informer, and removed again:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::Pod;
//! # use kube_fanout_informer::{HandlerEnd, HandlerOptions, Notification, Overflow, SharedInformer};
//! # async fn audit(pods: SharedInformer<Pod>) -> Result<(), HandlerEnd> {
//! let options = HandlerOptions::named("audit").with_queue(10_000, Overflow::Block);
//! let audit = pods.add_handler_with(|change: &Notification<Pod>| println!("{}", change.key()), options);
//! audit.synced().await?;
//! audit.remove();
//! # Ok(())
//! # }
//! ```
//!
//! **A controller** has handlers that put keys into a work queue, and workers that compare the desired state with the actual state:
//! see `examples/endpoints_mirror/mirror.rs`.
//!
//! # Differences from client-go
//!
//! - **Memory is bounded.** client-go's delta queue and its buffer for each handler grow while a consumer is slow. Here both have a
//!   bound; "Slow handlers" below describes what happens at the bound.
//! - **Most watch errors do not cause a relist.** client-go lists everything again after most errors. Here a broken watch is
//!   resumed. Only lost history, or a watch that stays rejected or unreadable, leads to a list.
//! - **A bad object affects only itself.** An object that cannot be decoded, transformed or keyed keeps its last good state, and the
//!   failure is counted and reported. All other objects go on. Panics of handlers, hooks, and key and index functions are caught
//!   and counted.
//! - **Stored objects are immutable.** They are shared as `Arc<Cached<T>>`, so there is nothing for a mutation detector to detect.
//! - **Deletions have the same type as all other notifications.** There is no tombstone to unwrap.
//! - **Waiting does not poll.** `synced().await` returns as soon as the informer has synced.
//!
//! `docs/INFORMER.md` compares the behaviour with client-go's case by case, and names the test that proves each case.
//!
//! # Level-triggered, not edge-triggered
//!
//! A notification says that an object changed; a handler should act on the object's *present* state. States between two
//! notifications may be left out: because the server lost its history, or because the handler was slow and its queue was merged.
//! An object that was deleted and recreated in between may arrive as one update with another [`uid`](Cached::uid). So write a
//! handler that puts the key into a work queue, and a worker that reads the store, compares the desired state with the actual state,
//! and writes the difference. Such a worker may run more often than necessary and is still correct.
//!
//! `docs/INFORMER.md` lists what may be left out at each step. Two things are never left out: the newest state of an object, and the
//! deletion of an object that was delivered to the handler. The store is at least as new as any notification, and often newer.
//!
//! # Slow handlers
//!
//! Every handler has its own queue and its own pace, and may block. Its [`Overflow`] decides what happens when the queue is full:
//! [`Overflow::Merge`], the default, keeps one pending change per object; [`Overflow::Block`] leaves nothing out, but all handlers wait
//! for this one, and the reflector stops reading from its socket; [`Overflow::Remove`] removes the handler.
//!
//! Handlers run on the runtime's blocking threads: a few threads for all of them, and more while some handlers block. At most as many
//! handlers can be stuck at the same time as there are blocking threads (512 with tokio's default).
//!
//! # Failures
//!
//! Failures do not end an informer. It retries after failed connections, error responses and unreadable responses, and it skips
//! states that cannot be decoded; `docs/INFORMER.md` describes this for each [`FailureKind`]. Failures are counted in
//! [`InformerCounts`] and reported to a hook, or logged if there is no hook. Only [`SharedInformer::shutdown`] ends an informer, and it
//! waits for everything that the informer started.
//!
//! # Costs
//!
//! An object is decoded once and stored once: store, queues, handlers and lists share it. Initial data is decoded as it arrives, so
//! it is never in memory twice.
//!
//! Where there are many objects, keep the bytes instead of decoded objects: a decoded pod of k8s-openapi takes several times the memory
//! of its JSON. [`ListWatch::raw`] keeps the bytes as received, [`ListWatch::packed_kind`] does the same for a known type, and both
//! decode on access. [`ListWatch::metadata`] makes the server send metadata only. [`ListWatch::without_managed_fields`] removes the
//! managed fields before an object is decoded.
//!
//! Reading an object or an index takes a lock for one lookup; taking a [`StoreSnapshot`] copies a pointer. A resync delivers one
//! notification per object, and is rarely worth its cost.

#[cfg(all(feature = "sim", not(debug_assertions)))]
compile_error!("the feature `sim` replaces the threads of handlers; it is for tests/sim only");

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
pub use list_watch::ListWatch;
pub use lister::Lister;
pub use metadata::Metadata;
pub use notification::Notification;
pub use packed::Packed;
pub use processor::{
    HandlerCounts, HandlerEnd, HandlerPanic, InitialState, PanicHook, Processor, ProcessorEnd,
    Registration, StreamOverflow, Subscription, SubscriptionOptions,
};
pub use queue_sink::Transform;
pub use raw::{DecodeError, Raw};
pub use reflector::Reflector;
pub use shared_informer::{InformerOptions, NotSynced, SharedInformer};

#[cfg(feature = "client")]
pub use kube_fanout_upstream::client;
pub use kube_fanout_upstream::driver::{
    Collection, Fetch, FetchError, FrameRejection, RequestKind, RequestPurpose,
};
pub use kube_fanout_upstream::reflector::RelistReason;
pub use kube_fanout_wire::decode::UpstreamStatus;
pub use kube_fanout_wire::resource;
pub use kube_fanout_wire::selector::LabelSelector;

// Under the names that they have everywhere.
use kube_fanout_upstream as upstream;
use kube_fanout_wire::{decode, selector};
