//! The client half of list-watch: a local copy of a collection that follows the server, and handlers that hear of changes.

mod cached;
mod list_watch;
mod metadata;
mod notification;
mod raw;

pub use cached::Cached;
pub use list_watch::{DecodeError, ListWatch};
pub use metadata::Metadata;
pub use notification::Notification;
pub use raw::Raw;
