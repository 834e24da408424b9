//! Collects the status document from the registry, its slots, and the tables of their watches. Nothing is collected unless it is asked for.

mod totals;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::registry::Registry;
use super::slot::Slot;
use crate::admin::{CheckOutcome, Readiness};
use crate::build_info;
use crate::cache::{Retention, WatchCache};
use crate::metrics::Metrics;
use crate::resource::CacheKey;
use crate::talkers::{Talker, TopTalkers};
use crate::watch::{CutReason, UnreadEvent, WatchCut, WatchPosition};
use kube_fanout_serving::status::{
    ClientStatus, CursorSummary, CutStatus, ForwardedStatus, GatewayStatus, HistoryLimits,
    HistoryRange, LagState, NamedCursors, RESOURCES_MAX, ResourceStatus, RingStatus,
    STATUS_VERSION, StatusDocument, StatusSource, TalkerStatus, TalkersStatus, TotalStatus,
    TrafficStatus, UpstreamWatchStatus, WatchLag,
};

use totals::{TotalsCollector, gauge, own_requests};

/// Rates are computed from two documents that are at least and at most so many seconds apart.
const RATE_SECONDS: std::ops::Range<f64> = 0.2..15.0;

pub(super) struct StatusCollector {
    registry: Arc<Registry>,
    totals: TotalsCollector,
    started: Instant,
    previous: Mutex<Option<TrafficSample>>,
}

/// The counters at the last document.
struct TrafficSample {
    at: Instant,
    counters: HashMap<String, (u64, u64), foldhash::fast::RandomState>,
    forwarded: u64,
}

impl StatusCollector {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            totals: TotalsCollector::new(metrics),
            started: Instant::now(),
            previous: Mutex::default(),
        }
    }

    /// Computes rates from the counters of the last document, and remembers these.
    fn rate(
        &self,
        now: Instant,
        resources: &mut [ResourceStatus],
        forwarded: &mut ForwardedStatus,
    ) {
        let mut previous = self.previous.lock();
        if let Some(sample) = &*previous {
            let seconds = now.saturating_duration_since(sample.at).as_secs_f64();
            if RATE_SECONDS.contains(&seconds) {
                forwarded.requests_per_second = rate(sample.forwarded, forwarded.requests, seconds);
                for ResourceStatus { name, traffic, .. } in &mut *resources {
                    // The counters of a cache that started again hold what it did before.
                    let Some(&(events, bytes)) = sample.counters.get(name) else {
                        continue;
                    };
                    traffic.events_per_second = rate(events, traffic.events, seconds);
                    traffic.bytes_per_second = rate(bytes, traffic.bytes, seconds);
                }
            }
        }
        let counters = resources.iter().map(|resource| {
            let traffic = resource.traffic;
            (resource.name.clone(), (traffic.events, traffic.bytes))
        });
        *previous = Some(TrafficSample {
            at: now,
            counters: counters.collect(),
            forwarded: forwarded.requests,
        });
    }

    fn gateway(&self, now: Instant) -> GatewayStatus {
        let failing: Vec<_> = self
            .registry
            .checks()
            .into_iter()
            .filter_map(|check| match check.outcome {
                CheckOutcome::Passed(_) => None,
                CheckOutcome::Failed(reason) => Some(format!("{}: {reason}", check.name)),
            })
            .collect();
        GatewayStatus {
            version: build_info::VERSION.to_owned(),
            commit: build_info::commit().to_owned(),
            uptime_seconds: now.saturating_duration_since(self.started).as_secs(),
            ready: failing.is_empty(),
            draining: self.registry.is_draining(),
            failing,
            limitation: self.registry.limitation(),
        }
    }
}

impl StatusSource for StatusCollector {
    fn collect(&self) -> StatusDocument {
        let now = tokio::time::Instant::now().into_std();
        let (retention, slots) = self.registry.for_status();
        let mut names = NamedCursors::default();
        let mut resources: Vec<_> = slots
            .iter()
            .map(|(key, slot)| {
                names.begin_resource();
                resource(key, slot, &retention, now, &mut names)
            })
            .collect();
        let mut forwarded = self.totals.forwarded();
        self.rate(now, &mut resources, &mut forwarded);
        let for_caches: u64 = slots.iter().map(|(_, slot)| own_requests(slot)).sum();
        let asked =
            for_caches + self.registry.permitted_forwards() + self.registry.shared_requests();
        let is_shadowed = self.registry.serving().has_shadow();
        let totals = TotalStatus {
            forwarded,
            shadow: is_shadowed.then(|| self.totals.shadow()),
            ..self.totals.of(&resources, asked)
        };
        resources.sort_by(|one, other| {
            other
                .cursors
                .watches
                .cmp(&one.cursors.watches)
                .then_with(|| one.name.cmp(&other.name))
        });
        let resources_omitted = resources.len().saturating_sub(RESOURCES_MAX);
        resources.truncate(RESOURCES_MAX);
        let (slowest, slow_groups) = names.finish();
        let cuts = self.registry.cut_watches();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        StatusDocument {
            version: STATUS_VERSION,
            at: since_1970.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }),
            gateway: self.gateway(now),
            totals,
            resources,
            resources_omitted,
            slowest,
            slow_groups,
            cuts: cuts.into_iter().map(|cut| cut_status(cut, now)).collect(),
            talkers: talkers_status(self.registry.top_talkers()),
        }
    }
}

