//! Forwarded requests by verb, resource and code, as kube-apiserver counts them: metrics, labels, verbs and scopes are those of its
//! `apiserver_request_*`. It decides nothing about the requests.
//!
//! Clients choose paths, so the number of label sets is bounded twice: labels come from closed sets and from discovery, and there are at most
//! [`LABEL_SETS_MAX`]. A set appears with the first request that upstream has let its caller make, so that strangers cannot fill the table.

mod labels;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::RwLock;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use strum::VariantArray as _;

use super::families::{MetricsError, Register};
use super::labels::Label;
use crate::resource::Gvr;

pub use labels::ForwardedLabels;

use labels::{LabelSet, OTHER, RequestVerb};

/// Label sets that have series of their own: about as many as a kube-apiserver with a hundred busy resources has. The page has some twenty lines
/// for each.
const LABEL_SETS_MAX: usize = 1_000;

const NAMES: [&str; 6] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
];

/// Status codes with a label value of their own.
const CODES: [u16; 24] = [
    101, 200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429,
    500, 501, 502, 503, 504,
];

/// In seconds: kube-apiserver's buckets, of which every second one is left out. Objectives are usually set at 1, 5 and 30.
const DURATION_BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// Handles of forwarded requests by verb, resource and code. Clones share everything.
#[derive(Clone, Debug)]
pub struct ForwardedMetrics(Arc<ForwardedFamilies>);

#[derive(Debug)]
struct ForwardedFamilies {
    requests: IntCounterVec,
    duration: HistogramVec,
    long_running: IntGaugeVec,
    series: RwLock<HashMap<LabelSet, Arc<ForwardedSeries>, foldhash::fast::RandomState>>,
    /// Of requests that have no label set of their own, by verb.
    others: [OnceLock<Arc<ForwardedSeries>>; RequestVerb::VARIANTS.len()],
}

/// The series of one label set.
#[derive(Debug)]
struct ForwardedSeries {
    values: [Box<str>; NAMES.len()],
    duration: Histogram,
    /// Created with the first request that lasts.
    long_running: OnceLock<IntGauge>,
    /// One for each code, and one for all others; created with their first response.
    codes: [OnceLock<IntCounter>; CODES.len() + 1],
}

/// A forwarded request that was answered. Dropping it counts it: as in kube-apiserver, a request counts when its response is complete.
#[derive(Debug)]
pub struct ForwardedRequest {
    series: Arc<ForwardedSeries>,
    counter: IntCounter,
    started: Instant,
    long_running: Option<IntGauge>,
}

impl Drop for ForwardedRequest {
    fn drop(&mut self) {
        self.counter.inc();
        let elapsed = self.started.elapsed();
        self.series.duration.observe(elapsed.as_secs_f64());
        if let Some(long_running) = &self.long_running {
            long_running.dec();
        }
    }
}

/// The answer to a forwarded request.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedAnswer {
    /// Its status code.
    pub code: u16,
    /// Whether the gateway wrote it.
    pub is_own: bool,
    /// When the request was received.
    pub started: Instant,
    /// Whether it is of those that kube-apiserver calls long-running: watches, logs, exec and the like.
    pub is_long_running: bool,
}

impl ForwardedAnswer {
    /// Whether a handler of upstream has answered: it authorizes before that.
    const fn is_authorized(self) -> bool {
        !self.is_own && !matches!(self.code, 401 | 403 | 405)
    }
}

