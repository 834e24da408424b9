//! Takes the churn generator's steps at their time, and tells idle kinds how far they are. Knows the clock, not the
//! objects.

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

/// Steps are taken in bundles of so long: short enough for an even stream, long enough for the timer to be cheap.
const BEAT: Duration = Duration::from_millis(5);
/// After a stall no more than so much is caught up on.
const CATCH_UP_SECONDS_MAX: f64 = 1.0;
/// Steps under one lock: other writers and readers wait for no longer.
const BUNDLE_COUNT_MAX: usize = 64;
/// How often idle kinds are told the global revision: fresher than any bookmark, and next to nothing to do.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Makes the first objects.
pub(super) fn seed(store: &Store, churn: &mut Churn) {
    loop {
        let steps: Vec<ChurnStep> = std::iter::from_fn(|| churn.seed(now_ns()))
            .take(BUNDLE_COUNT_MAX)
            .collect();
        if steps.is_empty() {
            return;
        }
        take(store, steps);
    }
}

/// Tells all kinds the global revision for ever; there is nothing to wait for at the end.
pub(super) async fn progress(store: Arc<Store>) {
    let mut tick = tokio::time::interval(PROGRESS_PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        store.progress_all();
    }
}

/// Changes objects at the rate that was last given, until nobody can give one any more.
pub(super) async fn run(store: Arc<Store>, mut churn: Churn, mut rate: watch::Receiver<u32>) {
    loop {
        if rate.wait_for(|rate| *rate > 0).await.is_err() {
            return;
        }
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut due, mut last) = (0.0, Instant::now());
        loop {
            let now = beat.tick().await;
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
            while due >= 1.0 {
                let mut steps = Vec::new();
                while due >= 1.0 && steps.len() < BUNDLE_COUNT_MAX {
                    due -= 1.0;
                    steps.extend(churn.step(now_ns()));
                }
                take(&store, steps);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// A step that is refused met a client's own write to the same object; the next one goes on.
fn take(store: &Store, steps: Vec<ChurnStep>) {
    let write = |step: ChurnStep| {
        move |storage: &mut Storage, stamp: Stamp<'_>| written(storage, step, stamp)
    };
    for refusal in store.write_all(steps.into_iter().map(write)) {
        tracing::debug!(%refusal, "a step of the churn was refused");
    }
}

fn written(
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
