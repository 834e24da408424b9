//! Runs a worker. If the worker panics, its streams end and another worker replaces it (decision 22).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::worker::DeliveryWorker;
use crate::metrics::{ByLabel, TaskKind};

/// Runs a worker and replaces it when it panics.
#[derive(Debug)]
pub(super) struct Supervisor {
    worker: DeliveryWorker,
    ends: Option<ByLabel<TaskKind>>,
}

impl Supervisor {
    pub(super) fn new(worker: DeliveryWorker, ends: Option<ByLabel<TaskKind>>) -> Self {
        Self { worker, ends }
    }

    fn replace(&mut self, panic: &(dyn Any + Send)) {
        let worker = DeliveryWorker::replacement_for(&mut self.worker);
        let failed = std::mem::replace(&mut self.worker, worker);
        tracing::error!(
            streams = failed.stream_count(),
            panic = message(panic),
            "a delivery worker panicked: its streams are closed and a new worker replaces it"
        );
        if let Some(ends) = &self.ends {
            ends.inc(TaskKind::DeliveryWorker);
        }
        // Dropping the failed worker may panic again, because its state may be inconsistent.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(failed)));
    }
}

impl Future for Supervisor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let worker = Pin::new(&mut self.worker);
        // Unwind-safe: state that may be inconsistent belongs to the worker, which is dropped.
        let polled = catch_unwind(AssertUnwindSafe(|| worker.poll(context)));
        polled.unwrap_or_else(|panic| {
            self.replace(&*panic);
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

/// The message of a panic, if it is text.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("")
}
