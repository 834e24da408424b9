//! Counts what drivers and watches report, in metrics that are resolved once per resource. Nothing is decided here: whatever others act
//! on is kept by `slot`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cache_age::CacheAge;
use super::drain_flag::DrainFlag;
use super::list_progress::ListProgress;
use crate::cache::ApplyOutcome;
use crate::log_limit::{FaultLog, LogLimit};
use crate::metrics::{
    CacheMetrics, CacheState, ContactLog, Contradiction, DownstreamMetrics, DriftMetrics,
    GiveUpReason, Label, Metrics, ResourceLabels, UpstreamMetrics, WatchEnd,
};
use crate::resource::CacheKey;
use crate::upstream::cache_sink::{FillRecorder, FillState};
use crate::upstream::driver::{
    DriverRecorder, FailureReport, FrameRejection, UpstreamWatchEnd, WatchConnection,
};
use crate::upstream::reflector::{Failure, RelistReason};
use crate::watch::{WatchRecorder, WatchTable, WatchTotals};

/// Metrics of one cache's upstream side.
#[derive(Debug)]
pub(super) struct ResourceRecorder {
    key: CacheKey,
    pub(super) upstream: UpstreamMetrics,
    pub(super) cache: CacheMetrics,
    drift: DriftMetrics,
    pub(super) age: CacheAge,
    pub(super) listing: ListProgress,
    draining: DrainFlag,
    contact: Arc<ContactLog>,
    /// Limits the log lines about a resource without a cache, and about frames that cannot be used.
    given_up_log: Mutex<FaultLog<GiveUpReason>>,
    rejection_log: Mutex<FaultLog<FrameRejection>>,
    /// Limits the log lines about lists and watches that upstream, or something in front of it, answers with an error.
    refusal_log: Mutex<FaultLog<u16>>,
    /// Asks for discovery to be read again.
    discovery_wanted: Option<Arc<Notify>>,
}

impl ResourceRecorder {
    pub(super) fn new(metrics: &Metrics, key: &CacheKey, draining: DrainFlag) -> Self {
        let labels = ResourceLabels::from(key);
        Self {
            key: key.clone(),
            upstream: metrics.upstream(labels),
            cache: metrics.cache(labels),
            drift: metrics.drift(labels),
            age: CacheAge::default(),
            listing: ListProgress::default(),
            draining,
            contact: metrics.contact(),
            given_up_log: Mutex::default(),
            rejection_log: Mutex::default(),
            refusal_log: Mutex::default(),
            discovery_wanted: None,
        }
    }

    /// Has discovery read again when upstream seems to have redefined the resource.
    pub(super) fn asking_for_discovery(self, wanted: Arc<Notify>) -> Self {
        Self {
            discovery_wanted: Some(wanted),
            ..self
        }
    }

    fn ask_for_discovery(&self) {
        if let Some(wanted) = &self.discovery_wanted {
            wanted.notify_one();
        }
    }

    /// Shows the cache's state in the metrics.
    pub(super) fn announce(&self, state: CacheState) {
        self.cache.state.set(state);
    }

    /// Shows that the cache was filled.
    pub(super) fn filled(&self) {
        self.announce(CacheState::Ready);
        self.cache.initializations.inc();
        if self.given_up_log.lock().end() {
            tracing::info!(resource = %self.key, "the resource has a cache again");
        }
    }

    /// Shows that the cache was given up, with the reason, and that it holds nothing.
    pub(super) fn given_up(&self, reason: GiveUpReason) {
        self.announce(CacheState::GivenUp(reason));
        self.cache.given_up.inc(reason);
        if self.given_up_log.lock().is_due(reason) {
            let reason = reason.as_str();
            tracing::warn!(resource = %self.key, reason, "the resource has no cache: its requests are forwarded");
        }
        let cache = &self.cache;
        for gauge in [
            &cache.objects,
            &cache.snapshot_bytes,
            &cache.ring_events,
            &cache.ring_bytes,
            &cache.tombstones,
            &cache.tombstone_bytes,
        ] {
            gauge.set(0);
        }
        cache.history.set(0.0);
    }

    /// Counts a contradiction between upstream and the cache.
    pub(super) fn contradicted(&self, contradiction: Contradiction) {
        self.upstream.contradictions.inc(contradiction);
    }

    /// Counts objects that were compared with upstream's; `ends` if they were the last ones of the cache.
    pub(super) fn compared(&self, count: usize, ends: bool) {
        self.drift.objects_compared.inc_by(count as u64);
        self.drift.comparisons.inc_by(u64::from(ends));
    }

    /// Counts a page that could not be compared.
    pub(super) fn not_compared(&self) {
        self.drift.pages_skipped.inc();
    }

