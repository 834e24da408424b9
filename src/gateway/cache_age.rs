//! How old a cache may be: the time since upstream last proved that the cache has everything.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// How old a cache may be.
///
/// Whatever arrives proves that the watch is alive. A quiet resource gets a bookmark each minute, so silence counts. An API server that
/// sends no bookmarks may be silent for as long as the watch lasts; there, only a lost watch counts, which keep-alive finds.
#[derive(Debug, Default)]
pub(super) struct CacheAge(Mutex<AgeState>);

#[derive(Debug, Default)]
struct AgeState {
    /// The last proof; `None` before the first one.
    proven_at: Option<Instant>,
    is_connected: bool,
    sends_bookmarks: bool,
}

impl CacheAge {
    fn state(&self) -> MutexGuard<'_, AgeState> {
        self.0.lock()
    }

    /// Something has arrived.
    pub(super) fn received(&self) {
        self.state().proven_at = Some(Instant::now());
    }

    /// A bookmark has arrived.
    pub(super) fn bookmark(&self) {
        self.state().sends_bookmarks = true;
    }

    /// Upstream has accepted the watch.
    pub(super) fn connected(&self) {
        let mut state = self.state();
        state.is_connected = true;
        state.proven_at = Some(Instant::now());
    }

    /// The watch has ended; `is_complete`: upstream ended it in order.
    pub(super) fn disconnected(&self, is_complete: bool) {
        let mut state = self.state();
        if state.is_connected && (is_complete || !state.sends_bookmarks) {
            state.proven_at = Some(Instant::now());
        }
        state.is_connected = false;
    }

    /// The age now; zero before upstream has sent anything.
    pub(super) fn now(&self) -> Duration {
        let state = self.state();
        if state.is_connected && !state.sends_bookmarks {
            return Duration::ZERO;
        }
        state
            .proven_at
            .map_or(Duration::ZERO, |proven_at| proven_at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn silence_counts_where_bookmarks_are_sent() {
        let age = CacheAge::default();
        advance(MINUTE).await;
        assert_eq!(age.now(), Duration::ZERO);
        age.connected();
        age.received();
        age.bookmark();
        advance(MINUTE).await;
        assert_eq!(age.now(), MINUTE);
        age.received();
        assert_eq!(age.now(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_bookmarks_only_a_lost_watch_counts() {
        let age = CacheAge::default();
        age.connected();
        advance(MINUTE).await;
        assert_eq!(age.now(), Duration::ZERO);
        age.disconnected(false);
        advance(MINUTE).await;
        assert_eq!(age.now(), MINUTE);
        // Attempts that fail prove nothing.
        age.disconnected(false);
        assert_eq!(age.now(), MINUTE);
        age.connected();
        assert_eq!(age.now(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_in_order_was_complete_until_then() {
        let age = CacheAge::default();
        for (is_complete, expected) in [(true, Duration::ZERO), (false, MINUTE)] {
            age.connected();
            age.bookmark();
            advance(MINUTE).await;
            age.disconnected(is_complete);
            assert_eq!(age.now(), expected);
        }
    }
}
