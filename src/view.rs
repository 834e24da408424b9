//! What one watcher may see, and in what form: selectors, views shared by all who ask alike, and their hub.

mod bookmark;
mod hub;
mod object_format;
mod partial;
mod projection;
pub mod selector;
mod selector_index;
mod shared;
mod transition;
mod waiters;
pub(crate) mod walk;

pub use bookmark::{BookmarkTemplate, JsonTemplate, Marker, ProtobufTemplate};
pub use hub::{Hub, HubPosition, ServedResource, ViewSubscription};
pub use object_format::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};
pub use partial::Partial;
pub use projection::{Projection, ProjectionError};
pub use selector_index::TooManyViews;
pub use shared::{Batch, View, filtered};
pub use transition::seen_as;
pub use waiters::{WaiterList, WatchWaiter};