impl ForwardedMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self(Arc::new(ForwardedFamilies {
            requests: add.counters(
                "forwarded_request_total",
                "Forwarded requests whose response is complete, labelled as in apiserver_request_total.",
                &[&NAMES[..], &["code"]].concat(),
            )?,
            duration: add.histograms(
                "forwarded_request_duration_seconds",
                "Time from a forwarded request to the end of its response, labelled as in apiserver_request_duration_seconds.",
                &NAMES,
                &DURATION_BUCKETS,
            )?,
            long_running: add.gauges(
                "forwarded_longrunning_requests",
                "Forwarded watches, logs and upgraded connections that are open, labelled as in apiserver_longrunning_requests.",
                &NAMES,
            )?,
            series: RwLock::default(),
            others: Default::default(),
        })))
    }

    /// Begins to count an answered request. `is_known` says whether discovery lists a resource; it is not called if the labels have series.
    #[must_use]
    pub fn answered(
        &self,
        labels: &ForwardedLabels<'_>,
        answer: ForwardedAnswer,
        is_known: impl FnOnce(&Gvr) -> bool,
    ) -> ForwardedRequest {
        let families = &*self.0;
        let found = families.series.read().get(labels).cloned();
        let series = found.unwrap_or_else(|| {
            match answer.is_authorized() && labels.gvr.is_none_or(is_known) {
                true => families.add(labels),
                false => families.other(labels.verb),
            }
        });
        let is_open = answer.is_long_running && answer.code < 400;
        let long_running = is_open.then(|| families.long_running(&series));
        ForwardedRequest {
            counter: families.counter(&series, answer.code),
            series,
            started: answer.started,
            long_running: long_running.inspect(IntGauge::inc),
        }
    }

    /// Removes the series of resources that discovery does not list any more, except while requests for them are open.
    pub fn forget_unknown(&self, is_known: impl Fn(&Gvr) -> bool) {
        let families = &*self.0;
        families.series.write().retain(|set, series| {
            // Nobody takes another handle while the map is locked.
            let is_kept = set.gvr.as_ref().is_none_or(&is_known) || Arc::strong_count(series) > 1;
            if !is_kept {
                families.remove(series);
            }
            is_kept
        });
    }
}

impl ForwardedFamilies {
    /// The series of these labels, which are created if there is room; else those of the verb.
    fn add(&self, labels: &ForwardedLabels<'_>) -> Arc<ForwardedSeries> {
        let mut series = self.series.write();
        if let Some(found) = series.get(labels) {
            return Arc::clone(found);
        }
        if series.len() >= LABEL_SETS_MAX {
            return self.other(labels.verb);
        }
        let set = labels.to_set();
        let new = self.create(set.values());
        series.insert(set, Arc::clone(&new));
        new
    }

    fn other(&self, verb: RequestVerb) -> Arc<ForwardedSeries> {
        let other = self.others[verb as usize]
            .get_or_init(|| self.create([verb.as_str(), "", "", OTHER, "", ""]));
        Arc::clone(other)
    }

    fn create(&self, values: [&str; NAMES.len()]) -> Arc<ForwardedSeries> {
        Arc::new(ForwardedSeries {
            values: values.map(Box::from),
            duration: self.duration.with_label_values(&values),
            long_running: OnceLock::new(),
            codes: Default::default(),
        })
    }

    fn long_running(&self, series: &ForwardedSeries) -> IntGauge {
        let gauge = || self.long_running.with_label_values(&series.values());
        series.long_running.get_or_init(gauge).clone()
    }

    fn counter(&self, series: &ForwardedSeries, code: u16) -> IntCounter {
        let slot = CODES.iter().position(|known| *known == code);
        let slot = slot.unwrap_or(CODES.len());
        let counter = || {
            let code = code_label(slot);
            let values = [&series.values()[..], &[&code]].concat();
            self.requests.with_label_values(&values)
        };
        series.codes[slot].get_or_init(counter).clone()
    }

    fn remove(&self, series: &ForwardedSeries) {
        let values = &series.values();
        // An error means that the series does not exist.
        let _ = self.duration.remove_label_values(values);
        let _ = self.long_running.remove_label_values(values);
        for slot in 0..=CODES.len() {
            let code = &*code_label(slot);
            let values = &[&values[..], &[code]].concat();
            let _ = self.requests.remove_label_values(values);
        }
    }
}

impl ForwardedSeries {
    fn values(&self) -> [&str; NAMES.len()] {
        std::array::from_fn(|at| &*self.values[at])
    }
}

/// The label value of the code at this index of [`CODES`], or `other`.
fn code_label(slot: usize) -> String {
    let code = CODES.get(slot);
    code.map_or_else(|| OTHER.to_owned(), u16::to_string)
}

#[cfg(test)]
mod tests;
