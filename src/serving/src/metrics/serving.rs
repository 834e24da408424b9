//! Metrics of the serving rules.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::families::{MetricsError, Register};

/// Values of the label `answerer`.
const SIDES: [&str; 2] = ["memory", "upstream"];

/// Handles of the serving rules.
#[derive(Clone, Debug)]
pub struct ServingMetrics {
    requests: IntCounterVec,
    /// Whether rules of an operator are in force in place of those of the settings.
    pub overridden: IntGauge,
}

/// Lists and watches that one rule matched, by who answered.
#[derive(Clone, Debug)]
pub struct RuleCounters {
    /// Answered from memory, or by upstream because memory could not.
    pub memory: IntCounter,
    /// Forwarded by the rule.
    pub upstream: IntCounter,
}

impl ServingMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            requests: add.counters(
                "serving_rule_requests_total",
                "Lists and watches that a serving rule has decided, by the rule's name and the side that it chose.",
                &["rule", "answerer"],
            )?,
            overridden: add.gauge(
                "serving_overridden",
                "Whether serving rules of the admin port are in force in place of those of the settings (1) or not (0).",
            )?,
        })
    }

    /// The counters of a rule. Their number is bounded by that of the rules.
    #[must_use]
    pub fn of_rule(&self, rule: &str) -> RuleCounters {
        let [memory, upstream] = SIDES.map(|side| self.requests.with_label_values(&[rule, side]));
        RuleCounters { memory, upstream }
    }

    /// Removes the counters of rules that are not in force any more.
    pub fn forget_all_but(&self, kept: &[&str]) {
        use prometheus::core::Collector as _;
        let families = self.requests.collect();
        let series = families.iter().flat_map(|family| family.get_metric());
        let rules = series.flat_map(|metric| metric.get_label().iter());
        let rules = rules.filter(|label| label.name() == "rule");
        for rule in rules
            .map(|label| label.value())
            .filter(|rule| !kept.contains(rule))
        {
            for side in SIDES {
                // An error means that the series was removed already.
                let _ = self.requests.remove_label_values(&[rule, side]);
            }
        }
    }
}
