//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.

mod cached;
mod event_handler;
mod list_watch;
mod metadata;
mod notification;
mod processor;
mod raw;
mod subscription;

pub use cached::Cached;
pub use event_handler::{EventHandler, Filtered, HandlerOptions, Overflow};
pub use list_watch::{DecodeError, ListWatch};
pub use metadata::Metadata;
pub use notification::Notification;
pub use processor::{
    HandlerCounts, HandlerEnd, HandlerPanic, PanicHook, Present, Processor, ProcessorEnd,
    Registration,
};
pub use raw::Raw;
pub use subscription::{StreamOverflow, Subscription, SubscriptionOptions};
