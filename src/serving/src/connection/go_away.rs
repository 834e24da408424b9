//! Ends a connection in order.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Makes one connection accept no more requests; its open requests are finished. Over HTTP/2 the client gets GOAWAY, over HTTP/1.1 a
/// response with `Connection: close`. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct GoAway(Arc<GoAwayState>);

#[derive(Debug, Default)]
struct GoAwayState {
    begun: OnceLock<()>,
    /// Wakes the connection's task, the only one that waits.
    wake: Notify,
}

impl GoAway {
    /// The connection accepts no more requests. Later calls have no effect.
    pub(super) fn begin(&self) {
        if self.0.begun.set(()).is_ok() {
            self.0.wake.notify_one();
        }
    }

    /// Whether the connection accepts no more requests.
    pub(super) fn is_begun(&self) -> bool {
        self.0.begun.get().is_some()
    }

    /// Completes once it has begun. Safe to cancel.
    pub(super) async fn begun(&self) {
        if !self.is_begun() {
            // The permit of an earlier notification is kept, so none is missed in between.
            self.0.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_is_woken_whether_it_waits_already_or_not() {
        let go_away = GoAway::default();
        assert!(!go_away.is_begun());
        let other = go_away.clone();
        let waiting = tokio::spawn(async move { other.begun().await });
        tokio::task::yield_now().await;
        go_away.begin();
        waiting.await.unwrap();
        go_away.begun().await;
        assert!(go_away.is_begun());
    }
}
