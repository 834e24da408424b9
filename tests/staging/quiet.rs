//! The quiet end: nobody writes any more, and then everybody must have everything, although no further event pushes it out.

use std::time::{Duration, Instant};

use kube_fanout::quiet::{BOUND, Silence};

/// From look to look.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Waits until nothing is missing, or nothing comes any more; what is missing then.
pub(crate) async fn missing_in_quiet(
    mut missing: impl AsyncFnMut() -> Vec<String>,
    came: impl Fn() -> u64,
) -> Vec<String> {
    let begun = Instant::now();
    let mut silence = Silence::begin(came(), begun.elapsed());
    loop {
        let left = missing().await;
        if left.is_empty() || silence.look(came(), begun.elapsed()) >= BOUND {
            return left;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}
