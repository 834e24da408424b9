//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.

mod cached;
mod counts;
mod failure;
mod journal;
mod list_watch;
mod metadata;
mod notification;
mod queue_sink;
mod raw;
mod reflector;

pub use cached::Cached;
pub use counts::{Counts, InformerCounts};
pub use failure::{FailureKind, OnFailure, Step, TransformError, WatchFailure};
pub use list_watch::{DecodeError, ListWatch};
pub use metadata::Metadata;
pub use notification::Notification;
pub use queue_sink::Transform;
pub use raw::Raw;
pub use reflector::Reflector;
