//! What one watcher may see, and in what form: selectors, views shared by all who ask alike, and their hub.

mod bookmark;
mod cut;
mod hub;
mod interest;
mod log;
mod partial;
mod rendition;
pub mod selector;
mod transition;
mod wake;
pub(crate) mod walk;

pub use bookmark::{BookmarkTemplate, JsonTemplate, Marker, ProtobufTemplate};
pub use cut::{Projection, ProjectionError};
pub use hub::{Hub, HubPosition, ServedResource, ViewSubscription};
pub use interest::TooManyViews;
pub use log::{Batch, View, filtered};
pub use partial::Partial;
pub use rendition::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};
pub use transition::seen_as;
pub use wake::{WaiterList, WatchWaiter};
