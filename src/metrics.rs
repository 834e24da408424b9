//! Metric handles and their registry. A part gets a struct of handles already resolved; nobody looks labels up later.
//!
//! The composition root makes one [`Metrics`], asks it for the handles of each resource once, and gives them away.
//! Label values come from closed sets: resources, verbs, codes and the enums of this module; never names of objects,
//! users or addresses. Names echo the API server's where the meaning is equal; `docs/METRICS.md` lists them all.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod cache;
mod downstream;
mod families;
mod files;
mod labels;
mod passthrough;
mod sharded;
mod upstream;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts, Registry, TextEncoder};
use tokio::time::Instant;

use crate::build_info;
use crate::resource::CacheKey;

pub use admission::{AdmissionMetrics, Shortages};
pub use audit::AuditMetrics;
pub use authentication::{
    AuthenticationMetrics, AuthenticationOutcome, TokenCacheLookup, TokenReviewOutcome,
};
pub use authorization::{AuthorizationMetrics, Recheck, ReviewOutcome, Revocation};
pub use cache::CacheMetrics;
pub use downstream::{DownstreamMetrics, ListenerMetrics, RequestCounters};
pub use families::{ByLabel, StateGauges};
pub use files::{FileKind, FileMetrics, ReloadOutcome};
pub use labels::{
    AuditEvents, AuthRefusal, BadRequest, CacheState, ClientWatchEnd, ConnectionFailure,
    Contradiction, FrameRejectionLabel, GiveUpReason, Label, LimitLabel, PassthroughError,
    PermitKind, RelistLabel, TaskKind, UpstreamWatchEnd, VerbLabel,
};
pub use passthrough::PassthroughMetrics;
pub use sharded::{ShardedCounter, ShardedHistogram};
pub use upstream::{TableMetrics, UpstreamMetrics};

#[cfg(test)]
mod tests;

/// Media type of [`Metrics::page`].
pub const PAGE_CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Series of a resource go after so long without use, counters with them: resources come and go as long as the process runs. Every
/// scrape has seen the last value by then.
const UNUSED_AGE_MAX: Duration = Duration::from_secs(600);

/// Every metric of ours begins with this and an underscore.
const PREFIX: &str = "kube_fanout";

/// The metrics cannot be registered or written: a mistake of ours, found by the first test that makes them.
#[derive(Debug, thiserror::Error)]
#[error("metrics are inconsistent")]
pub struct MetricsError(#[from] prometheus::Error);

/// What names a cached resource in labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceLabels<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// How its cache holds objects: `json` or `protobuf`.
    pub encoding: &'a str,
}

impl<'a> From<&'a CacheKey> for ResourceLabels<'a> {
    fn from(key: &'a CacheKey) -> Self {
        let gvr = &key.gvr;
        Self {
            group: &gvr.group,
            version: &gvr.version,
            resource: &gvr.resource,
            encoding: key.encoding.as_str(),
        }
    }
}

impl<'a> ResourceLabels<'a> {
    const NAMES: [&'static str; 4] = ["group", "version", "resource", "encoding"];

    fn of([group, version, resource, encoding]: &'a [Box<str>; 4]) -> Self {
        Self {
            group,
            version,
            resource,
            encoding,
        }
    }

    const fn values(&self) -> [&'a str; 4] {
        [self.group, self.version, self.resource, self.encoding]
    }
}

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    ours: Registry,
    /// `process_*`: known by these names, so without our prefix.
    process: Registry,
    upstream: upstream::UpstreamFamilies,
    cache: cache::CacheFamilies,
    downstream: downstream::DownstreamFamilies,
    listener: ListenerMetrics,
    admission: AdmissionMetrics,
    authentication: AuthenticationMetrics,
    authorization: AuthorizationMetrics,
    passthrough: PassthroughMetrics,
    files: FileMetrics,
    audit: AuditMetrics,
    task_ends: ByLabel<TaskKind>,
    /// Resources that have series.
    resources: Mutex<HashMap<[Box<str>; 4], SeriesUsage>>,
}

/// Whether a resource's series are used.
#[derive(Debug, Default)]
struct SeriesUsage {
    unused_since: Option<Instant>,
    /// Clients' open watches, once they were asked for.
    watches: Option<IntGauge>,
    /// Open watches of tables upstream, once they were asked for.
    tables: Option<IntGauge>,
}

impl SeriesUsage {
    fn has_watches(&self) -> bool {
        let mut gauges = self.watches.iter().chain(&self.tables);
        gauges.any(|watches| watches.get() > 0)
    }
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// If two metrics have the same name, or one has an invalid one.
    pub fn new() -> Result<Self, MetricsError> {
        let ours = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
        let process = Registry::new();
        process.register(Box::new(ProcessCollector::for_self()))?;
        register_build_info(&ours)?;
        let task_ends = task_ends(&ours)?;
        let shortages = Shortages::register(&ours)?;
        Ok(Self {
            upstream: upstream::UpstreamFamilies::register(&ours)?,
            cache: cache::CacheFamilies::register(&ours)?,
            downstream: downstream::DownstreamFamilies::register(&ours)?,
            listener: ListenerMetrics::register(&ours, task_ends.clone())?,
            admission: AdmissionMetrics::register(&ours, shortages.clone())?,
            authentication: AuthenticationMetrics::register(&ours)?,
            authorization: AuthorizationMetrics::register(&ours)?,
            passthrough: PassthroughMetrics::register(&ours, shortages)?,
            files: FileMetrics::register(&ours)?,
            audit: AuditMetrics::register(&ours)?,
            task_ends,
            ours,
            process,
            resources: Mutex::default(),
        })
    }

