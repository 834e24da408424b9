//! The same step with several servers at the same time, so that one that drops packets does not use up the time of the check.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// A server that is to answer a small request needs a fraction of this. TCP, TLS and a request together stay below the 10 s of a check.
pub(super) const STEP_TIME_MAX: Duration = Duration::from_secs(3);
/// As many API servers as can be configured, and as many gateways as are asked.
pub(super) const SERVERS_MAX: usize = 16;

/// Makes these steps, [`SERVERS_MAX`] at most, and returns what they yield in their order.
pub(super) async fn at_once<T: Send + 'static>(
    steps: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = JoinSet::new();
    for (index, step) in steps.into_iter().take(SERVERS_MAX).enumerate() {
        running.spawn(async move { (index, step.await) });
    }
    let mut yielded: Vec<(usize, T)> = Vec::new();
    while let Some(ended) = running.join_next().await {
        // A task that panics has found nothing.
        yielded.extend(ended.ok());
    }
    yielded.sort_by_key(|(index, _)| *index);
    yielded.into_iter().map(|(_, one)| one).collect()
}

/// What the step yields; `None` if it takes too long.
pub(super) async fn in_time<T>(step: impl Future<Output = T>) -> Option<T> {
    timeout(STEP_TIME_MAX, step).await.ok()
}