    /// The number of objects that were compared, and how often all of them were.
    #[cfg(test)]
    pub(super) fn compared_so_far(&self) -> (u64, u64) {
        let drift = &self.drift;
        (drift.objects_compared.get(), drift.comparisons.get())
    }

    /// Time since upstream has sent anything, for reports; `None` before the first byte.
    pub(super) fn silence(&self) -> Option<Duration> {
        let last = self.upstream.last_received.get();
        (last > 0.0).then(|| Duration::from_secs_f64((seconds_since_1970() - last).max(0.0)))
    }

    /// Shows how old the cache may be.
    pub(super) fn aged(&self, age: Duration) {
        self.cache.age.set(age.as_secs_f64());
    }

    /// The recorder of one cache of the resource.
    pub(super) fn for_cache(self: Arc<Self>) -> Arc<CacheRecorder> {
        self.age.forget();
        Arc::new(CacheRecorder { resource: self })
    }
}

fn seconds_since_1970() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// Turns the reports of one cache's driver and sink into metrics and log lines.
#[derive(Debug)]
pub(super) struct CacheRecorder {
    resource: Arc<ResourceRecorder>,
}

impl CacheRecorder {
    fn lost(&self, error: &str) {
        self.resource.contact.lost(&self.resource.key, error);
    }
}

impl DriverRecorder for CacheRecorder {
    fn received(&self, bytes: usize) {
        let upstream = &self.resource.upstream;
        upstream.bytes_received.add(bytes as u64);
        upstream.last_received.set(seconds_since_1970());
    }

    fn rejected(&self, reason: FrameRejection) {
        if self.resource.rejection_log.lock().is_due(reason) {
            tracing::warn!(resource = %self.resource.key, ?reason, "cannot use a frame from upstream");
        }
        self.resource.upstream.frames_rejected.inc(reason);
    }

    fn relisted(&self, reason: RelistReason) {
        tracing::info!(resource = %self.resource.key, reason = reason.as_str(), "listing");
        self.resource.listing.begin();
        self.resource.upstream.lists.inc();
        if reason != RelistReason::Start {
            self.resource.upstream.relists.inc(reason);
            // Its history may have ended together with its definition.
            self.resource.ask_for_discovery();
        }
    }

    fn failed(&self, report: FailureReport<'_>) {
        if matches!(report.failure, Failure::Transport) {
            self.lost(report.cause);
        }
        let Failure::Status(status) = report.failure else {
            return;
        };
        if matches!(status.code, 404 | 410) {
            self.resource.ask_for_discovery();
        }
        // The others are ordinary: upstream lacks a feature, a version or the history.
        let is_refusal =
            matches!(status.code, 401 | 403 | 405 | 429 | 500..) && !status.version_too_large;
        if is_refusal && self.resource.refusal_log.lock().is_due(status.code) {
            let (resource, request, code) = (&self.resource.key, report.asked, status.code);
            tracing::warn!(%resource, %request, code, "the API server does not answer for the resource; its cache is served as it is");
        }
    }

    fn connected(&self, connected: WatchConnection) {
        let open = i64::from(connected == WatchConnection::Yes);
        self.resource.upstream.watches_active.set(open);
        self.resource.upstream.connected.set(open);
        match connected {
            WatchConnection::Yes => {
                self.resource.contact.found();
                if self.resource.refusal_log.lock().end() {
                    tracing::info!(resource = %self.resource.key, "the API server answers for the resource again");
                }
                self.resource.age.begin();
            }
            WatchConnection::No(end) => {
                if end == UpstreamWatchEnd::Disconnected {
                    self.lost("the connection of a watch was closed or went silent");
                }
                self.resource.upstream.watch_ends.inc(end);
            }
        }
    }

    fn proven(&self) {
        self.resource.age.prove();
        // A comparison is news, too.
        self.resource
            .upstream
            .last_received
            .set(seconds_since_1970());
    }

    fn dated(&self, date: &HeaderValue) {
        if let Some(offset) = clock_offset(date, Timestamp::now()) {
            self.resource.upstream.clock_offset.set(offset);
        }
    }

    fn bookmark(&self) {
        self.resource.upstream.events_received.add(1);
    }
}

impl FillRecorder for CacheRecorder {
    fn filling(&self, objects: usize) {
        if let Some(elapsed) = self.resource.listing.received(objects) {
            tracing::info!(resource = %self.resource.key, objects, ?elapsed, "objects listed so far");
        }
    }

    fn applied(&self, applied: ApplyOutcome) {
        self.resource
            .upstream
            .events_received
            .add((applied.events + applied.ignored) as u64);
        self.resource
            .cache
            .frames_encoded
            .inc_by(applied.frames as u64);
    }

