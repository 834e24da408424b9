//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.

mod cached;
mod counts;
mod delta_fifo;
mod failure;
mod indexer;
mod journal;
mod key;
mod list_watch;
mod lister;
mod metadata;
mod notification;
mod queue_sink;
mod raw;
mod reflector;

pub use cached::Cached;
pub use counts::{Counts, InformerCounts};
pub use delta_fifo::{
    Delta, DeltaFifo, DeltaKind, KnownObjects, PENDING_MAX_DEFAULT, QueueError, Subject,
};
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
pub use queue_sink::Transform;
pub use raw::Raw;
pub use reflector::Reflector;

pub use crate::decode::UpstreamStatus;
pub use crate::upstream::driver::{Asked, FrameRejection};
pub use crate::upstream::reflector::RelistReason;
