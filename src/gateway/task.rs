//! Panics in a long-lived task reach its owner, as its end does.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The message of a panic.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Panic(String);

/// Runs `work` to its end or to its panic. What it owned is dropped in both cases; what it shared must stay usable.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
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

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_is_passed_on_and_a_panic_becomes_its_message() {
        assert_eq!(caught(async { 7 }).await.unwrap(), 7);
        let late = caught(async {
            tokio::task::yield_now().await;
            panic!("number {}", 3)
        });
        let panic: Result<(), Panic> = late.await;
        assert_eq!(panic.unwrap_err().to_string(), "number 3");
    }
}
