//! Work that blocks: on the runtime's threads for it, or under `--cfg fanout_sim` as a task, so that one thread runs everything in one
//! order (decision 45).

#[cfg(not(fanout_sim))]
pub(crate) use tokio::task::spawn_blocking;

#[cfg(fanout_sim)]
pub(crate) fn spawn_blocking<F, T>(work: F) -> tokio::task::JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::spawn(async move { work() })
}
