//! The quiet end: nobody writes any more, and then everybody must have everything, although no further event pushes it out.

use std::time::{Duration, Instant};

/// So long nothing may come while something is missing: far less than the minute after which a bookmark would bring it.
const BOUND: Duration = Duration::from_secs(1);
/// From look to look.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How much silence one look may prove: a machine that kept us from looking may have kept the gateway from sending.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// Writes of a burst, and bytes of each object: none of them alone fills what is sent in one go, some together do.
pub(crate) const BURSTS: [(usize, usize); 4] = [(1, 100), (2, 70_000), (4, 70_000), (20, 20_000)];

/// Waits until nothing is missing, or nothing comes any more; what is missing then.
pub(crate) async fn missing_in_quiet(
    mut missing: impl AsyncFnMut() -> Vec<String>,
    came: impl Fn() -> u64,
) -> Vec<String> {
    let (mut seen, mut silence, mut looked_at) = (came(), Duration::ZERO, Instant::now());
    loop {
        let left = missing().await;
        if left.is_empty() || silence >= BOUND {
            return left;
        }
        silence += looked_at.elapsed().min(LOOK_MAX);
        looked_at = Instant::now();
        if came() != seen {
            (seen, silence) = (came(), Duration::ZERO);
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}
