//! Writes the churn generator's steps to the store at the configured rate, and advances the caches of idle kinds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::churn::{Churn, ChurnStep, ChurnWrite};
use super::patch::Patch;
use super::storage::{
    Preconditions, Stamp, Storage, WritablePart, WriteMode, WriteOutcome, WriteTarget,
};
use super::store::Store;
use crate::protocol::status::Status;

/// Time between two turns of writes: short enough for an even stream, long enough for the timer to be cheap.
const TICK_PERIOD: Duration = Duration::from_millis(5);
/// At most this much missed time is made up for after a stall.
const CATCH_UP_SECONDS_MAX: f64 = 1.0;
/// Steps that are written while the store is locked once; it bounds how long other writers and readers wait.
const BATCH_COUNT_MAX: usize = 64;
/// How often the caches of idle kinds advance to the global revision: more often than bookmarks are due, and cheap.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Creates the initial objects.
pub(super) fn seed(store: &Store, churn: &mut Churn) {
    loop {
        let steps: Vec<ChurnStep> = std::iter::from_fn(|| churn.seed(now_ns()))
            .take(BATCH_COUNT_MAX)
            .collect();
        if steps.is_empty() {
            return;
        }
        apply(store, steps);
    }
}

/// Advances all caches to the global revision periodically. Never returns; the task is aborted with the server.
pub(super) async fn progress(store: Arc<Store>) {
    let mut tick = tokio::time::interval(PROGRESS_PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        store.progress_all();
    }
}

/// Changes objects at the latest rate from the channel. Returns when the sender is dropped and the rate is 0.
pub(super) async fn run(store: Arc<Store>, mut churn: Churn, mut rate: watch::Receiver<u32>) {
    loop {
        if rate.wait_for(|rate| *rate > 0).await.is_err() {
            return;
        }
        let mut tick = tokio::time::interval(TICK_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut due, mut last) = (0.0, Instant::now());
        loop {
            let now = tick.tick().await;
            let per_second = *rate.borrow_and_update();
            if per_second == 0 {
                break;
            }
            let elapsed = now
                .saturating_duration_since(last)
                .as_secs_f64()
                .min(CATCH_UP_SECONDS_MAX);
            last = now;
            due += elapsed * f64::from(per_second);
            // What was missed is not made up for once nothing is to be written.
            while due >= 1.0 && *rate.borrow() > 0 {
                let mut steps = Vec::new();
                while due >= 1.0 && steps.len() < BATCH_COUNT_MAX {
                    due -= 1.0;
                    steps.extend(churn.step(now_ns()));
                }
                apply(&store, steps);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Writes steps to the store. A step is refused if a client has changed or deleted the same object; later steps are unaffected.
fn apply(store: &Store, steps: Vec<ChurnStep>) {
    let write = |step: ChurnStep| {
        move |storage: &mut Storage, stamp: Stamp<'_>| write_step(storage, step, stamp)
    };
    for refusal in store.write_all(steps.into_iter().map(write)) {
        tracing::debug!(%refusal, "the store refused a churn write");
    }
}

fn write_step(
    storage: &mut Storage,
    step: ChurnStep,
    stamp: Stamp<'_>,
) -> Result<WriteOutcome, Status> {
    let target = WriteTarget {
        kind_index: step.kind_index,
        key: step.key,
        part: WritablePart::Whole,
        mode: WriteMode::Keep,
    };
    match step.act {
        ChurnWrite::Create(object) => storage.create(&target, object, stamp),
        ChurnWrite::Patch(patch) => storage.patch(&target, &Patch::Merge(patch)),
        ChurnWrite::Delete => storage.delete(&target, &Preconditions::default(), stamp),
    }
}

fn now_ns() -> i128 {
    Timestamp::now().as_nanosecond()
}
