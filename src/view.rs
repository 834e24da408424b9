//! What one watcher may see, and in what form: selectors, views shared by all who ask alike, and their hub.

mod bookmark;
mod hub;
mod log;
mod partial;
pub mod selector;
mod transition;
mod wake;

pub use bookmark::{BookmarkShape, Marker};
pub use hub::{Entry, Hub, HubSizes, Reached, Served};
pub use log::{Batch, View, filtered};
pub use partial::{Form, MetaVersion, Partial};
pub use transition::seen_as;
pub use wake::{Seat, WakeList};
