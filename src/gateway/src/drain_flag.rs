//! Tells all parts of the gateway that its drain has started, and when the watches end. The drain's deadline is in `shutdown`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::view::EndSchedule;

/// The rate at which watches end if there is time for it: enough clients per second for a rollout to take little time, and few enough for
/// the replicas that they go to.
const ENDS_PER_SECOND: u32 = 10;
/// What the ends of watches leave of the time until the deadline, as a part of it and at most: slow clients read what they have not read
/// yet, and the last responses are sent.
const REST_PART: u32 = 5;
const REST_MAX: Duration = Duration::from_secs(3);

/// Set when the gateway starts to drain: watches that end afterwards end because of the drain.
#[derive(Clone, Debug, Default)]
pub(super) struct DrainFlag(Arc<watch::Sender<Option<Arc<EndSchedule>>>>);

impl DrainFlag {
    pub(super) fn begin(&self, schedule: &Arc<EndSchedule>) {
        self.0.send_replace(Some(Arc::clone(schedule)));
    }

    pub(super) fn is_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Completes once the flag is set and a time drawn from the schedule is over.
    pub(super) fn end_of_watch(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut begun = self.0.subscribe();
        async move {
            // An error means that the sender is gone; then nothing waits for the result.
            let end = begun.wait_for(Option::is_some).await;
            let end = end
                .ok()
                .and_then(|schedule| Some(schedule.as_ref()?.draw()));
            if let Some(end) = end {
                tokio::time::sleep_until(Instant::from_std(end)).await;
            }
        }
    }
}

/// How long the ends of this many watches may take if the drain must be over after `remaining`, and how long after them the caches end:
/// watches that are late may still end in order. Without a deadline the watches end at once.
pub(super) fn end_times(watches: u64, remaining: Option<Duration>) -> (Duration, Duration) {
    let Some(remaining) = remaining else {
        return (Duration::ZERO, REST_MAX / 2);
    };
    let watches = u32::try_from(watches).unwrap_or(u32::MAX);
    let wanted = Duration::from_secs(1).saturating_mul(watches) / ENDS_PER_SECOND;
    let rest = (remaining / REST_PART).min(REST_MAX);
    (wanted.min(remaining - rest), rest / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_watches_end_soon_and_many_leave_time_for_the_last_responses() {
        let times = |watches, seconds| {
            let remaining = Duration::from_secs(seconds);
            let (length, rest) = end_times(watches, Some(remaining));
            (length.as_millis(), rest.as_millis())
        };
        assert_eq!(times(0, 25), (0, 1_500));
        assert_eq!(times(1, 25), (100, 1_500));
        assert_eq!(times(100, 25), (10_000, 1_500));
        assert_eq!(times(u64::MAX, 25), (22_000, 1_500));
        assert_eq!(times(3_000, 5), (4_000, 500));
        assert_eq!(times(3_000, 0), (0, 0));
        assert_eq!(end_times(3_000, None).0, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn forwarded_watches_end_one_after_the_other() {
        let flag = DrainFlag::default();
        let ends = [flag.end_of_watch(), flag.end_of_watch()];
        let begin = Instant::now();
        let schedule = EndSchedule::new(begin.into_std(), Duration::from_secs(10), 0.0);
        flag.begin(&Arc::new(schedule));
        assert!(flag.is_begun());
        let mut after = Vec::new();
        for end in ends {
            end.await;
            after.push(begin.elapsed().as_secs());
        }
        assert_eq!(after, [0, 6]);
    }
}
