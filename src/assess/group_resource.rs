//! A resource as metrics and audit logs name it: without a version, because all versions share one watch cache.

use std::fmt;
use std::sync::Arc;

use crate::config::CacheLists;
use crate::resource::Gvr;
use crate::resource::groups::{is_built_in, stable_version};

/// Longer names of groups and resources are no names: both are DNS labels or subdomains.
const NAME_LEN_MAX: usize = 253;

/// Group and plural name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupResource {
    pub(super) group: Arc<str>,
    pub(super) resource: Arc<str>,
}

impl GroupResource {
    /// `None` for what cannot be a resource's name.
    pub(super) fn new(group: &str, resource: &str) -> Option<Self> {
        let is_part = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        };
        let is_name = |text: &str| text.len() <= NAME_LEN_MAX && text.bytes().all(is_part);
        (!resource.is_empty() && is_name(group) && is_name(resource)).then(|| Self {
            group: group.into(),
            resource: resource.into(),
        })
    }

    /// Whether the resource is part of every kube-apiserver, so that it has protobuf beside JSON.
    pub(super) fn is_built_in(&self) -> bool {
        is_built_in(&self.group)
    }

    /// Why a gateway forwards the resource, whoever asks; `None` if it may cache it.
    pub(super) fn forward_reason(&self, cached: &CacheLists) -> Option<&'static str> {
        let version = stable_version(&self.group).unwrap_or("v1");
        let gvr = Gvr::new(&self.group, version, &self.resource);
        if gvr.is_events() {
            return Some("events are never cached");
        }
        (!cached.allow(&gvr)).then_some("excluded by --passthrough-resources")
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}
