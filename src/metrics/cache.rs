//! What is counted of a resource's watch cache.

use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::families::{ByLabel, Register, StateGauges, resource_and};
use super::labels::{CacheState, GiveUpReason};
use super::{MetricsError, ResourceLabels};

/// Handles of one resource's watch cache. The cache counts in plain integers; its driver sets these.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    /// Objects in the snapshot.
    pub objects: IntGauge,
    /// Bytes of these, each as one event line.
    pub snapshot_bytes: IntGauge,
    /// Events in the ring.
    pub ring_events: IntGauge,
    /// Bytes of these.
    pub ring_bytes: IntGauge,
    /// Age of the oldest event in the ring, in seconds: how long a client may be away.
    pub ring_oldest_age: Gauge,
    /// Times the cache was filled from a list.
    pub initializations: IntCounter,
    /// Event lines laid out in views. Events delivered divided by this is how often a line is shared.
    pub frames_encoded: IntCounter,
    /// What the cache is doing.
    pub state: StateGauges<CacheState>,
    /// Times it was given up, by reason.
    pub given_up: ByLabel<GiveUpReason>,
}

#[derive(Debug)]
pub(super) struct CacheFamilies {
    objects: IntGaugeVec,
    snapshot_bytes: IntGaugeVec,
    ring_events: IntGaugeVec,
    ring_bytes: IntGaugeVec,
    ring_oldest_age: GaugeVec,
    initializations: IntCounterVec,
    frames_encoded: IntCounterVec,
    state: IntGaugeVec,
    given_up: IntCounterVec,
}

impl CacheFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES;
        Ok(Self {
            objects: add.gauges("cache_objects", "Objects in the watch cache.", labels)?,
            snapshot_bytes: add.gauges("cache_snapshot_bytes", "Bytes of the objects in the watch cache, each as one watch event.", labels)?,
            ring_events: add.gauges("cache_ring_events", "Events in the ring.", labels)?,
            ring_bytes: add.gauges("cache_ring_bytes", "Bytes of the events in the ring.", labels)?,
            ring_oldest_age: add.real_gauges(
                "cache_ring_oldest_age_seconds",
                "Age of the oldest event in the ring: how long a client may be away and still resume.",
                labels,
            )?,
            initializations: add.counters(
                "cache_initializations_total",
                "Times the watch cache was filled from a list.",
                labels,
            )?,
            frames_encoded: add.counters(
                "cache_frames_encoded_total",
                "Event lines laid out for watches; delivered events divided by this is how often a line is shared.",
                labels,
            )?,
            state: add.gauges(
                "cache_state",
                "Whether the cache is being filled, is ready, or why it was given up and its requests are forwarded.",
                &resource_and("state"),
            )?,
            given_up: add.counters(
                "cache_given_up_total",
                "Times the cache was given up, by reason.",
                &resource_and("reason"),
            )?,
        })
    }

    pub(super) fn forget(&self, labels: ResourceLabels<'_>) {
        let values = &labels.values();
        // What was never there need not go.
        for gauges in [
            &self.objects,
            &self.snapshot_bytes,
            &self.ring_events,
            &self.ring_bytes,
        ] {
            let _ = gauges.remove_label_values(values);
        }
        let _ = self.ring_oldest_age.remove_label_values(values);
        StateGauges::<CacheState>::forget(&self.state, values);
    }

    /// Takes every series of a resource off the page.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        self.forget(labels);
        let values = &labels.values();
        // What was never there need not go.
        for counters in [&self.initializations, &self.frames_encoded] {
            let _ = counters.remove_label_values(values);
        }
        ByLabel::<GiveUpReason>::forget(&self.given_up, values);
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> CacheMetrics {
        let values = &labels.values();
        CacheMetrics {
            objects: self.objects.with_label_values(values),
            snapshot_bytes: self.snapshot_bytes.with_label_values(values),
            ring_events: self.ring_events.with_label_values(values),
            ring_bytes: self.ring_bytes.with_label_values(values),
            ring_oldest_age: self.ring_oldest_age.with_label_values(values),
            initializations: self.initializations.with_label_values(values),
            frames_encoded: self.frames_encoded.with_label_values(values),
            state: StateGauges::resolve(&self.state, values),
            given_up: ByLabel::resolve(&self.given_up, values),
        }
    }
}
