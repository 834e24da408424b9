//! A walk over the objects that a selector's scope can hold: one object, one namespace, or all.

use std::sync::Arc;

use crate::cache::{Chunk, MapPosition, ObjectMap};
use crate::resource::{Object, ResourceKind};
use crate::view::selector::Selector;

/// Where a walk is. Valid for one map; the map is given to each step.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    place: MapPosition,
    scope: WalkScope,
}

#[derive(Clone, Debug)]
enum WalkScope {
    /// The object with this key, not looked at yet.
    One(String),
    /// All keys that start so.
    Prefixed(String),
    Done,
}

impl Walk {
    /// From the start of the selector's scope, or from `start`, a key relative to the scope.
    pub(crate) fn new(
        objects: &ObjectMap,
        selector: &Selector,
        kind: &ResourceKind,
        start: Option<&str>,
    ) -> Self {
        let prefix = prefix_of(selector);
        let scoped = selector.namespace.is_some() || !kind.namespaced;
        if let (Some(name), true, None) = (selector.fields.pinned_name(), scoped, start) {
            return Self {
                place: MapPosition::default(),
                scope: WalkScope::One(format!("{prefix}{name}")),
            };
        }
        let place = objects.place_from(&format!("{prefix}{}", start.unwrap_or_default()));
        Self {
            place,
            scope: WalkScope::Prefixed(prefix),
        }
    }

    /// The next object in scope, whether it matches or not.
    pub(crate) fn next<'a>(&mut self, objects: &'a ObjectMap) -> Option<&'a Object> {
        match &self.scope {
            WalkScope::One(key) => {
                let object = objects.object(key);
                self.scope = WalkScope::Done;
                object
            }
            WalkScope::Prefixed(prefix) => objects
                .next(&mut self.place)
                .filter(|object| object.key().starts_with(prefix)),
            WalkScope::Done => None,
        }
    }

    /// The chunk that comes next, if it lies wholly in scope.
    pub(crate) fn next_chunk<'a>(&mut self, objects: &'a ObjectMap) -> Option<&'a Arc<Chunk>> {
        match &self.scope {
            WalkScope::Prefixed(prefix) => objects.next_chunk(&mut self.place, prefix),
            WalkScope::One(_) | WalkScope::Done => None,
        }
    }

    /// Whether a chunk starts here.
    pub(crate) fn is_at_chunk(&self, objects: &ObjectMap) -> bool {
        objects.is_at_chunk(self.place)
    }

    /// How many objects in scope lie ahead.
    pub(crate) fn count_ahead(&self, objects: &ObjectMap) -> usize {
        match &self.scope {
            WalkScope::One(key) => usize::from(objects.object(key).is_some()),
            WalkScope::Prefixed(prefix) => objects.count_prefixed(self.place, prefix),
            WalkScope::Done => 0,
        }
    }
}

/// What the keys of a selector's namespace start with; empty for all.
pub(crate) fn prefix_of(selector: &Selector) -> String {
    selector
        .namespace
        .as_ref()
        .map_or_else(String::new, |namespace| format!("{namespace}/"))
}
