//! The objects and events that a client sees, and their form: selectors, projections, and views that watches share.
//!
//! A [`Selector`](crate::selector::Selector) says which objects a request selects, and a [`Projection`] turns them into the form that it
//! requested. A [`View`] holds the frames of the events that watches with the same selector and form see. The [`Hub`] of a
//! resource receives each batch of events from the cache and lays it out in the views that show some of it; an index over the
//! selectors (`selector_index`) finds these views. A watch waits in its view's [`WaiterList`]. `walk` iterates over the objects in a
//! selector's scope, for lists and initial events.
//!
//! Start with [`Hub`], whose documentation says why a watch that joins during a dispatch misses nothing, then read [`View`].

mod bookmark;
mod compressed;
mod end_schedule;
mod hub;
mod object_format;
mod partial;
mod projection;
mod selector_index;
mod shared;
mod transition;
mod waiters;
pub mod walk;

pub use bookmark::{BookmarkTemplate, JsonTemplate, Marker, ProtobufTemplate};
pub use compressed::{
    BatchBlock, CompressedWatch, GzipWeight, REACH, STORED_LEN_MAX, SYNC, stored_head,
};
pub use end_schedule::EndSchedule;
pub use hub::{Hub, HubPosition, ServedResource, ViewSubscription};
pub use object_format::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};
pub use partial::Partial;
pub use projection::{Projection, ProjectionError};
pub use selector_index::TooManyViews;
pub use shared::{Batch, View, filtered};
pub use transition::seen_as;
pub use waiters::{WaiterList, WatchWaiter};
