//! Work that blocks: on the runtime's threads for it, or under the feature `sim` as a task, so that one thread runs everything in one
//! order (decision 45).

#[cfg(feature = "gateway")]
use std::{future::Future, io};

#[cfg(feature = "gateway")]
use tokio::runtime::Handle;
#[cfg(not(feature = "sim"))]
pub use tokio::task::spawn_blocking;

#[cfg(feature = "sim")]
pub fn spawn_blocking<F, T>(work: F) -> tokio::task::JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::spawn(async move { work() })
}

/// Waits on a thread for blocking work.
///
/// # Errors
/// If a simulation would have to wait.
#[cfg(all(feature = "gateway", not(feature = "sim")))]
pub fn block_on<F: Future>(runtime: &Handle, future: F) -> io::Result<F::Output> {
    Ok(runtime.block_on(future))
}

#[cfg(all(feature = "gateway", feature = "sim"))]
pub fn block_on<F: Future>(_: &Handle, future: F) -> io::Result<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Ok(output),
        std::task::Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
