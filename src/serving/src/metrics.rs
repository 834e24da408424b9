//! The metrics of the process. Each part of the gateway gets a struct of handles with resolved labels, so that counting looks up
//! nothing.
//!
//! The composition root creates one [`Metrics`] and passes its handles to the other parts, once for each resource. Start there, then read
//! `families` and `sharded`; every other file defines the metrics of one part. Label values come from closed sets (`labels`): resources,
//! verbs, codes and enums, but never names of objects, users or addresses. A metric has the API server's name where it means the same.
//! `docs/METRICS.md` lists all metrics; a test compares names, types and labels.

mod admission;
mod audit;
mod authentication;
mod authorization;
mod cache;
mod checkpoint;
mod contact_log;
mod downstream;
mod drift;
mod endpoints;
mod families;
mod files;
mod forwarded;
mod handover;
mod labels;
mod memory;
mod passthrough;
mod process;
mod readiness;
mod rebalance;
mod resource_labels;
mod serving;
mod shadow;
mod sharded;
mod stalled_streams;
mod tables;
mod traces;
mod upstream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts, Registry, TextEncoder};
use tokio::time::Instant;

use crate::build_info;

pub use admission::{AdmissionMetrics, Shortages};
pub use audit::AuditMetrics;
pub use authentication::{
    AuthenticationMetrics, AuthenticationOutcome, TokenCacheLookup, TokenReviewOutcome,
};
pub use authorization::{
    AuthorizationMetrics, AuthorizersLabel, Recheck, ReviewCause, ReviewOutcome, Revocation,
};
pub use cache::CacheMetrics;
pub use checkpoint::CheckpointMetrics;
pub use contact_log::ContactLog;
pub use downstream::{DownstreamMetrics, ListMetrics, ListenerMetrics, RequestCounters};
pub use drift::DriftMetrics;
pub use endpoints::{EndpointFailureLabel, EndpointMetrics, EndpointStateLabel};
pub use families::{ByLabel, MetricsError, StateGauges};
pub use files::{FileKind, FileMetrics, ReloadOutcome};
pub use forwarded::{ForwardedAnswer, ForwardedLabels, ForwardedMetrics, ForwardedRequest};
pub use handover::{
    HandoverOutcome, ServedHandover, ServedHandoverMetrics, TakenHandoverMetrics, TransferMetrics,
};
pub use labels::{
    AuditEvents, AuthRefusal, BadRequest, CacheState, ConnectionFailure, Contradiction,
    GiveUpReason, Label, LimitLabel, MemoryPart, PassthroughError, PermitKind, PressureStep,
    RestoreOutcome, TaskKind, VerbLabel, WatchEnd,
};
pub use memory::MemoryMetrics;
pub use passthrough::PassthroughMetrics;
pub use readiness::{ReadinessLabel, ReadinessMetrics};
pub use rebalance::{RebalanceMetrics, RebalanceOutcome};
pub use resource_labels::ResourceLabels;
pub use serving::{RuleCounters, ServingMetrics};
pub use shadow::{ShadowMetrics, ShadowOutcome};
pub use sharded::{ShardedCounter, ShardedHistogram};
pub use stalled_streams::StalledStreams;
pub use tables::TableMetrics;
pub use traces::{SpanOutcome, TraceMetrics};
pub use upstream::UpstreamMetrics;

#[cfg(test)]
mod tests;

/// Media type of [`Metrics::page`].
pub const PAGE_CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// All series of a resource, counters included, are removed when the resource was not used for this long, because custom resources
/// are created and deleted as long as the process runs. By then every scraper has read the last values.
const UNUSED_AGE_MAX: Duration = Duration::from_secs(600);

/// The prefix of the gateway's metrics; an underscore follows it.
const PREFIX: &str = "kube_fanout";

/// All metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    gateway: Registry,
    /// The standard metrics `process_*`, which have no prefix.
    process: Registry,
    upstream: upstream::UpstreamFamilies,
    tables: tables::TableFamilies,
    endpoints: endpoints::EndpointFamilies,
    cache: cache::CacheFamilies,
    checkpoint: checkpoint::CheckpointFamilies,
    drift: drift::DriftFamilies,
    handover: handover::HandoverFamilies,
    downstream: downstream::DownstreamFamilies,
    listener: ListenerMetrics,
    admission: AdmissionMetrics,
    authentication: AuthenticationMetrics,
    authorization: AuthorizationMetrics,
    passthrough: PassthroughMetrics,
    forwarded: ForwardedMetrics,
    files: FileMetrics,
    audit: AuditMetrics,
    memory: MemoryMetrics,
    rebalance: RebalanceMetrics,
    serving: ServingMetrics,
    shadow: ShadowMetrics,
    readiness: ReadinessMetrics,
    api_services_known: IntGauge,
    traces: TraceMetrics,
    task_ends: ByLabel<TaskKind>,
    contact: Arc<ContactLog>,
    /// The resources that have series, by label values.
    resources: Mutex<HashMap<[Box<str>; 4], SeriesUsage>>,
}