    fn resources(&self) -> MutexGuard<'_, HashMap<[Box<str>; 4], SeriesUsage>> {
        // Nothing under the lock panics half way.
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out series of a resource, which counts as used.
    fn hand_out<T>(
        &self,
        labels: ResourceLabels<'_>,
        series: impl FnOnce(&mut SeriesUsage) -> T,
    ) -> T {
        let values = labels.values().map(Box::from);
        let mut resources = self.resources();
        let usage = resources.entry(values).or_default();
        usage.unused_since = None;
        series(usage)
    }

    /// Takes all series of resources off the page that have been found unused for ten minutes. Used is what `is_used` says, and what
    /// has a watch open. To be called now and then.
    pub fn forget_unused(&self, is_used: impl Fn(ResourceLabels<'_>) -> bool) {
        let now = Instant::now();
        self.resources().retain(|values, usage| {
            let labels = ResourceLabels::of(values);
            if usage.has_watches() || is_used(labels) {
                usage.unused_since = None;
                return true;
            }
            let since = *usage.unused_since.get_or_insert(now);
            if now.duration_since(since) < UNUSED_AGE_MAX {
                return true;
            }
            self.upstream.remove(labels);
            self.cache.remove(labels);
            self.downstream.remove(labels);
            false
        });
    }

    /// Handles of one resource's upstream watch. Ask once a resource.
    #[must_use]
    pub fn upstream(&self, labels: ResourceLabels<'_>) -> UpstreamMetrics {
        self.hand_out(labels, |_| self.upstream.of(labels))
    }

    /// Handles of one resource's shared watches of tables.
    #[must_use]
    pub fn tables(&self, labels: ResourceLabels<'_>) -> TableMetrics {
        self.hand_out(labels, |usage| {
            let metrics = self.upstream.tables(labels);
            usage.tables = Some(metrics.watches.clone());
            metrics
        })
    }

    /// Handles of one resource's watch cache. Ask once a resource.
    #[must_use]
    pub fn cache(&self, labels: ResourceLabels<'_>) -> CacheMetrics {
        self.hand_out(labels, |_| self.cache.of(labels))
    }

    /// Handles of what clients do with one resource. Ask once a resource.
    #[must_use]
    pub fn downstream(&self, labels: ResourceLabels<'_>) -> DownstreamMetrics {
        self.hand_out(labels, |usage| {
            let metrics = self.downstream.of(labels);
            usage.watches = Some(metrics.watches.clone());
            metrics
        })
    }

    /// Takes the gauges of a resource off the page: its cache has ended, and what they said last is no longer true.
    /// Counters stay for a while. Handles given out before no longer show.
    pub fn forget(&self, labels: ResourceLabels<'_>) {
        self.upstream.forget(labels);
        self.cache.forget(labels);
    }

    /// Handles of the listener for clients.
    #[must_use]
    pub fn listener(&self) -> ListenerMetrics {
        self.listener.clone()
    }

    /// Handles of what is bounded for all clients together.
    #[must_use]
    pub fn admission(&self) -> AdmissionMetrics {
        self.admission.clone()
    }

    /// Handles of authentication.
    #[must_use]
    pub fn authentication(&self) -> AuthenticationMetrics {
        self.authentication.clone()
    }

    /// Handles of authorization.
    #[must_use]
    pub fn authorization(&self) -> AuthorizationMetrics {
        self.authorization.clone()
    }

    /// Handles of what is forwarded.
    #[must_use]
    pub fn passthrough(&self) -> PassthroughMetrics {
        self.passthrough.clone()
    }

    /// Handles of files that are read again.
    #[must_use]
    pub fn files(&self) -> FileMetrics {
        self.files.clone()
    }

    /// Handles of the audit log.
    #[must_use]
    pub fn audit(&self) -> AuditMetrics {
        self.audit.clone()
    }

    /// Tasks that panicked, or ended although they have no end.
    #[must_use]
    pub fn task_ends(&self) -> ByLabel<TaskKind> {
        self.task_ends.clone()
    }

    /// Every family that has a series, sorted by name.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.ours.gather();
        families.extend(self.process.gather());
        families
    }

    /// The page that a scrape gets, in the text format. Takes some 4 µs a series: not on a thread that serves.
    ///
    /// # Errors
    /// If a family is inconsistent.
    pub fn page(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.gather())?)
    }
}

fn task_ends(registry: &Registry) -> Result<ByLabel<TaskKind>, MetricsError> {
    let family = families::Register(registry).counters(
        "task_unexpected_ends_total",
        "Tasks of the gateway that panicked, or that ended although they have no end.",
        &["task"],
    )?;
    Ok(ByLabel::resolve(&family, &[]))
}

fn register_build_info(registry: &Registry) -> Result<(), MetricsError> {
    let opts = Opts::new("build_info", "What is running; always 1.")
        .const_label("version", build_info::VERSION)
        .const_label("commit", build_info::commit());
    let gauge = IntGauge::with_opts(opts)?;
    gauge.set(1);
    registry.register(Box::new(gauge))?;
    Ok(())
}
