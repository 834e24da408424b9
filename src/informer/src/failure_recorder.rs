//! Counts what the driver and the sink report, and passes failures to the failure hook.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strum::VariantArray;
use tokio::time::Instant;

use super::counts::InformerCounters;
use super::failure::{FailureKind, OnFailure, WatchFailure};
use crate::upstream::driver::{
    Collection, DriverRecorder, FailureReport, FrameRejection, WatchConnection,
};
use crate::upstream::reflector::{Failure, RelistReason};

/// The shortest time between two logged failures of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Records the reads of one collection: counts, and calls of the failure hook.
pub(super) struct FailureRecorder {
    counts: InformerCounters,
    on_failure: OnFailure,
}

impl FailureRecorder {
    pub(super) fn new(counts: InformerCounters, on_failure: OnFailure) -> Self {
        Self { counts, on_failure }
    }

    pub(super) const fn counts(&self) -> &InformerCounters {
        &self.counts
    }

    /// Counts a failure and calls the hook. A panic of the hook is caught and counted.
    pub(super) fn report(&self, failure: &WatchFailure) {
        self.counts.lock().count_failure(failure.kind());
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.on_failure)(failure)));
        if outcome.is_err() {
            self.counts.lock().hook_panics += 1;
        }
    }
}

impl fmt::Debug for FailureRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureRecorder")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl DriverRecorder for FailureRecorder {
    fn received(&self, bytes: usize) {
        self.counts.lock().bytes += bytes as u64;
    }

    fn relisted(&self, reason: RelistReason) {
        self.counts.lock().count_relist(reason);
    }

    fn connected(&self, connected: WatchConnection) {
        if connected == WatchConnection::Yes {
            self.counts.lock().watches_opened += 1;
        }
    }

    fn proven(&self) {
        self.counts.lock().proofs += 1;
    }

    fn failed(&self, report: FailureReport<'_>) {
        let (request, cause) = (report.asked, report.cause.to_owned());
        self.report(&match report.failure {
            Failure::Status(status) => WatchFailure::Refused {
                request,
                status: status.clone(),
            },
            Failure::Transport | Failure::Saturated => WatchFailure::Transport { request, cause },
            Failure::Protocol | Failure::TooLong | Failure::Unordered => WatchFailure::Unreadable {
                request,
                rejection: report.rejection.unwrap_or(FrameRejection::Unparsable),
                cause,
            },
        });
    }

    fn ignored(&self) {
        self.counts.lock().ignored += 1;
    }
}

/// The default failure hook: logs the first failure of each kind, then at most one per minute, with the number that was left out.
pub(super) fn log_failures(collection: &Collection) -> OnFailure {
    let resource = collection.gvr.to_string();
    let paces = Mutex::new([LogPace::default(); FailureKind::VARIANTS.len()]);
    Arc::new(move |failure| {
        // Expired history is ordinary for a collection with few events.
        if matches!(failure, WatchFailure::Refused { status, .. } if status.is_expired()) {
            tracing::debug!(%resource, %failure, "the history of the watch has expired; listing again");
            return;
        }
        let mut paces = paces.lock();
        let due = paces[failure.kind() as usize].due(Instant::now());
        drop(paces);
        if let Some(left_out) = due {
            let cause = std::error::Error::source(failure)
                .map(ToString::to_string)
                .unwrap_or_default();
            tracing::warn!(%resource, %failure, cause, left_out, "a list or watch failed");
        }
    })
}

/// When a failure of one kind was logged last, and how many were left out since.
#[derive(Clone, Copy, Default)]
struct LogPace {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl LogPace {
    /// If this failure is to be logged, returns how many were left out before it.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self
            .logged_at
            .is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL)
        {
            self.left_out += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_of_one_kind_are_logged_once_a_minute_with_the_number_left_out() {
        let mut pace = LogPace::default();
        let mut logged = Vec::new();
        for second in 0..150 {
            if let Some(left_out) = pace.due(Instant::now()) {
                logged.push((second, left_out));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 0), (60, 59), (120, 59)]);
    }
}
