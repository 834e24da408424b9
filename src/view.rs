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

pub use bookmark::{BookmarkShape, JsonShape, Marker, ProtobufShape};
pub use cut::{Cut, CutError};
pub use hub::{Entry, Hub, Reached, Served};
pub use interest::Crowded;
pub use log::{Batch, View, filtered};
pub use partial::Partial;
pub use rendition::{Form, ManagedFields, MetaVersion, Rendition};
pub use transition::seen_as;
pub use wake::{Seat, WakeList};