/// The use of a resource's series.
#[derive(Debug, Default)]
struct SeriesUsage {
    /// `None` while the series are used.
    unused_since: Option<Instant>,
    /// The gauge of clients' open watches, once it exists.
    watches: Option<IntGauge>,
    /// The gauge of open upstream watches of Tables, once it exists.
    tables: Option<IntGauge>,
}

impl SeriesUsage {
    fn has_watches(&self) -> bool {
        let mut gauges = self.watches.iter().chain(&self.tables);
        gauges.any(|watches| watches.get() > 0)
    }
}

impl Metrics {
    /// Registers all metrics.
    ///
    /// # Errors
    /// If two metrics have the same name, or a name is invalid.
    pub fn new() -> Result<Self, MetricsError> {
        let gateway = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
        let process = Registry::new();
        process.register(Box::new(process::ProcessCollector::new()?))?;
        register_build_info(&gateway)?;
        let add = families::Register(&gateway);
        let task_ends: ByLabel<TaskKind> = add.by_label(
            "task_unexpected_ends_total",
            "Tasks of the gateway that panicked, or that returned although they never should.",
            "task",
        )?;
        let api_services_known = add.gauge(
            "api_services_known",
            "Whether the APIServices were read and are followed; if not, only built-in groups and named resources are cached.",
        )?;
        let shortages = Shortages::register(&gateway)?;
        let by_cause = authorization::reviews_by_cause(&gateway)?;
        Ok(Self {
            upstream: upstream::UpstreamFamilies::register(&gateway)?,
            tables: tables::TableFamilies::register(&gateway)?,
            endpoints: endpoints::EndpointFamilies::register(&gateway)?,
            cache: cache::CacheFamilies::register(&gateway)?,
            checkpoint: checkpoint::CheckpointFamilies::register(&gateway)?,
            drift: drift::DriftFamilies::register(&gateway)?,
            handover: handover::HandoverFamilies::register(&gateway)?,
            downstream: downstream::DownstreamFamilies::register(&gateway)?,
            listener: ListenerMetrics::register(&gateway, task_ends.clone())?,
            admission: AdmissionMetrics::register(&gateway, shortages.clone())?,
            authentication: AuthenticationMetrics::register(&gateway, &by_cause)?,
            authorization: AuthorizationMetrics::register(&gateway, &by_cause)?,
            passthrough: PassthroughMetrics::register(&gateway, shortages)?,
            forwarded: ForwardedMetrics::register(&gateway)?,
            files: FileMetrics::register(&gateway)?,
            audit: AuditMetrics::register(&gateway)?,
            memory: MemoryMetrics::register(&gateway)?,
            rebalance: RebalanceMetrics::register(&gateway)?,
            serving: ServingMetrics::register(&gateway)?,
            shadow: ShadowMetrics::register(&gateway)?,
            readiness: ReadinessMetrics::register(&gateway)?,
            api_services_known,
            traces: TraceMetrics::register(&gateway)?,
            task_ends,
            gateway,
            process,
            contact: Arc::default(),
            resources: Mutex::default(),
        })
    }

