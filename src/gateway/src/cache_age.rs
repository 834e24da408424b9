//! How old a cache may be: the time since upstream last proved that the cache has everything.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How old a cache may be.
///
/// An event, a rising bookmark, a list, or a comparison of all versions proves that the cache has what upstream has. An open watch proves
/// nothing, and neither do its end, an error, or a bookmark of the version that the cache has already: a server sends all of these while its
/// own caches stand still. Where upstream is merely quiet, the driver compares before the cache counts as stale.
#[derive(Debug, Default)]
pub(super) struct CacheAge {
    /// The last proof, or the first watch of a state from before; `None` before both.
    proven_at: Mutex<Option<Instant>>,
}

impl CacheAge {
    pub(super) fn begin(&self) {
        self.proven_at.lock().get_or_insert_with(Instant::now);
    }

    /// Upstream has proved that the cache has everything.
    pub(super) fn prove(&self) {
        *self.proven_at.lock() = Some(Instant::now());
    }

    pub(super) fn forget(&self) {
        *self.proven_at.lock() = None;
    }

    /// The age now; zero before upstream has sent anything.
    pub(super) fn now(&self) -> Duration {
        let proven_at = *self.proven_at.lock();
        proven_at.map_or(Duration::ZERO, |proven_at| proven_at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn only_a_proof_makes_a_cache_young_again() {
        let age = CacheAge::default();
        advance(MINUTE).await;
        assert_eq!(age.now(), Duration::ZERO);
        age.begin();
        advance(MINUTE).await;
        age.begin();
        assert_eq!(age.now(), MINUTE, "watches that are opened prove nothing");
        age.prove();
        assert_eq!(age.now(), Duration::ZERO);
        age.forget();
        advance(MINUTE).await;
        assert_eq!(age.now(), Duration::ZERO, "there is no cache");
    }
}
