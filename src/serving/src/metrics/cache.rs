//! Metrics of a resource's watch cache.

use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::families::{ByLabel, MetricsError, Register, StateGauges, resource_and};
use super::labels::{CacheState, GiveUpReason};
use super::resource_labels::ResourceLabels;

/// Handles of one resource's watch cache. The cache itself counts in plain integers; its driver copies them into these.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    /// Objects in the snapshot.
    pub objects: IntGauge,
    /// Bytes of these objects, each as one watch event.
    pub snapshot_bytes: IntGauge,
    /// Events in the ring.
    pub ring_events: IntGauge,
    /// Bytes of these events.
    pub ring_bytes: IntGauge,
    /// Deletions kept for clients that catch up.
    pub tombstones: IntGauge,
    /// Bytes of these deletions.
    pub tombstone_bytes: IntGauge,
    /// Age of the oldest event that a client may still resume from, in seconds.
    pub history: Gauge,
    /// How old the cache may be, in seconds.
    pub age: Gauge,
    /// Times the cache was filled from a list.
    pub initializations: IntCounter,
    /// Event frames laid out in views. Delivered events divided by this number is how many clients share a frame on average.
    pub frames_encoded: IntCounter,
    /// The state of the cache.
    pub state: StateGauges<CacheState>,
    /// Times the cache was given up, by reason.
    pub given_up: ByLabel<GiveUpReason>,
}

#[derive(Debug)]
pub(super) struct CacheFamilies {
    objects: IntGaugeVec,
    snapshot_bytes: IntGaugeVec,
    ring_events: IntGaugeVec,
    ring_bytes: IntGaugeVec,
    tombstones: IntGaugeVec,
    tombstone_bytes: IntGaugeVec,
    history: GaugeVec,
    age: GaugeVec,
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
            snapshot_bytes: add.gauges(
                "cache_snapshot_bytes",
                "Bytes of the objects in the watch cache, each as one watch event.",
                labels,
            )?,
            ring_events: add.gauges("cache_ring_events", "Events in the ring.", labels)?,
            ring_bytes: add.gauges("cache_ring_bytes", "Bytes of the events in the ring.", labels)?,
            age: add.real_gauges(
                "cache_age_seconds",
                "How old the cache may be: the time since upstream last proved that it is complete.",
                labels,
            )?,
            tombstones: add.gauges(
                "cache_tombstones",
                "Deletions kept for clients that catch up.",
                labels,
            )?,
            tombstone_bytes: add.gauges(
                "cache_tombstone_bytes",
                "Bytes of the deletions kept for clients that catch up.",
                labels,
            )?,
            history: add.real_gauges(
                "cache_history_seconds",
                "Age of the oldest event that a client may still resume from.",
                labels,
            )?,
            initializations: add.counters(
                "cache_initializations_total",
                "Times the watch cache was filled from a list.",
                labels,
            )?,
            frames_encoded: add.counters(
                "cache_frames_encoded_total",
                "Event frames laid out for the watches of one selector.",
                labels,
            )?,
            state: add.gauges(
                "cache_state",
                "1 for the current state of the cache, 0 for the others.",
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
        // An error means that the series does not exist.
        for gauges in [
            &self.objects,
            &self.snapshot_bytes,
            &self.ring_events,
            &self.ring_bytes,
            &self.tombstones,
            &self.tombstone_bytes,
        ] {
            let _ = gauges.remove_label_values(values);
        }
        for ages in [&self.history, &self.age] {
            let _ = ages.remove_label_values(values);
        }
        StateGauges::<CacheState>::forget(&self.state, values);
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        self.forget(labels);
        let values = &labels.values();
        // An error means that the series does not exist.
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
            tombstones: self.tombstones.with_label_values(values),
            tombstone_bytes: self.tombstone_bytes.with_label_values(values),
            history: self.history.with_label_values(values),
            age: self.age.with_label_values(values),
            initializations: self.initializations.with_label_values(values),
            frames_encoded: self.frames_encoded.with_label_values(values),
            state: StateGauges::resolve(&self.state, values),
            given_up: ByLabel::resolve(&self.given_up, values),
        }
    }
}
