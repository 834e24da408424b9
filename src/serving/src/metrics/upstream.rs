//! Metrics of a resource's lists and watches upstream.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry,
};
use strum::VariantArray;

use super::families::{ByLabel, MetricsError, Register, resource_and};
use super::labels::Contradiction;
use super::resource_labels::ResourceLabels;
use super::sharded::{ShardedCounter, ShardedCounters};
use crate::upstream::driver::{FrameRejection, UpstreamWatchEnd};
use crate::upstream::reflector::RelistReason;

/// In seconds. Most objects bear the time of their write in whole seconds, so that an age of up to a second may be none at all; those of
/// Leases are exact.
const AGE_BOUNDS: [f64; 10] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

/// Handles of one resource's upstream watch.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    /// Watch events received, bookmarks included.
    pub events_received: ShardedCounter,
    /// Bytes of lists and watches received, after decompression.
    pub bytes_received: ShardedCounter,
    /// Lists requested, relists included.
    pub lists: IntCounter,
    /// Lists requested again, by reason.
    pub relists: ByLabel<RelistReason>,
    /// Watches open now: 0 or 1.
    pub watches_active: IntGauge,
    /// Watches that ended, by reason.
    pub watch_ends: ByLabel<UpstreamWatchEnd>,
    /// Frames that were rejected, by reason.
    pub frames_rejected: ByLabel<FrameRejection>,
    /// Times upstream was found to have another history than the cache, by reason.
    pub contradictions: ByLabel<Contradiction>,
    /// Newest resource version known from upstream.
    pub resource_version: IntGauge,
    /// 1 while the watch is open and has not stalled.
    pub connected: IntGauge,
    /// Seconds from a write to the arrival of its event; of few events.
    pub event_age: Histogram,
    /// Those of them that bear a time that the clock here had not reached.
    pub future_writes: IntCounter,
    /// How much later upstream's clock is than the one here, in seconds.
    pub clock_offset: Gauge,
    /// When bytes were last received, in seconds since 1970; 0 before that.
    pub last_received: Gauge,
}

#[derive(Debug)]
pub(super) struct UpstreamFamilies {
    events_received: ShardedCounters,
    bytes_received: ShardedCounters,
    lists: IntCounterVec,
    relists: IntCounterVec,
    watches_active: IntGaugeVec,
    watch_ends: IntCounterVec,
    frames_rejected: IntCounterVec,
    contradictions: IntCounterVec,
    resource_version: IntGaugeVec,
    connected: IntGaugeVec,
    age: AgeFamilies,
    last_received: GaugeVec,
}

/// How old events are when they arrive, and how far that can be believed.
#[derive(Debug)]
struct AgeFamilies {
    event_age: HistogramVec,
    future_writes: IntCounterVec,
    clock_offset: GaugeVec,
}

impl AgeFamilies {
    fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES;
        Ok(Self {
            event_age: add.histograms(
                "upstream_event_age_seconds",
                "Time from a write to the arrival of its event; of few events.",
                labels,
                &AGE_BOUNDS,
            )?,
            future_writes: add.counters(
                "upstream_future_writes_total",
                "Events that bear a time that the clock here had not reached, of those whose age was read.",
                labels,
            )?,
            clock_offset: add.real_gauges(
                "upstream_clock_offset_seconds",
                "How much later upstream's clock is than the one here, to about a second.",
                labels,
            )?,
        })
    }
}

impl UpstreamFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let (labels, reason) = (&ResourceLabels::NAMES, &resource_and("reason"));
        Ok(Self {
            events_received: add.sharded(
                "upstream_events_received_total",
                "Watch events received from upstream after the initial ones, bookmarks included, and differences that a relist found.",
                labels,
            )?,
            bytes_received: add.sharded(
                "upstream_bytes_received_total",
                "Bytes of lists and watches received from upstream, after decompression.",
                labels,
            )?,
            lists: add.counters(
                "upstream_lists_total",
                "Lists requested from upstream, relists included.",
                labels,
            )?,
            relists: add.counters(
                "upstream_relists_total",
                "Lists requested from upstream again, by reason.",
                reason,
            )?,
            watches_active: add.gauges(
                "upstream_watches_active",
                "Watches open upstream.",
                labels,
            )?,
            watch_ends: add.counters(
                "upstream_watch_ends_total",
                "Upstream watches that ended, by reason.",
                reason,
            )?,
            frames_rejected: add.counters(
                "upstream_frames_rejected_total",
                "Frames from upstream that were rejected, by reason.",
                reason,
            )?,
            contradictions: add.counters(
                "upstream_contradictions_total",
                "Times upstream was found to have another history than the cache, by reason.",
                reason,
            )?,
            resource_version: add.gauges(
                "upstream_resource_version",
                "Newest resource version known from upstream.",
                labels,
            )?,
            connected: add.gauges(
                "upstream_connected",
                "1 while the upstream watch is open and alive.",
                labels,
            )?,
            age: AgeFamilies::register(registry)?,
            last_received: add.real_gauges(
                "upstream_last_received_timestamp_seconds",
                "When upstream last sent anything for the resource, bookmarks included, or was found to have nothing new, in seconds since 1970.",
                labels,
            )?,
        })
    }

    pub(super) fn forget(&self, labels: ResourceLabels<'_>) {
        let values = &labels.values();
        // An error means that the series does not exist.
        for gauges in [
            &self.watches_active,
            &self.resource_version,
            &self.connected,
        ] {
            let _ = gauges.remove_label_values(values);
        }
        for gauges in [&self.last_received, &self.age.clock_offset] {
            let _ = gauges.remove_label_values(values);
        }
    }

    /// Removes every series of a resource. Series of Tables are removed with those of JSON.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        self.forget(labels);
        let values = &labels.values();
        for counters in [&self.events_received, &self.bytes_received] {
            counters.forget(values);
        }
        // An error means that the series does not exist.
        let _ = self.lists.remove_label_values(values);
        let _ = self.age.event_age.remove_label_values(values);
        let _ = self.age.future_writes.remove_label_values(values);
        ByLabel::<RelistReason>::forget(&self.relists, values);
        ByLabel::<UpstreamWatchEnd>::forget(&self.watch_ends, values);
        ByLabel::<FrameRejection>::forget(&self.frames_rejected, values);
        ByLabel::<Contradiction>::forget(&self.contradictions, values);
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> UpstreamMetrics {
        let values = &labels.values();
        UpstreamMetrics {
            events_received: self.events_received.of(values),
            bytes_received: self.bytes_received.of(values),
            lists: self.lists.with_label_values(values),
            relists: ByLabel::resolve_these(&self.relists, values, relist_reasons()),
            watches_active: self.watches_active.with_label_values(values),
            watch_ends: ByLabel::resolve(&self.watch_ends, values),
            frames_rejected: ByLabel::resolve(&self.frames_rejected, values),
            contradictions: ByLabel::resolve(&self.contradictions, values),
            resource_version: self.resource_version.with_label_values(values),
            connected: self.connected.with_label_values(values),
            event_age: self.age.event_age.with_label_values(values),
            future_writes: self.age.future_writes.with_label_values(values),
            clock_offset: self.age.clock_offset.with_label_values(values),
            last_received: self.last_received.with_label_values(values),
        }
    }
}

/// The first list is none of them.
fn relist_reasons() -> impl Iterator<Item = RelistReason> {
    let reasons = RelistReason::VARIANTS.iter().copied();
    reasons.filter(|reason| *reason != RelistReason::Start)
}
