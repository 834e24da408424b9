//! The labels that identify a cached resource.

use crate::resource::CacheKey;

/// The labels that identify a cached resource in one encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceLabels<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// The encoding in which the cache holds objects: `json` or `protobuf`.
    pub encoding: &'a str,
}

impl<'a> From<&'a CacheKey> for ResourceLabels<'a> {
    fn from(key: &'a CacheKey) -> Self {
        let gvr = &key.gvr;
        Self {
            group: &gvr.group,
            version: &gvr.version,
            resource: &gvr.resource,
            encoding: key.encoding.as_str(),
        }
    }
}

impl<'a> ResourceLabels<'a> {
    pub(super) const NAMES: [&'static str; 4] = ["group", "version", "resource", "encoding"];

    pub(super) fn of([group, version, resource, encoding]: &'a [Box<str>; 4]) -> Self {
        Self {
            group,
            version,
            resource,
            encoding,
        }
    }

    pub(super) const fn values(&self) -> [&'a str; 4] {
        [self.group, self.version, self.resource, self.encoding]
    }
}
