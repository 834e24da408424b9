//! How much memory must be free before a cache is filled: pure.

/// What the next cache of a slot needs.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    /// Bytes of the objects of the cache, or of what was collected for it, when it was last evicted, unless one has been served since. Its
    /// history needs no room: it can be given back.
    len: usize,
    /// Whether the next cache takes the place of one that ends at this moment.
    is_replacing: bool,
}

impl Headroom {
    /// Bytes that the next cache will take, as far as they are known.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes that must be free below the step that cuts histories; `None` for a cache that only replaces another.
    pub(super) fn of_further_cache(&self) -> Option<usize> {
        (!self.is_replacing).then_some(self.len)
    }

    /// An attempt has ended. A cache that was served has shown that there is room for it.
    pub(super) const fn end_attempt(&mut self, was_served: bool) {
        self.is_replacing = false;
        if was_served {
            self.len = 0;
        }
    }

    /// The next attempt follows at once.
    pub(super) const fn replace_cache(&mut self) {
        self.is_replacing = true;
    }

    /// The next cache found no room for as much, and was not begun. What was true minutes ago must not keep it out for good.
    pub(super) const fn age(&mut self) {
        self.len = self.len / 4 * 3;
    }

    /// The cache was evicted, and its objects took this much.
    pub(super) const fn evict(&mut self, len: usize) {
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_cache_needs_what_it_took() {
        let mut headroom = Headroom::default();
        assert_eq!(headroom.of_further_cache(), Some(0));
        headroom.end_attempt(true);
        headroom.evict(300);
        assert_eq!(headroom.of_further_cache(), Some(300));
        headroom.end_attempt(false);
        assert_eq!(headroom.of_further_cache(), Some(300));
    }

    #[test]
    fn the_headroom_of_an_evicted_cache_ages() {
        let mut headroom = Headroom::default();
        headroom.evict(300);
        headroom.age();
        assert_eq!(headroom.len(), 225);
        (0..20).for_each(|_| headroom.age());
        assert!(headroom.len() < 4);
    }

    #[test]
    fn a_cache_that_was_evicted_and_served_again_is_replaced_like_any_other() {
        let mut headroom = Headroom::default();
        headroom.evict(300);
        headroom.end_attempt(true);
        headroom.replace_cache();
        assert_eq!((headroom.of_further_cache(), headroom.len()), (None, 0));
    }

    #[test]
    fn only_the_attempt_that_follows_at_once_replaces() {
        let mut headroom = Headroom::default();
        headroom.replace_cache();
        headroom.end_attempt(false);
        assert_eq!(headroom.of_further_cache(), Some(0));
    }
}