    fn filled(&self) {
        self.resource.listing.end();
    }

    fn state(&self, state: FillState) {
        let cache = &self.resource.cache;
        self.resource
            .upstream
            .resource_version
            .set(i64::try_from(state.version.0).unwrap_or(i64::MAX));
        cache.objects.set(gauge(state.objects));
        cache.snapshot_bytes.set(gauge(state.objects_len));
        cache.ring_events.set(gauge(state.events));
        cache.ring_bytes.set(gauge(state.bytes));
        cache.tombstones.set(gauge(state.tombstones));
        cache.tombstone_bytes.set(gauge(state.tombstones_len));
        cache.history.set(state.history_age.as_secs_f64());
    }

    fn write_age(&self, age: SignedDuration) {
        let upstream = &self.resource.upstream;
        upstream.event_age.observe(age.as_secs_f64().max(0.0));
        if age.is_negative() {
            upstream.future_writes.inc();
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// How much later the clock is that wrote `date` than the one here, in seconds: half a second more than the date says, because it is the
/// beginning of a second. `None` if it is no date.
fn clock_offset(date: &HeaderValue, now: Timestamp) -> Option<f64> {
    let date = rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    Some((date.duration_since(now) + SignedDuration::from_millis(500)).as_secs_f64())
}

/// The driver is dropped with its task, at any point of its work.
impl Drop for CacheRecorder {
    fn drop(&mut self) {
        let upstream = &self.resource.upstream;
        if upstream.watches_active.get() > 0 {
            upstream.watches_active.set(0);
            upstream.connected.set(0);
            upstream
                .watch_ends
                .inc(if self.resource.draining.is_begun() {
                    UpstreamWatchEnd::Drain
                } else {
                    UpstreamWatchEnd::Idle
                });
        }
    }
}

/// Metrics of one cache's clients.
#[derive(Debug)]
pub(super) struct StreamRecorder {
    key: CacheKey,
    pub(super) metrics: DownstreamMetrics,
    draining: DrainFlag,
    /// Many watches fall out of the history together.
    lag_log: Mutex<LogLimit>,
    /// The open watches, for the status page.
    pub(super) table: Arc<WatchTable>,
}

impl StreamRecorder {
    pub(super) fn new(
        metrics: &Metrics,
        key: &CacheKey,
        draining: DrainFlag,
        table: WatchTable,
    ) -> Self {
        Self {
            key: key.clone(),
            metrics: metrics.downstream(key.into()),
            draining,
            lag_log: Mutex::default(),
            table: Arc::new(table),
        }
    }
}

impl WatchRecorder for StreamRecorder {
    fn expired_at_start(&self) {
        self.metrics.expired_starts.inc();
    }

    fn started(&self) {
        self.metrics.watches.inc();
    }

    fn caught_up(&self) {
        self.metrics.catch_ups.inc();
    }

    fn delivered(&self, events: u64, bytes: u64) {
        self.metrics.watch_events.add(events);
        self.metrics.watch_bytes.add(bytes);
    }

    fn compressed(&self, before: u64, after: u64) {
        self.metrics.watch_gzip_input.add(before);
        self.metrics.watch_gzip_sent.add(after);
    }

    fn delayed(&self, by: Duration, clients: u64) {
        self.metrics.lag.observe_many(by, clients);
    }

    fn aged(&self, by: Duration, clients: u64) {
        self.metrics.age.observe_many(by, clients);
    }

    fn ended(&self, totals: WatchTotals) {
        let WatchTotals {
            end,
            client,
            events,
            bytes,
        } = totals;
        // At the drain's deadline, connections whose client does not read are closed; that is not the client's doing.
        let is_drained =
            matches!(end, WatchEnd::CacheGone | WatchEnd::ClientGone) && self.draining.is_begun();
        let end = if is_drained { WatchEnd::Drain } else { end };
        self.metrics.watches.dec();
        self.metrics.stream_ends.inc(end);
        let (resource, reason) = (&self.key, end.as_str());
        let client = client.map(tracing::field::display);
        let due = match end == WatchEnd::Lagged {
            true => {
                self.metrics.lagged.inc();
                self.lag_log.lock().due(Instant::now())
            }
            false => None,
        };
        match due {
            Some(count) => {
                tracing::info!(%resource, reason, client, events, bytes, count, "watch ended");
            }
            None => tracing::debug!(%resource, reason, client, events, bytes, "watch ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::decode::UpstreamStatus;
    use crate::resource::Gvr;
    use crate::upstream::driver::RequestKind;
    use crate::upstream::samples::captured_log::CapturedLog;
    use crate::view::EndSchedule;

    #[test]
    fn the_date_of_an_answer_tells_the_other_clock_to_half_a_second() {
        let now = "2026-01-01T00:00:10.25Z".parse().unwrap();
        let offset = |date| clock_offset(&HeaderValue::from_static(date), now);
        assert_eq!(offset("Thu, 01 Jan 2026 00:00:10 GMT"), Some(0.25));
        assert_eq!(offset("Thu, 01 Jan 2026 00:00:40 GMT"), Some(30.25));
        assert_eq!(offset("Thu, 01 Jan 2026 00:00:00 GMT"), Some(-9.75));
        for date in ["", "yesterday", "2026-01-01T00:00:00Z"] {
            assert_eq!(offset(date), None, "{date}");
        }
    }

    fn recorder() -> Arc<ResourceRecorder> {
        let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let metrics = Metrics::new().unwrap();
        Arc::new(ResourceRecorder::new(&metrics, &key, DrainFlag::default()))
    }

    #[test]
    fn a_watch_that_is_answered_with_errors_is_logged_once_and_so_is_its_return() {
        let (log, _guard) = CapturedLog::start();
        let recorder = recorder().for_cache();
        let fail = |code| {
            let failure = Failure::Status(UpstreamStatus::of_code(code));
            recorder.failed(FailureReport {
                asked: RequestKind::Watch,
                failure: &failure,
                rejection: None,
                cause: "",
            });
        };
        for code in [410, 404, 406, 422] {
            fail(code);
        }
        assert!(log.lines_with("WARN").is_empty(), "ordinary");
        for _ in 0..5 {
            fail(502);
        }
        assert_eq!(log.lines_with("does not answer for the resource").len(), 1);
        for _ in 0..2 {
            recorder.connected(WatchConnection::Yes);
        }
        assert_eq!(log.lines_with("answers for the resource again").len(), 1);
    }

    #[test]
    fn a_resource_that_gets_its_cache_back_is_logged_once() {
        let (log, _guard) = CapturedLog::start();
        let recorder = recorder();
        for _ in 0..2 {
            recorder.given_up(GiveUpReason::Forbidden);
        }
        assert_eq!(log.lines_with("the resource has no cache").len(), 1);
        for _ in 0..2 {
            recorder.filled();
        }
        assert_eq!(log.lines_with("the resource has a cache again").len(), 1);
    }

    #[track_caller]
    fn check_end(end: WatchEnd, draining: &DrainFlag, expected: WatchEnd) {
        let metrics = Metrics::new().unwrap();
        let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let recorder = StreamRecorder::new(&metrics, &key, draining.clone(), table(&key));
        recorder.ended(WatchTotals {
            end,
            client: None,
            events: 1,
            bytes: 1,
        });
        for reason in WatchEnd::VARIANTS {
            let count = u64::from(*reason == expected);
            assert_eq!(
                recorder.metrics.stream_ends.count(*reason),
                count,
                "{reason:?}"
            );
        }
    }

    #[test]
    fn watches_that_lag_together_are_one_log_line_with_a_client() {
        let (log, _guard) = CapturedLog::start();
        let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let draining = DrainFlag::default();
        let metrics = Metrics::new().unwrap();
        let recorder = StreamRecorder::new(&metrics, &key, draining, table(&key));
        for _ in 0..5 {
            recorder.ended(WatchTotals {
                end: WatchEnd::Lagged,
                client: Some([10, 0, 0, 7].into()),
                events: 1,
                bytes: 1,
            });
        }
        let lines = log.lines_with("watch ended");
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("client=10.0.0.7"), "{lines:#?}");
    }

    fn table(key: &CacheKey) -> WatchTable {
        WatchTable::new(key.clone(), Arc::default(), Arc::default())
    }

    #[test]
    fn watches_that_a_drain_ends_are_told_from_others() {
        let draining = DrainFlag::default();
        check_end(WatchEnd::CacheGone, &draining, WatchEnd::CacheGone);
        check_end(WatchEnd::ClientGone, &draining, WatchEnd::ClientGone);
        check_end(WatchEnd::Stalled, &draining, WatchEnd::Stalled);
        check_end(WatchEnd::Rebalance, &draining, WatchEnd::Rebalance);
        let now = std::time::Instant::now();
        draining.begin(&Arc::new(EndSchedule::new(now, Duration::ZERO, 0.0)));
        check_end(WatchEnd::CacheGone, &draining, WatchEnd::Drain);
        check_end(WatchEnd::ClientGone, &draining, WatchEnd::Drain);
        check_end(WatchEnd::Timeout, &draining, WatchEnd::Timeout);
        check_end(WatchEnd::Lagged, &draining, WatchEnd::Lagged);
        check_end(WatchEnd::Revoked, &draining, WatchEnd::Revoked);
    }
}
