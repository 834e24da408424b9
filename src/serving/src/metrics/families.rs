//! Helpers that register families and resolve the handles of a closed set of label values.

use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use super::labels::Label;
use super::resource_labels::ResourceLabels;
use super::sharded::{BOUND_COUNT, ShardedCounters, ShardedHistograms};

/// One counter for each value of a closed label set. Clones share them: connections and streams have some.
#[derive(Clone, Debug)]
pub struct ByLabel<L> {
    counters: Arc<[(L, IntCounter)]>,
}

impl<L: Label> ByLabel<L> {
    /// Resolves every value, so that each series exists, with value zero, from the start. `before` are the values of the other labels.
    pub(super) fn resolve(family: &IntCounterVec, before: &[&str]) -> Self {
        Self::resolve_these(family, before, L::VARIANTS.iter().copied())
    }

    /// Resolves only these values; no other one may be counted.
    pub(super) fn resolve_these(
        family: &IntCounterVec,
        before: &[&str],
        labels: impl Iterator<Item = L>,
    ) -> Self {
        let counter = |label| (label, family.with_label_values(&with(before, label)));
        Self {
            counters: labels.map(counter).collect(),
        }
    }

    /// Removes the series of every value.
    pub(super) fn forget(family: &IntCounterVec, before: &[&str]) {
        for label in L::VARIANTS {
            // An error means that the series does not exist.
            let _ = family.remove_label_values(&with(before, *label));
        }
    }

    /// The count of this value.
    pub fn count(&self, label: L) -> u64 {
        let mut found = self.counters.iter().filter(|(known, _)| *known == label);
        found.next().map_or(0, |(_, counter)| counter.get())
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counters.iter().map(|(_, counter)| counter.get()).sum()
    }

    /// Adds one to the count of this value.
    pub fn inc(&self, label: L) {
        self.add(label, 1);
    }

    /// Adds to the count of this value.
    pub fn add(&self, label: L, count: u64) {
        let found = self.counters.iter().find(|(known, _)| *known == label);
        debug_assert!(found.is_some(), "{} has no series", label.as_str());
        if let Some((_, counter)) = found {
            counter.inc_by(count);
        }
    }
}

/// One gauge for each value of a closed label set: 1 for the current state, 0 for the others.
#[derive(Clone, Debug)]
pub struct StateGauges<L> {
    gauges: Vec<(L, IntGauge)>,
}

impl<L: Label> StateGauges<L> {
    pub(super) fn resolve(family: &IntGaugeVec, before: &[&str]) -> Self {
        let gauge = |label: &L| (*label, family.with_label_values(&with(before, *label)));
        Self {
            gauges: L::VARIANTS.iter().map(gauge).collect(),
        }
    }

    pub(super) fn forget(family: &IntGaugeVec, before: &[&str]) {
        for label in L::VARIANTS {
            // An error means that the series does not exist.
            let _ = family.remove_label_values(&with(before, *label));
        }
    }

    /// Sets the current state.
    pub fn set(&self, label: L) {
        for (known, gauge) in &self.gauges {
            gauge.set(i64::from(*known == label));
        }
    }
}

fn with<'a, L: Label>(before: &[&'a str], label: L) -> Vec<&'a str> {
    before.iter().copied().chain([label.as_str()]).collect()
}

/// A registry, with one method for each kind of family.
#[derive(Clone, Copy)]
pub(super) struct Register<'a>(pub(super) &'a Registry);

impl Register<'_> {
    fn add<C: Collector + Clone + 'static>(&self, family: C) -> Result<C, MetricsError> {
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
        self.add(IntCounter::new(name, help)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        self.add(IntGauge::new(name, help)?)
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, MetricsError> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts)?)
    }

    /// A family with one label, whose values are a closed set.
    pub(super) fn by_label<L: Label>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<ByLabel<L>, MetricsError> {
        Ok(ByLabel::resolve(&self.counters(name, help, &[label])?, &[]))
    }

    pub(super) fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, MetricsError> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn sharded(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<ShardedCounters, MetricsError> {
        self.add(ShardedCounters::new(name, help, labels, ())?)
    }

    pub(super) fn sharded_histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &'static [f64; BOUND_COUNT],
    ) -> Result<ShardedHistograms, MetricsError> {
        self.add(ShardedHistograms::new(name, help, labels, bounds)?)
    }

    pub(super) fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, MetricsError> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn real_gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricsError> {
        self.add(Gauge::new(name, help)?)
    }

    pub(super) fn real_gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GaugeVec, MetricsError> {
        self.add(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, MetricsError> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, labels)?)
    }
}

/// The names of a resource's labels and one more.
pub(super) fn resource_and(label: &'static str) -> [&'static str; 5] {
    let [group, version, resource, encoding] = ResourceLabels::NAMES;
    [group, version, resource, encoding, label]
}

/// Metrics cannot be registered or written. This is a programming error, which any test that creates metrics finds.
#[derive(Debug, thiserror::Error)]
#[error("metrics are inconsistent")]
pub struct MetricsError(#[from] prometheus::Error);
