//! The objects that a request selects: scope, label selector, field selector, shard. This module parses and matches.

use crate::resource::Object;
pub use crate::resource::quoted;

mod field;
mod label;
mod shard;

pub use field::{FieldSelector, pinned_in};
#[cfg(any(test, feature = "testing"))]
pub use label::EVALUATED;
pub use label::{LabelSelector, LabelValues};
pub use shard::ShardSelector;

/// All conditions of a list or watch on one resource. Selectors that are equal in canonical form share a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The namespace of the path; `None` for all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Conditions on labels.
    pub labels: LabelSelector,
    /// Conditions on fields.
    pub fields: FieldSelector,
    /// A shard of the objects, if upstream supports shards.
    pub shard: Option<ShardSelector>,
}

impl Selector {
    /// Whether the object is in scope and meets all conditions.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| namespace == object.key().namespace())
            && self.fields.matches(object)
            && self.labels.matches(object)
            && self
                .shard
                .as_ref()
                .is_none_or(|shard| shard.matches(object))
    }

    /// Maximum number of conditions evaluated for an object, without its namespace: terms, and ranges of the shard.
    #[must_use]
    pub fn term_count(&self) -> usize {
        let ranges = self.shard.as_ref().map_or(0, ShardSelector::range_count);
        self.labels.term_count() + self.fields.term_count() + ranges
    }

    /// Whether every object of the resource matches.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.is_scope()
    }

    /// Whether every object in scope matches: of the namespace, or of the resource if there is no namespace.
    #[must_use]
    pub fn is_scope(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod samples;

#[cfg(test)]
mod tests;
