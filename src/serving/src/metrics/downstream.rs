//! Metrics of clients: their requests per resource, and the listener as a whole.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use strum::VariantArray;

use super::families::{ByLabel, MetricsError, Register, resource_and};
use super::labels::{
    AuthRefusal, BadRequest, ConnectionFailure, Label, TaskKind, VerbLabel, WatchEnd,
};
use super::resource_labels::ResourceLabels;
use super::sharded::{
    BOUND_COUNT, ShardedCounter, ShardedCounters, ShardedHistogram, ShardedHistograms,
};
use super::stalled_streams::StalledStreams;

/// Status codes with a label value of their own. All others are counted as `other`, so that the set of values is closed.
const CODES: [u16; 14] = [
    200, 400, 401, 403, 404, 405, 406, 410, 413, 415, 429, 500, 503, 504,
];

/// In seconds: from an immediate delivery to a client that hardly reads.
const LAG_BUCKETS: [f64; BOUND_COUNT] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];
/// In seconds: from an event that is delivered at once to one that was written long before. Most objects bear the time of their write in
/// whole seconds.
const AGE_BUCKETS: [f64; BOUND_COUNT] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// In seconds: the range of the API server's own buckets for requests, with fewer buckets.
const LIST_BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

/// Handles of the clients' requests for one resource.
#[derive(Clone, Debug)]
pub struct DownstreamMetrics {
    /// Requests that were answered.
    pub requests: RequestCounters,
    /// Lists that were sent.
    pub lists: ListMetrics,
    /// Watches open now.
    pub watches: IntGauge,
    /// Events written to clients.
    pub watch_events: ShardedCounter,
    /// Bytes of these events, before compression.
    pub watch_bytes: ShardedCounter,
    /// Bytes of events and bookmarks that were sent as gzip, before compression.
    pub watch_gzip_input: ShardedCounter,
    /// The same, as they were sent.
    pub watch_gzip_sent: ShardedCounter,
    /// Watches that ended, by reason.
    pub stream_ends: ByLabel<WatchEnd>,
    /// Watches that fell out of the history.
    pub lagged: IntCounter,
    /// Watches that got 410 as their first event.
    pub expired_starts: IntCounter,
    /// Watches that started with a catch-up.
    pub catch_ups: IntCounter,
    /// Time from an event's arrival to its delivery to a client; observed once per batch.
    pub lag: ShardedHistogram,
    /// Time from a write to its event's delivery to a client; of few events.
    pub age: ShardedHistogram,
}

/// Handles of the lists of one resource that were sent, completely or in part.
#[derive(Clone, Debug)]
pub struct ListMetrics {
    duration: Histogram,
    objects: IntCounter,
    /// Blocks of objects that were compressed for a list.
    pub blocks_made: IntCounter,
    /// Blocks that were already compressed, or that another list was compressing.
    pub blocks_shared: IntCounter,
}

impl ListMetrics {
    /// Records a list: the number of objects sent, and the time from the request to the last of them.
    pub fn record(&self, objects: usize, elapsed: Duration) {
        self.objects.inc_by(objects as u64);
        self.duration.observe(elapsed.as_secs_f64());
    }
}

/// The label value of a slot: the code at this index of [`CODES`], or `other`.
fn code_label(slot: usize) -> String {
    CODES
        .get(slot)
        .map_or_else(|| "other".to_owned(), u16::to_string)
}

/// Requests for one resource, by verb and code. A series appears with its first request.
#[derive(Clone, Debug)]
pub struct RequestCounters {
    family: IntCounterVec,
    labels: [Box<str>; 4],
    /// One slot for each verb and code, and for each verb one for `other`.
    slots: Arc<[[OnceLock<IntCounter>; CODES.len() + 1]; VerbLabel::VARIANTS.len()]>,
}

impl RequestCounters {
    /// Counts one request and the status code of its response.
    pub fn inc(&self, verb: VerbLabel, code: u16) {
        let slot = CODES
            .iter()
            .position(|&known| known == code)
            .unwrap_or(CODES.len());
        let counter = self.slots[verb as usize][slot].get_or_init(|| {
            let code = code_label(slot);
            let [group, version, resource, encoding] = &self.labels;
            self.family.with_label_values(&[
                verb.as_str(),
                group,
                version,
                resource,
                encoding,
                &code,
            ])
        });
        counter.inc();
    }
}

