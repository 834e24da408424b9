//! Whether a collection has changed since a version, as far as a cache of its resource knows. Pure.

use std::ops::ControlFlow;

use crate::cache::WatchCache;
use crate::resource::ResourceVersion;

/// Events that are looked at: more are not worth the time of asking upstream.
const EVENTS_MAX: usize = 4_096;

/// Whether the cache knows that no object of `namespace`, of all if there is none, has changed since `version`.
#[must_use]
pub fn is_unchanged(cache: &WatchCache, namespace: Option<&str>, version: ResourceVersion) -> bool {
    let Ok(first) = cache.resume_after(version) else {
        return false;
    };
    let mut left = EVENTS_MAX;
    let mut has_changed = false;
    let read = cache.history().read(first, |_, event| {
        let key = event.object().key();
        left -= 1;
        has_changed = left == 0 || namespace.is_none_or(|namespace| key.namespace() == namespace);
        if has_changed {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    read.is_ok() && !has_changed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::samples::{Recorder, World};

    #[test]
    fn a_collection_is_unchanged_if_nothing_of_its_namespace_has_happened() {
        let mut world = World::new(7, 100, Arc::new(Recorder::default()));
        let cache = Arc::clone(world.writer.cache());
        let write = |world: &mut World, key: &str| {
            let change = world.write(key, None);
            world.apply(vec![change]);
            ResourceVersion(world.version)
        };
        let first = write(&mut world, "a/1");
        assert!(is_unchanged(&cache, Some("a"), first));
        assert!(is_unchanged(&cache, None, first));
        let second = write(&mut world, "b/1");
        assert!(is_unchanged(&cache, Some("a"), first));
        assert!(!is_unchanged(&cache, Some("b"), first));
        assert!(!is_unchanged(&cache, None, first));
        assert!(is_unchanged(&cache, None, second));
        let deletion = world.delete("a/1").unwrap();
        world.apply(vec![deletion]);
        assert!(!is_unchanged(&cache, Some("a"), second));
        assert!(is_unchanged(&cache, Some("b"), second));
    }

    #[test]
    fn what_the_history_does_not_reach_may_have_changed() {
        let mut world = World::new(7, 4, Arc::new(Recorder::default()));
        let cache = Arc::clone(world.writer.cache());
        let first = ResourceVersion(world.version);
        for _ in 0..100 {
            world.step();
        }
        assert!(!is_unchanged(&cache, Some("no-such-namespace"), first));
        world.lose_and_relist();
        assert!(!is_unchanged(&cache, Some("no-such-namespace"), first));
    }
}
