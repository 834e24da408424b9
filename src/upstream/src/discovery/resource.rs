//! A resource as the API server offers it.

use crate::resource::Gvr;

/// One resource type that the server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// Group, version, plural name.
    pub gvr: Gvr,
    /// The kind of its objects, for example `Pod`; empty if the server does not say.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be listed.
    pub list: bool,
    /// Whether it can be watched.
    pub watch: bool,
}

impl DiscoveredResource {
    /// Whether the gateway can cache it, which requires both list and watch.
    #[must_use]
    pub const fn can_be_cached(&self) -> bool {
        self.list && self.watch
    }
}
