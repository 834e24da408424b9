//! Runs the work on a list before its response starts in steps, so that other tasks can run in between.

use std::task::Poll;

use tokio::task::yield_now;

/// Runs `step` until it is ready, and yields after each step.
pub(super) async fn run_in_steps<T>(mut step: impl FnMut() -> Poll<T>) -> T {
    loop {
        match step() {
            Poll::Ready(output) => return output,
            Poll::Pending => yield_now().await,
        }
    }
}