    fn resources(&self) -> MutexGuard<'_, HashMap<[Box<str>; 4], SeriesUsage>> {
        // No code panics between changes that belong together, so the map is consistent after a panic.
        self.resources.lock()
    }

    /// Returns what `series` creates for a resource, and marks the resource as used.
    fn with_usage<T>(
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

    /// Removes all series of resources that were unused for ten minutes. A resource is used if `is_used` returns true or if it has an
    /// open watch. To be called periodically; the time counts from the first call that finds the resource unused.
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
            self.tables.remove(labels);
            self.cache.remove(labels);
            self.checkpoint.remove(labels);
            self.drift.remove(labels);
            self.handover.remove(labels);
            self.downstream.remove(labels);
            false
        });
    }

    /// Number of clients' open watches: those of cached resources, and forwarded requests, of which most are watches.
    #[must_use]
    pub fn open_watches(&self) -> u64 {
        let forwarded = self.passthrough.requests_active.get();
        self.cached_watches() + u64::try_from(forwarded).unwrap_or(0)
    }

    /// Number of clients' open watches that are answered from memory.
    #[must_use]
    pub fn cached_watches(&self) -> u64 {
        let resources = self.resources();
        let watches = resources
            .values()
            .filter_map(|usage| usage.watches.as_ref());
        let count: i64 = watches.map(IntGauge::get).sum();
        u64::try_from(count).unwrap_or(0)
    }

    /// Handles of the metrics of spans.
    #[must_use]
    pub fn traces(&self) -> TraceMetrics {
        self.traces.clone()
    }

    /// Handles of one resource's upstream watch. Call once per resource and keep the result.
    #[must_use]
    pub fn upstream(&self, labels: ResourceLabels<'_>) -> UpstreamMetrics {
        self.with_usage(labels, |_| self.upstream.of(labels))
    }

    /// Handles of one of several API servers, by its host and port.
    #[must_use]
    pub fn endpoint(&self, endpoint: &str) -> EndpointMetrics {
        self.endpoints.of(endpoint)
    }

    /// Handles of one resource's shared watches and lists of Tables.
    #[must_use]
    pub fn tables(&self, labels: ResourceLabels<'_>) -> TableMetrics {
        self.with_usage(labels, |usage| {
            let metrics = self.tables.of(labels);
            usage.tables = Some(metrics.watches.clone());
            metrics
        })
    }

    /// Handles of one resource's watch cache. Call once per resource and keep the result.
    #[must_use]
    pub fn cache(&self, labels: ResourceLabels<'_>) -> CacheMetrics {
        self.with_usage(labels, |_| self.cache.of(labels))
    }

    /// Handles of the comparison of one resource's cache with upstream.
    #[must_use]
    pub fn drift(&self, labels: ResourceLabels<'_>) -> DriftMetrics {
        self.with_usage(labels, |_| self.drift.of(labels))
    }

    /// Handles of one resource's checkpoint. Only for resources that have one.
    #[must_use]
    pub fn checkpoint(&self, labels: ResourceLabels<'_>) -> CheckpointMetrics {
        self.with_usage(labels, |_| self.checkpoint.of(labels))
    }

    /// Handles of the handovers of one cache from other gateways. Only for gateways that take caches over.
    #[must_use]
    pub fn taken_handover(&self, labels: ResourceLabels<'_>) -> TakenHandoverMetrics {
        self.with_usage(labels, |_| self.handover.of(labels))
    }

    /// Handles of handovers to other gateways.
    #[must_use]
    pub fn served_handovers(&self) -> ServedHandoverMetrics {
        self.handover.served()
    }

    /// Handles of the clients' requests for one resource. Call once per resource and keep the result.
    #[must_use]
    pub fn downstream(&self, labels: ResourceLabels<'_>) -> DownstreamMetrics {
        self.with_usage(labels, |usage| {
            let metrics = self.downstream.of(labels);
            usage.watches = Some(metrics.watches.clone());
            metrics
        })
    }

    /// Removes the gauges of a resource whose cache has ended, because their last values are no longer true. Counters stay until the
    /// resource is unused. Existing handles of the gauges no longer have an effect.
    pub fn forget(&self, labels: ResourceLabels<'_>) {
        self.upstream.forget(labels);
        self.cache.forget(labels);
        self.checkpoint.forget(labels);
    }

    /// The log of the contact to the API server.
    #[must_use]
    pub fn contact(&self) -> Arc<ContactLog> {
        Arc::clone(&self.contact)
    }

    /// Handles of the listener for clients.
    #[must_use]
    pub fn listener(&self) -> ListenerMetrics {
        self.listener.clone()
    }

    /// Handles of admission control.
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

    /// Handles of forwarded requests.
    #[must_use]
    pub fn passthrough(&self) -> PassthroughMetrics {
        self.passthrough.clone()
    }

    /// Handles of forwarded requests by verb, resource and code.
    #[must_use]
    pub fn forwarded(&self) -> ForwardedMetrics {
        self.forwarded.clone()
    }

    /// Handles of files that are reloaded when they change.
    #[must_use]
    pub fn files(&self) -> FileMetrics {
        self.files.clone()
    }

    /// Handles of the audit log.
    #[must_use]
    pub fn audit(&self) -> AuditMetrics {
        self.audit.clone()
    }

    /// Handles of the memory of the process.
    #[must_use]
    pub fn memory(&self) -> MemoryMetrics {
        self.memory.clone()
    }

    /// Handles of the comparison with other gateways.
    #[must_use]
    pub fn rebalance(&self) -> RebalanceMetrics {
        self.rebalance.clone()
    }

    /// The metrics of the serving rules.
    #[must_use]
    pub fn serving(&self) -> ServingMetrics {
        self.serving.clone()
    }

    /// Handles of shadow comparisons.
    #[must_use]
    pub fn shadow(&self) -> ShadowMetrics {
        self.shadow.clone()
    }

    /// Handles of the readiness of the gateway.
    #[must_use]
    pub fn readiness(&self) -> ReadinessMetrics {
        self.readiness.clone()
    }

    /// Whether the APIServices are known, so that custom resources may be cached.
    #[must_use]
    pub fn api_services_known(&self) -> IntGauge {
        self.api_services_known.clone()
    }

    /// Counters of tasks that panicked, or that returned although they never should.
    #[must_use]
    pub fn task_ends(&self) -> ByLabel<TaskKind> {
        self.task_ends.clone()
    }

    /// All families that have a series. Those of the gateway come first, sorted by name.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.gateway.gather();
        families.extend(self.process.gather());
        families
    }

    /// The page of `/metrics`, in the Prometheus text format. Takes about 4 µs per series, so it must not run on a worker thread.
    ///
    /// # Errors
    /// If a family cannot be written.
    pub fn page(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.gather())?)
    }
}

fn register_build_info(registry: &Registry) -> Result<(), MetricsError> {
    let opts = Opts::new(
        "build_info",
        "The version and commit of this build, as labels; always 1.",
    )
    .const_label("version", build_info::VERSION)
    .const_label("commit", build_info::commit());
    let gauge = IntGauge::with_opts(opts)?;
    gauge.set(1);
    registry.register(Box::new(gauge))?;
    Ok(())
}