fn rate(before: u64, now: u64, seconds: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let difference = now.checked_sub(before)? as f64;
    Some(difference / seconds)
}

fn resource(
    key: &CacheKey,
    slot: &Slot,
    retention: &Retention,
    now: Instant,
    names: &mut NamedCursors,
) -> ResourceStatus {
    let (recorder, clients) = (&slot.recorder, &slot.streams.metrics);
    let served = slot.served();
    let ring_bytes = gauge(recorder.cache.ring_bytes.get());
    let ring = served
        .as_ref()
        .map(|served| ring(&served.cache, retention, ring_bytes, now));
    let name = key.to_string();
    let mut cursors = CursorSummary::default();
    let scan = WatchScan {
        resource: &name,
        limits: HistoryLimits {
            fill: ring.map_or(0.0, |ring| ring.fill),
        },
        now,
    };
    slot.streams
        .table
        .visit(|watch| scan.count(watch, &mut cursors, names));
    ResourceStatus {
        ready: served.is_some(),
        harmless: slot.is_harmless(),
        note: slot.describe(),
        objects: gauge(recorder.cache.objects.get()),
        object_bytes: gauge(recorder.cache.snapshot_bytes.get()),
        upstream: UpstreamWatchStatus {
            connected: recorder.upstream.connected.get() > 0,
            age_seconds: recorder.age.now().as_secs_f64(),
            silence_seconds: recorder.silence().map(|silence| silence.as_secs_f64()),
        },
        ring,
        cursors,
        traffic: TrafficStatus {
            events: clients.watch_events.sum(),
            bytes: clients.watch_bytes.sum(),
            upstream_events: recorder.upstream.events_received.sum(),
            upstream_bytes: recorder.upstream.bytes_received.sum(),
            events_per_second: None,
            bytes_per_second: None,
        },
        name,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: usize) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

fn ring(cache: &WatchCache, retention: &Retention, bytes: u64, now: Instant) -> RingStatus {
    let history = cache.history();
    let (oldest, head) = (history.oldest(), history.head());
    let mut first = None;
    // If it is evicted in between, the document has no oldest version.
    let _ = history.read(oldest, |_, event| {
        first = Some((event.resource_version().0, event.arrived_at()));
        std::ops::ControlFlow::Break(())
    });
    let events = head.saturating_sub(oldest);
    RingStatus {
        events,
        bytes,
        fill: share(events, retention.events_max).max(share(bytes, retention.bytes_max)),
        oldest_version: first.map(|(version, _)| version),
        newest_version: cache.newest_given().0,
        oldest_age_seconds: first.map_or(0.0, |(_, at)| {
            now.saturating_duration_since(at).as_secs_f64()
        }),
    }
}

/// A walk over the open watches of a resource.
struct WatchScan<'a> {
    resource: &'a str,
    limits: HistoryLimits,
    now: Instant,
}

impl WatchScan<'_> {
    fn seconds_since(&self, at: Instant) -> f64 {
        self.now.saturating_duration_since(at).as_secs_f64()
    }

    fn count(
        &self,
        watch: WatchPosition<'_>,
        cursors: &mut CursorSummary,
        names: &mut NamedCursors,
    ) {
        let Some(UnreadEvent {
            sequence,
            is_lost,
            waits_since,
        }) = watch.unread
        else {
            if watch.is_future {
                cursors.add_future();
            } else {
                cursors.add_current();
            }
            return;
        };
        let history = watch.served.cache.history();
        let range = HistoryRange {
            oldest: history.oldest(),
            head: history.head(),
        };
        let (lag_events, position) = range.locate(sequence);
        let lag_seconds = waits_since.map_or(0.0, |at| self.seconds_since(at));
        let client = watch.client;
        let lag = WatchLag {
            position,
            seconds: lag_seconds,
            is_lost,
            is_initial: watch.is_initial,
        };
        let state = cursors.add_behind(self.limits, lag);
        if state != LagState::Behind {
            names.add_slow(&client.user, &client.user_agent, lag_seconds);
        }
        names.add(lag_seconds, || ClientStatus {
            resource: self.resource.to_owned(),
            user: client.user.to_string(),
            user_agent: client.user_agent.to_string(),
            address: client.address.to_string(),
            lag_events,
            lag_seconds,
            state,
            position,
            open_seconds: self.seconds_since(watch.opened_at),
        });
    }
}

fn talkers_status(top: TopTalkers) -> TalkersStatus {
    let talker = |talker: Talker| TalkerStatus {
        name: talker.name,
        watches: talker.watches,
        requests: talker.counts.requests,
        lists: talker.counts.lists,
        bytes: talker.counts.bytes,
    };
    TalkersStatus {
        seconds: top.seconds,
        users: top.users.into_iter().map(talker).collect(),
        agents: top.agents.into_iter().map(talker).collect(),
    }
}

fn cut_status(cut: WatchCut, now: Instant) -> CutStatus {
    CutStatus {
        resource: cut.key.to_string(),
        user: cut.client.user.into(),
        user_agent: cut.client.user_agent.into(),
        address: cut.client.address.to_string(),
        reason: match cut.reason {
            CutReason::Lagged => "lagged",
            CutReason::Stalled => "stalled",
            CutReason::Disconnected => "disconnected",
        },
        seconds_ago: now.saturating_duration_since(cut.at).as_secs_f64(),
        lag_seconds: cut.lag.map(|lag| lag.as_secs_f64()),
        events: cut.events,
        open_seconds: cut.open_for.as_secs_f64(),
    }
}
