//! The check at the end of a test: after the last write every reader must receive all events, although no later event wakes it.

use std::time::{Duration, Instant};

use kube_fanout::quiet::{BOUND, Silence};

/// The period between two checks.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Waits until `missing` is empty, or until nothing has arrived for [`BOUND`]; returns what is still missing. `received` is the number
/// of arrivals at all readers so far.
pub(crate) async fn missing_in_quiet(
    mut missing: impl AsyncFnMut() -> Vec<String>,
    received: impl Fn() -> u64,
) -> Vec<String> {
    let start = Instant::now();
    let mut silence = Silence::begin(received(), start.elapsed());
    loop {
        let still_missing = missing().await;
        if still_missing.is_empty() || silence.look(received(), start.elapsed()) >= BOUND {
            return still_missing;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}
