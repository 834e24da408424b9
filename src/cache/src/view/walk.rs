//! A walk over the objects in a selector's scope: one object, one namespace, or all.

use std::sync::Arc;

use crate::cache::{Chunk, MapPosition, ObjectMap};
use crate::resource::{Object, ResourceKind};
use crate::selector::Selector;

/// The position of a walk. Valid for one map, which the caller passes to each step.
#[derive(Clone, Debug)]
pub struct Walk {
    position: MapPosition,
    scope: WalkScope,
}

#[derive(Clone, Debug)]
enum WalkScope {
    /// The object with this key, which was not visited yet.
    One(String),
    /// All keys with this prefix.
    Prefixed(String),
    Done,
}

impl Walk {
    /// A walk from the start of the selector's scope, or from `start`, a key relative to the scope.
    pub fn new(
        objects: &ObjectMap,
        selector: &Selector,
        kind: &ResourceKind,
        start: Option<&str>,
    ) -> Self {
        let prefix = prefix_of(selector);
        if let Some(name) = only_name(selector, kind, start) {
            return Self {
                position: MapPosition::default(),
                scope: WalkScope::One(format!("{prefix}{name}")),
            };
        }
        let position = objects.place_from(&format!("{prefix}{}", start.unwrap_or_default()));
        Self {
            position,
            scope: WalkScope::Prefixed(prefix),
        }
    }

    /// The next object in scope, whether it matches or not.
    pub fn next<'a>(&mut self, objects: &'a ObjectMap) -> Option<&'a Object> {
        match &self.scope {
            WalkScope::One(key) => {
                let object = objects.object(key);
                self.scope = WalkScope::Done;
                object
            }
            WalkScope::Prefixed(prefix) => objects
                .next(&mut self.position)
                .filter(|object| object.key().starts_with(prefix)),
            WalkScope::Done => None,
        }
    }

    /// The next chunk, if all of it is in scope.
    pub fn next_chunk<'a>(&mut self, objects: &'a ObjectMap) -> Option<&'a Arc<Chunk>> {
        match &self.scope {
            WalkScope::Prefixed(prefix) => objects.next_chunk(&mut self.position, prefix),
            WalkScope::One(_) | WalkScope::Done => None,
        }
    }

    /// Whether the walk is at the start of a chunk.
    pub fn is_at_chunk(&self, objects: &ObjectMap) -> bool {
        objects.is_at_chunk(self.position)
    }

    /// The number of objects in scope from here on.
    pub fn count_ahead(&self, objects: &ObjectMap) -> usize {
        match &self.scope {
            WalkScope::One(key) => usize::from(objects.object(key).is_some()),
            WalkScope::Prefixed(prefix) => objects.count_prefixed(self.position, prefix),
            WalkScope::Done => 0,
        }
    }
}

/// The name of the only object that a walk visits, if it visits no more than one.
pub fn only_name<'a>(
    selector: &'a Selector,
    kind: &ResourceKind,
    start: Option<&str>,
) -> Option<&'a str> {
    let is_scoped = selector.namespace.is_some() || !kind.namespaced;
    selector
        .fields
        .pinned_name()
        .filter(|_| is_scoped && start.is_none())
}

/// The prefix of all keys in a selector's namespace; empty for all namespaces.
pub fn prefix_of(selector: &Selector) -> String {
    selector
        .namespace
        .as_ref()
        .map_or_else(String::new, |namespace| format!("{namespace}/"))
}
