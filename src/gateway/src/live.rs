//! Limits of caches that can be changed while the gateway runs.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

/// The present values.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitValues {
    /// A cache that may be older than this is stale.
    pub(super) staleness_bound: Duration,
    /// The time between two pages of a cache that are compared with upstream; zero for no comparison.
    pub(super) drift_interval: Duration,
    /// Resident bytes of the process beyond which no cache is started and some are evicted; 0 means no limit.
    pub(super) memory_max: usize,
    /// How long a cache is kept after its last client has left.
    pub(super) idle_timeout: Duration,
    /// The part of all nodes whose relays send clients here, from 0 to 1.
    pub(super) relay_part: f64,
}

/// The values, shared by all tasks that need them. A task reads them each time, and keeps no copy.
#[derive(Clone, Debug)]
pub(super) struct LiveLimits {
    values: Arc<ArcSwap<LimitValues>>,
    changed: Arc<Notify>,
}

impl LiveLimits {
    pub(super) fn new(values: LimitValues) -> Self {
        Self {
            values: Arc::new(ArcSwap::from_pointee(values)),
            changed: Arc::default(),
        }
    }

    pub(super) fn get(&self) -> LimitValues {
        **self.values.load()
    }

    /// Changes some values. Only one task may do this: a concurrent update could be lost.
    pub(super) fn update(&self, change: impl FnOnce(&mut LimitValues)) {
        let mut values = self.get();
        change(&mut values);
        self.values.store(Arc::new(values));
        self.changed.notify_waiters();
    }

    /// Sleeps for a time that depends on the values. If any of them changes, the sleep starts again from zero. While the time is `None`, it
    /// does not end.
    pub(super) async fn sleep(&self, time: impl Fn(LimitValues) -> Option<Duration>) {
        loop {
            // Created before the values are read, so that no change is missed in between.
            let changed = self.changed.notified();
            let over = async {
                match time(self.get()) {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                () = changed => {}
            }
        }
    }
}

#[cfg(test)]
impl LiveLimits {
    /// Limits that no test reaches.
    pub(super) fn generous() -> Self {
        Self::new(LimitValues {
            staleness_bound: Duration::from_secs(90),
            drift_interval: Duration::ZERO,
            memory_max: 0,
            idle_timeout: Duration::ZERO,
            relay_part: 1.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_follows_the_value_of_the_moment() {
        let limits = LiveLimits::generous();
        let waiting = limits.clone();
        let task = tokio::spawn(async move {
            let interval = |values: LimitValues| values.drift_interval;
            waiting
                .sleep(|values| Some(interval(values)).filter(|time| !time.is_zero()))
                .await;
        });
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(!task.is_finished());
        let begin = tokio::time::Instant::now();
        limits.update(|values| values.drift_interval = Duration::from_secs(600));
        tokio::time::sleep(Duration::from_secs(10)).await;
        limits.update(|values| values.drift_interval = Duration::from_secs(60));
        task.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(70));
    }
}
