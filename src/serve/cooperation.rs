//! Work on a list before its answer begins, in steps: other tasks have their turn between them.

use std::task::Poll;

use tokio::task::yield_now;

/// Takes steps until one is the last.
pub(super) async fn run_in_steps<T>(mut step: impl FnMut() -> Poll<T>) -> T {
    loop {
        match step() {
            Poll::Ready(done) => return done,
            Poll::Pending => yield_now().await,
        }
    }
}
