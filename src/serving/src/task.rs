//! The gateway's long-lived tasks (decision 22): their owner notices when one returns or panics, and restarts it.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use tracing::error;

use crate::metrics::{ByLabel, Label, TaskKind};
use crate::upstream::backoff::Backoff;

/// The message of a panic.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Panic(String);

/// Runs `work` until it returns or panics. What it owns is dropped in both cases; what it shares with others must stay usable.
pub async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
    let mut work = pin!(work);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(Panic(message(&*payload)))),
        },
    )
    .await
}

/// Runs a task that should never return. If it returns or panics, that is counted and logged, and it is restarted after a pause.
pub async fn restart_on_end<W: Future>(
    task: TaskKind,
    ends: &ByLabel<TaskKind>,
    start: impl Fn() -> W,
) -> Infallible {
    let mut backoff = Backoff::brisk();
    loop {
        let ended = catch_panic(start()).await;
        ends.inc(task);
        let panic = ended.err().map(|panic| panic.to_string());
        let wait = backoff.next(Instant::now(), crate::resource::random());
        error!(
            task = task.as_str(),
            panic,
            ?wait,
            "a task has ended unexpectedly; restarting it"
        );
        tokio::time::sleep(wait).await;
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn an_end_is_passed_on_and_a_panic_becomes_its_message() {
        assert_eq!(catch_panic(async { 7 }).await.unwrap(), 7);
        let late = catch_panic(async {
            tokio::task::yield_now().await;
            panic!("number {}", 3)
        });
        let panic: Result<(), Panic> = late.await;
        assert_eq!(panic.unwrap_err().to_string(), "number 3");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_or_panics_is_counted_and_begins_anew() {
        let ends = Metrics::new().unwrap().task_ends();
        let starts = Cell::new(0);
        let task = || async {
            starts.set(starts.get() + 1);
            match starts.get() {
                1 => panic!("planted"),
                2 => {}
                _ => std::future::pending().await,
            }
        };
        let running = restart_on_end(TaskKind::Discovery, &ends, task);
        let third = async {
            while starts.get() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = running => {}
            () = third => {}
        }
        assert_eq!(ends.count(TaskKind::Discovery), 2);
        assert_eq!(ends.count(TaskKind::Admin), 0);
    }
}