#[derive(Debug)]
pub(super) struct DownstreamFamilies {
    requests: IntCounterVec,
    list_duration: HistogramVec,
    watches: IntGaugeVec,
    watch_events: ShardedCounters,
    watch_bytes: ShardedCounters,
    watch_gzip_input: ShardedCounters,
    watch_gzip_sent: ShardedCounters,
    list_objects: IntCounterVec,
    list_blocks_made: IntCounterVec,
    list_blocks_shared: IntCounterVec,
    stream_ends: IntCounterVec,
    lagged: IntCounterVec,
    expired_starts: IntCounterVec,
    catch_ups: IntCounterVec,
    lag: ShardedHistograms,
    age: ShardedHistograms,
}

impl DownstreamFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES;
        let verb = &resource_and("verb");
        let [watch_gzip_input, watch_gzip_sent] = watch_gzip(&add)?;
        let [list_blocks_made, list_blocks_shared] = list_blocks(&add)?;
        Ok(Self {
            requests: add.counters(
                "request_total",
                "Lists and watches of cached resources that were answered, from memory or by upstream.",
                &["verb", "group", "version", "resource", "encoding", "code"],
            )?,
            list_duration: add.histograms(
                "request_duration_seconds",
                "Time from a list's request to its last byte.",
                verb,
                &LIST_BUCKETS,
            )?,
            watches: add.gauges("longrunning_requests", "Watches open downstream.", verb)?,
            watch_events: add.sharded(
                "watch_events_total",
                "Watch events written to clients.",
                labels,
            )?,
            watch_bytes: add.sharded(
                "watch_bytes_total",
                "Bytes of watch events written to clients, before compression.",
                labels,
            )?,
            watch_gzip_input,
            watch_gzip_sent,
            list_objects: add.counters("list_objects_total", "Objects sent in lists.", labels)?,
            list_blocks_made,
            list_blocks_shared,
            stream_ends: add.counters(
                "stream_ends_total",
                "Clients' watches that ended, by reason.",
                &resource_and("reason"),
            )?,
            lagged: add.counters(
                "lagged_total",
                "Watches that fell out of the history and got 410, so that their clients list again.",
                labels,
            )?,
            expired_starts: add.counters(
                "expired_starts_total",
                "Watches that got 410 as their first event.",
                labels,
            )?,
            catch_ups: add.counters(
                "catch_ups_total",
                "Watches from before the history that got the latest state of what changed.",
                labels,
            )?,
            lag: add.sharded_histograms(
                "watch_events_lag_seconds",
                "Time from an event's arrival from upstream until it is handed to a client, one observation per batch.",
                labels,
                &LAG_BUCKETS,
            )?,
            age: add.sharded_histograms(
                "watch_events_age_seconds",
                "Time from a write to the delivery of its event to a client; of few events.",
                labels,
                &AGE_BUCKETS,
            )?,
        })
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        let values = &labels.values();
        let [group, version, resource, encoding] = labels.values();
        // An error means that the series does not exist.
        for verb in VerbLabel::VARIANTS.iter().map(|verb| verb.as_str()) {
            for slot in 0..=CODES.len() {
                let code = &*code_label(slot);
                let values = &[verb, group, version, resource, encoding, code];
                let _ = self.requests.remove_label_values(values);
            }
            let with_verb = &[group, version, resource, encoding, verb];
            let _ = self.list_duration.remove_label_values(with_verb);
            let _ = self.watches.remove_label_values(with_verb);
        }
        for counters in [
            &self.list_objects,
            &self.list_blocks_made,
            &self.list_blocks_shared,
            &self.lagged,
            &self.expired_starts,
            &self.catch_ups,
        ] {
            let _ = counters.remove_label_values(values);
        }
        for counters in [
            &self.watch_events,
            &self.watch_bytes,
            &self.watch_gzip_input,
            &self.watch_gzip_sent,
        ] {
            counters.forget(values);
        }
        self.lag.forget(values);
        self.age.forget(values);
        ByLabel::<WatchEnd>::forget(&self.stream_ends, values);
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> DownstreamMetrics {
        let values = &labels.values();
        let [group, version, resource, encoding] = labels.values();
        let with_verb = |verb: VerbLabel| [group, version, resource, encoding, verb.as_str()];
        DownstreamMetrics {
            requests: RequestCounters {
                family: self.requests.clone(),
                labels: labels.values().map(Box::from),
                slots: Arc::default(),
            },
            lists: ListMetrics {
                duration: self
                    .list_duration
                    .with_label_values(&with_verb(VerbLabel::List)),
                objects: self.list_objects.with_label_values(values),
                blocks_made: self.list_blocks_made.with_label_values(values),
                blocks_shared: self.list_blocks_shared.with_label_values(values),
            },
            watches: self.watches.with_label_values(&with_verb(VerbLabel::Watch)),
            watch_events: self.watch_events.of(values),
            watch_bytes: self.watch_bytes.of(values),
            watch_gzip_input: self.watch_gzip_input.of(values),
            watch_gzip_sent: self.watch_gzip_sent.of(values),
            stream_ends: ByLabel::resolve(&self.stream_ends, values),
            lagged: self.lagged.with_label_values(values),
            expired_starts: self.expired_starts.with_label_values(values),
            catch_ups: self.catch_ups.with_label_values(values),
            lag: self.lag.of(values),
            age: self.age.of(values),
        }
    }
}

