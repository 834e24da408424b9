//! Metrics of handovers between gateways.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register, resource_and};
use super::resource_labels::ResourceLabels;

/// Bounds of the durations: from a small cache in the same node to the longest time that may be set.
const SECONDS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// What became of the attempt to take a cache over from another gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HandoverOutcome {
    /// The cache continues from it.
    Taken,
    /// No other gateway has the cache.
    Missing,
    /// No other gateway could be reached.
    Unreachable,
    /// The other gateway refuses this one's credentials, or the credentials lack a right.
    Denied,
    /// The other gateway is handing over as many caches as it may.
    Busy,
    /// The response is none of a handover.
    Refused,
    /// It did not come, or did not end, in time.
    TimedOut,
    /// It broke off.
    Cut,
    /// It is longer than allowed.
    TooLong,
    /// It is not what a gateway writes.
    Damaged,
    /// It is of another resource.
    OtherResource,
    /// It is of another cluster.
    OtherCluster,
    /// Upstream contradicts it.
    OtherHistory,
    /// Upstream no longer has its version.
    Expired,
    /// The attempt ended before upstream had continued from it.
    Abandoned,
}

/// What became of another gateway's request for a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ServedHandover {
    /// It was sent.
    Served,
    /// There is no such cache, or it is being filled.
    Missing,
    /// Too many were being sent.
    Busy,
    /// The other gateway left, or did not read it in time.
    Cut,
}

/// Handles of what was transferred in one direction.
#[derive(Clone, Debug)]
pub struct TransferMetrics {
    bytes: IntCounter,
    seconds: Histogram,
}

impl TransferMetrics {
    /// Records a transfer, whole or not.
    pub fn record(&self, bytes: u64, elapsed: Duration) {
        self.bytes.inc_by(bytes);
        self.seconds.observe(elapsed.as_secs_f64());
    }
}

/// Handles of handovers to other gateways.
#[derive(Clone, Debug)]
pub struct ServedHandoverMetrics {
    /// Requests for a cache, by what became of them.
    pub outcomes: ByLabel<ServedHandover>,
    /// What was sent.
    pub transfers: TransferMetrics,
}

/// Handles of the handovers of one cache from other gateways.
#[derive(Clone, Debug)]
pub struct TakenHandoverMetrics {
    /// Caches that were to be taken over, by what became of that.
    pub outcomes: ByLabel<HandoverOutcome>,
    /// What was received.
    pub transfers: TransferMetrics,
}

#[derive(Debug)]
pub(super) struct HandoverFamilies {
    taken: IntCounterVec,
    received: TransferMetrics,
    served: ServedHandoverMetrics,
}

impl HandoverFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let bytes = add.counters(
            "handover_bytes_total",
            "Bytes of caches that were handed over completely, by direction.",
            &["direction"],
        )?;
        let seconds = add.histograms(
            "handover_seconds",
            "Durations of handovers of a cache, by direction.",
            &["direction"],
            &SECONDS,
        )?;
        let transfers = |direction: &str| TransferMetrics {
            bytes: bytes.with_label_values(&[direction]),
            seconds: seconds.with_label_values(&[direction]),
        };
        Ok(Self {
            taken: add.counters(
                "handovers_taken_total",
                "Caches that were to be taken over from another gateway, by outcome.",
                &resource_and("outcome"),
            )?,
            received: transfers("received"),
            served: ServedHandoverMetrics {
                outcomes: add.by_label(
                    "handovers_served_total",
                    "Requests of other gateways for a cache, by outcome.",
                    "outcome",
                )?,
                transfers: transfers("sent"),
            },
        })
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        ByLabel::<HandoverOutcome>::forget(&self.taken, &labels.values());
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> TakenHandoverMetrics {
        TakenHandoverMetrics {
            outcomes: ByLabel::resolve(&self.taken, &labels.values()),
            transfers: self.received.clone(),
        }
    }

    pub(super) fn served(&self) -> ServedHandoverMetrics {
        self.served.clone()
    }
}
