//! Takes down what the driver and the sink have to tell: counts it, and tells failures to the hook.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::counts::InformerCounters;
use super::failure::{FailureKind, OnFailure, WatchFailure};
use crate::upstream::driver::{
    Collection, DriverRecorder, FailureReport, FrameRejection, WatchConnection,
};
use crate::upstream::reflector::{Failure, RelistReason};

/// Failures of one kind are logged at most so often.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Of one collection's reading.
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

    pub(super) fn tell(&self, failure: &WatchFailure) {
        self.counts.lock().failed(failure.kind());
        let told = catch_unwind(AssertUnwindSafe(|| (self.on_failure)(failure)));
        if told.is_err() {
            self.counts.lock().hook_panics += 1;
        }
    }
}

impl fmt::Debug for FailureRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl DriverRecorder for FailureRecorder {
    fn received(&self, bytes: usize) {
        self.counts.lock().bytes += bytes as u64;
    }

    /// Comes again with the attempt that failed of it.
    fn rejected(&self, _: FrameRejection) {}

    fn relisted(&self, reason: RelistReason) {
        self.counts.lock().relisted(reason);
    }

    fn connected(&self, connected: WatchConnection) {
        if connected == WatchConnection::Yes {
            self.counts.lock().watches_opened += 1;
        }
    }

    fn failed(&self, trouble: FailureReport<'_>) {
        let (asked, cause) = (trouble.asked, trouble.cause.to_owned());
        self.tell(&match trouble.failure {
            Failure::Status(status) => WatchFailure::Refused {
                asked,
                status: status.clone(),
            },
            Failure::Transport | Failure::Saturated => WatchFailure::Transport { asked, cause },
            Failure::Protocol | Failure::TooLong => WatchFailure::Unreadable {
                asked,
                rejection: trouble.rejection.unwrap_or(FrameRejection::Unparsable),
                cause,
            },
        });
    }

    fn ignored(&self) {
        self.counts.lock().ignored += 1;
    }
}

/// The hook where nobody set one: logs the first failure of a kind, and then one a minute with the number left out.
pub(super) fn log_failures(collection: &Collection) -> OnFailure {
    let resource = collection.gvr.to_string();
    let paces = Mutex::new([LogPace::default(); FailureKind::ALL.len()]);
    Arc::new(move |failure| {
        // History that is gone is everyday business where little happens.
        if matches!(failure, WatchFailure::Refused { status, .. } if status.is_expired()) {
            tracing::debug!(%resource, %failure, "listing again");
            return;
        }
        let mut paces = paces.lock().unwrap_or_else(PoisonError::into_inner);
        let due = paces[failure.kind() as usize].due(Instant::now());
        drop(paces);
        if let Some(left_out) = due {
            let cause = std::error::Error::source(failure).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            tracing::warn!(%resource, %failure, cause, left_out, "reading failed");
        }
    })
}

/// When failures of one kind were logged last, and how many were not since.
#[derive(Clone, Copy, Default)]
struct LogPace {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl LogPace {
    /// How many were left out before this one, if this one is to be logged.
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
