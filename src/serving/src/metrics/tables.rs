//! Metrics of watches and lists of Tables that clients share. Their series have no encoding.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::families::{MetricsError, Register};
use super::resource_labels::ResourceLabels;

/// Series are removed together with those of a resource in this encoding.
const ENCODING: &str = "json";

/// Handles of a resource's shared watches and lists of Tables.
#[derive(Clone, Debug)]
pub struct TableMetrics {
    /// Watches of Tables that are open upstream, each shared by all clients with the same parameters.
    pub watches: IntGauge,
    /// Such watches requested, including those that continue where another one ended.
    pub requests: IntCounter,
    /// Lists of Tables requested from upstream, each for all clients that ask alike.
    pub lists: IntCounter,
    /// Lists of Tables that were answered with the response to another one.
    pub shared_lists: IntCounter,
}

#[derive(Debug)]
pub(super) struct TableFamilies {
    watches: IntGaugeVec,
    requests: IntCounterVec,
    lists: IntCounterVec,
    shared_lists: IntCounterVec,
}

impl TableFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES[..3];
        Ok(Self {
            watches: add.gauges(
                "upstream_table_watches_active",
                "Watches of Tables open upstream, each shared by all clients with the same parameters.",
                labels,
            )?,
            requests: add.counters(
                "upstream_table_watches_total",
                "Shared watches of Tables requested from upstream, those included that continue where another one ended.",
                labels,
            )?,
            lists: add.counters(
                "upstream_table_lists_total",
                "Lists of Tables requested from upstream for all clients that ask alike.",
                labels,
            )?,
            shared_lists: add.counters(
                "table_lists_shared_total",
                "Lists of Tables answered with upstream's response to another one.",
                labels,
            )?,
        })
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        if labels.encoding != ENCODING {
            return;
        }
        let values = &labels.values()[..3];
        // An error means that the series does not exist.
        let _ = self.watches.remove_label_values(values);
        for counters in [&self.requests, &self.lists, &self.shared_lists] {
            let _ = counters.remove_label_values(values);
        }
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> TableMetrics {
        let values = &labels.values()[..3];
        TableMetrics {
            watches: self.watches.with_label_values(values),
            requests: self.requests.with_label_values(values),
            lists: self.lists.with_label_values(values),
            shared_lists: self.shared_lists.with_label_values(values),
        }
    }
}