/// Blocks of compressed lists, that were made and that others had made.
fn list_blocks(add: &Register<'_>) -> Result<[IntCounterVec; 2], MetricsError> {
    let labels = &ResourceLabels::NAMES;
    Ok([
        add.counters(
            "list_blocks_made_total",
            "Blocks of objects that were compressed for a list.",
            labels,
        )?,
        add.counters(
            "list_blocks_shared_total",
            "Blocks of objects in compressed lists that were compressed for another list.",
            labels,
        )?,
    ])
}

/// Bytes of compressed watches, before and after.
fn watch_gzip(add: &Register<'_>) -> Result<[ShardedCounters; 2], MetricsError> {
    let labels = &ResourceLabels::NAMES;
    Ok([
        add.sharded(
            "watch_gzip_input_bytes_total",
            "Bytes of events and bookmarks of watches that were sent as gzip, before compression.",
            labels,
        )?,
        add.sharded(
            "watch_gzip_sent_bytes_total",
            "Bytes of events and bookmarks of watches that were sent as gzip, as they were sent.",
            labels,
        )?,
    ])
}

/// Handles of the listener for clients.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    /// Connections open now.
    pub connections: IntGauge,
    /// Connections that were accepted.
    pub connections_accepted: IntCounter,
    /// Connections that failed, by reason.
    pub connections_failed: ByLabel<ConnectionFailure>,
    /// Requests refused because of an error in them, by reason.
    pub bad_requests: ByLabel<BadRequest>,
    /// Requests refused because of their caller, by reason.
    pub auth_refusals: ByLabel<AuthRefusal>,
    /// Watches that were not compressed because their clients do not seem to read gzip.
    pub gzip_unread: IntCounter,
    /// Requests that clients cancelled before the response began.
    pub request_aborts: IntCounter,
    /// Connections on which responses were cut because their clients did not read them in time.
    pub streams_stalled: StalledStreams,
    /// Tasks that panicked, or that returned although they never should.
    pub task_ends: ByLabel<TaskKind>,
}

impl ListenerMetrics {
    pub(super) fn register(
        registry: &Registry,
        task_ends: ByLabel<TaskKind>,
    ) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            connections: add.gauge("connections", "Connections open downstream.")?,
            connections_accepted: add.counter(
                "connections_accepted_total",
                "Connections accepted downstream.",
            )?,
            connections_failed: add.by_label(
                "connections_failed_total",
                "Connections that failed before or while they were used, by reason.",
                "reason",
            )?,
            bad_requests: add.by_label(
                "bad_requests_total",
                "Requests refused because of an error in them, by reason.",
                "reason",
            )?,
            auth_refusals: add.by_label(
                "auth_refusals_total",
                "Requests that the gateway refused because of their caller, by reason.",
                "reason",
            )?,
            gzip_unread: add.counter(
                "watch_gzip_unread_total",
                "Watches that were not compressed although their clients accept gzip, because these had left compressed ones at once.",
            )?,
            request_aborts: add.counter(
                "request_aborts_total",
                "Requests that clients cancelled before the response began.",
            )?,
            streams_stalled: StalledStreams::new(add.counter(
                "streams_stalled_total",
                "Connections on which responses were cut, because their clients read nothing for two minutes, answered no HTTP/2 PING, or took more than ten minutes for all of it.",
            )?),
            task_ends,
        })
    }
}
