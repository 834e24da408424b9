//! Takes the churn generator's steps at their time. Knows the clock, not the objects.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use super::churn::{Act, Churn, Step};
use super::patch::Patch;
use super::storage::{Mode, Part, Preconditions, Target};
use super::store::Store;

/// Steps are taken in bundles of so long: short enough for an even stream, long enough for the timer to be cheap.
const BEAT: Duration = Duration::from_millis(5);
/// After a stall no more than so much is caught up on.
const CATCH_UP_SECONDS_MAX: f64 = 1.0;
/// Steps between two pauses for other tasks.
const BUNDLE_COUNT_MAX: u32 = 64;

/// Makes the first objects.
pub(super) fn seed(store: &Store, churn: &mut Churn) {
    while let Some(step) = churn.seed(now_ns()) {
        take(store, step);
    }
}

/// Changes objects for ever; there is nothing to wait for at the end.
pub(super) async fn run(store: Arc<Store>, mut churn: Churn, per_second: u32) {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut due, mut last) = (0.0, Instant::now());
    loop {
        let now = beat.tick().await;
        let elapsed = now
            .saturating_duration_since(last)
            .as_secs_f64()
            .min(CATCH_UP_SECONDS_MAX);
        last = now;
        due += elapsed * f64::from(per_second);
        let mut bundle = 0;
        while due >= 1.0 {
            due -= 1.0;
            let Some(step) = churn.step(now_ns()) else {
                return;
            };
            take(&store, step);
            bundle += 1;
            if bundle % BUNDLE_COUNT_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// A step that is refused met a client's own write to the same object; the next one goes on.
fn take(store: &Store, step: Step) {
    let target = Target {
        kind_index: step.kind_index,
        key: step.key,
        part: Part::Whole,
        mode: Mode::Keep,
    };
    let outcome = store.write(|storage, stamp| match step.act {
        Act::Create(object) => storage.create(&target, object, stamp),
        Act::Patch(patch) => storage.patch(&target, &Patch::Merge(patch)),
        Act::Delete => storage.delete(&target, &Preconditions::default(), stamp),
    });
    if let Err(refusal) = outcome {
        tracing::debug!(%refusal, "a step of the churn was refused");
    }
}

fn now_ns() -> i128 {
    Timestamp::now().as_nanosecond()
}
