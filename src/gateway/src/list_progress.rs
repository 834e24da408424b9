//! How far a list from upstream has come, for those who wait for it: in the log if it takes long, in `/readyz` and in the status.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lists that are complete sooner need no report.
const FIRST_REPORT: Duration = Duration::from_secs(2);
/// Often enough to show that the list goes on, and only a dozen lines a minute.
const REPORT_PERIOD: Duration = Duration::from_secs(5);

/// How far the list of one resource has come.
#[derive(Debug, Default)]
pub(super) struct ListProgress(Mutex<Option<RunningList>>);

#[derive(Clone, Copy, Debug)]
struct RunningList {
    began: Instant,
    report_at: Instant,
    objects: usize,
}

impl ListProgress {
    /// A list begins, or begins again.
    pub(super) fn begin(&self) {
        let began = Instant::now();
        *self.0.lock() = Some(RunningList {
            began,
            report_at: began + FIRST_REPORT,
            objects: 0,
        });
    }

    /// Notes how many objects have been received. Returns how long that has taken, if a report is due.
    pub(super) fn received(&self, objects: usize) -> Option<Duration> {
        let now = Instant::now();
        let mut running = self.0.lock();
        let list = running.as_mut()?;
        list.objects = objects;
        if now < list.report_at {
            return None;
        }
        list.report_at = now + REPORT_PERIOD;
        Some(now.saturating_duration_since(list.began))
    }

    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// The objects that have been received; `None` if there are none, or if no list is running.
    pub(super) fn objects(&self) -> Option<usize> {
        let running = *self.0.lock();
        running.map(|list| list.objects).filter(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_is_reported_after_two_seconds_and_then_every_five() {
        let progress = ListProgress::default();
        progress.begin();
        let mut reports = Vec::new();
        for half_seconds in 1..=30 {
            advance(Duration::from_millis(500)).await;
            reports.extend(progress.received(half_seconds * 100));
        }
        assert_eq!(reports, [2, 7, 12].map(Duration::from_secs));
        assert_eq!(progress.objects(), Some(3_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_list_is_not_reported_and_another_one_begins_at_zero() {
        let progress = ListProgress::default();
        assert_eq!(progress.received(7), None);
        progress.begin();
        advance(Duration::from_secs(1)).await;
        assert_eq!(progress.received(500), None);
        progress.end();
        assert_eq!(progress.objects(), None);
        advance(Duration::from_secs(60)).await;
        progress.begin();
        assert_eq!(
            (progress.received(100), progress.objects()),
            (None, Some(100))
        );
    }
}
