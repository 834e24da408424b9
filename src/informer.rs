//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.

mod cached;
mod counts;
mod delta_fifo;
mod event_handler;
mod factory;
mod failure;
mod indexer;
mod journal;
mod key;
mod list_watch;
mod lister;
mod metadata;
mod notification;
mod processor;
mod queue_sink;
mod raw;
mod reflector;
mod shared_informer;
mod subscription;

pub use cached::Cached;
pub use counts::{Counts, InformerCounts};
pub use delta_fifo::{
    Delta, DeltaFifo, DeltaKind, KnownObjects, PENDING_MAX_DEFAULT, QueueError, Subject,
};
pub use event_handler::{EventHandler, Filtered, HandlerOptions, Overflow};
pub use factory::SharedInformerFactory;
pub use failure::{FailureKind, OnFailure, Step, TransformError, WatchFailure};
pub use indexer::{
    IndexError, IndexFn, Indexer, NAMESPACE_INDEX, PointerError, StoreSnapshot, index_by,
    index_by_label, index_by_namespace, index_by_pointer,
};
pub use key::{KeyError, KeyFn, Refused, cached_key};
pub use list_watch::{DecodeError, ListWatch};
pub use lister::Lister;
pub use metadata::Metadata;
pub use notification::Notification;
pub use processor::{
    HandlerCounts, HandlerEnd, HandlerPanic, PanicHook, Present, Processor, ProcessorEnd,
    Registration,
};
pub use queue_sink::Transform;
pub use raw::Raw;
pub use reflector::Reflector;
pub use shared_informer::{InformerOptions, NotSynced, SharedInformer};
pub use subscription::{StreamOverflow, Subscription, SubscriptionOptions};

pub use crate::decode::UpstreamStatus;
pub use crate::upstream::driver::{Asked, FrameRejection};
pub use crate::upstream::reflector::RelistReason;
