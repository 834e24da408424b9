//! What the gateway did in all, and what that spared the API server.

use crate::metrics::{
    AdmissionMetrics, AuthorizationMetrics, ListenerMetrics, MemoryMetrics, Metrics,
    PassthroughError, PassthroughMetrics, ShadowMetrics, ShadowOutcome,
};
use crate::slot::Slot;
use kube_fanout_serving::status::{
    ForwardedStatus, MemoryStatus, ResourceStatus, ShadowStatus, TotalStatus,
};

/// The counters that the totals are made of.
pub(super) struct TotalsCollector {
    authorization: AuthorizationMetrics,
    passthrough: PassthroughMetrics,
    shadow: ShadowMetrics,
    listener: ListenerMetrics,
    admission: AdmissionMetrics,
    memory: MemoryMetrics,
}

impl TotalsCollector {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            authorization: metrics.authorization(),
            passthrough: metrics.passthrough(),
            shadow: metrics.shadow(),
            listener: metrics.listener(),
            admission: metrics.admission(),
            memory: metrics.memory(),
        }
    }

    /// Requests that upstream answered, or should have.
    pub(super) fn forwarded(&self) -> ForwardedStatus {
        let errors = &self.passthrough.errors;
        let failures = [
            PassthroughError::Connect,
            PassthroughError::Timeout,
            PassthroughError::Broken,
        ];
        ForwardedStatus {
            requests: self.passthrough.requests.get(),
            active: gauge(self.passthrough.requests_active.get()),
            failed: failures.into_iter().map(|one| errors.count(one)).sum(),
            requests_per_second: None,
        }
    }

    /// What comparisons have found.
    pub(super) fn shadow(&self) -> ShadowStatus {
        let found = |outcome| self.shadow.total(outcome);
        ShadowStatus {
            watches: gauge(self.shadow.watches.get()),
            equal: found(ShadowOutcome::Equal),
            missing: found(ShadowOutcome::Missing),
            extra: found(ShadowOutcome::Extra),
            content: found(ShadowOutcome::Content),
            status: found(ShadowOutcome::Status),
            not_comparable: found(ShadowOutcome::NotComparable),
        }
    }

    /// The totals, where upstream got `asked` requests for caches, and for clients that might have been served from them.
    pub(super) fn of(&self, resources: &[ResourceStatus], asked: u64) -> TotalStatus {
        let mut totals = TotalStatus {
            refused: self.refused(),
            memory: MemoryStatus {
                resident: gauge(self.memory.resident.get()),
                limit: Some(gauge(self.memory.limit.get())).filter(|limit| *limit > 0),
            },
            ..TotalStatus::default()
        };
        for resource in resources {
            totals.watches += resource.cursors.watches;
            totals.slow += resource.cursors.slow;
            let (all, one) = (&mut totals.traffic, resource.traffic);
            all.events += one.events;
            all.bytes += one.bytes;
            all.upstream_events += one.upstream_events;
            all.upstream_bytes += one.upstream_bytes;
            add(&mut all.events_per_second, one.events_per_second);
            add(&mut all.bytes_per_second, one.bytes_per_second);
        }
        totals.saved = totals.traffic.into();
        totals.saved.requests = self.saved_requests(asked);
        totals
    }

    fn refused(&self) -> u64 {
        let forwarded = &self.passthrough.errors;
        self.listener.auth_refusals.total()
            + self.listener.bad_requests.total()
            + self.admission.refusals.total()
            + forwarded.count(PassthroughError::Refused)
            + forwarded.count(PassthroughError::Saturated)
    }

    fn saved_requests(&self, asked: u64) -> Option<i64> {
        let reads = self.authorization.permitted_reads();
        let asked = asked + self.authorization.reviews_sent();
        (reads > 0).then(|| reads.cast_signed() - asked.cast_signed())
    }
}

/// Lists and watches that a cache has cost upstream.
pub(super) fn own_requests(slot: &Slot) -> u64 {
    let upstream = &slot.recorder.upstream;
    let open = gauge(upstream.watches_active.get());
    upstream.lists.get() + upstream.watch_ends.total() + open
}

fn add(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or_default() + more);
    }
}

pub(super) fn gauge(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}
