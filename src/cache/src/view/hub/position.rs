//! How far the views of a resource have got.

use crate::cache::Sequence;
use crate::resource::ResourceVersion;

/// How far a resource's views have got. Both values change together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubPosition {
    /// The views have all events with a lower sequence.
    pub through: Sequence,
    /// The corresponding version. Bookmarks may carry it after its events were delivered.
    pub version: ResourceVersion,
}
