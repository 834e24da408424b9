//! The service: the caches it answers from, its limits, and whom it answers.

use std::sync::Arc;

use http::Response;

use super::body::AnswerBody;
use super::connection_table::ConnectionTable;
use super::gzip::BlockCompressor;
use super::resources::Resources;
use super::watch_compression::WatchCompressor;
use crate::admission::Admission;
use crate::audit::Audit;
use crate::auth::guard::Guard;
use crate::config::CompressWatches;
use crate::fairness::queued_permits::QueuedPermits;
use crate::fairness::{Permits, Users};
use crate::metrics::{BadRequest, ListenerMetrics};
use crate::serving_control::ServingControl;
use crate::shadow::Shadow;

/// Gateways that may ask at a time how many watches there are: twice as many as one asks itself.
const LOAD_REQUESTS_MAX: usize = 32;

/// Lists that wait to rewind a snapshot. Each holds a permit of its own; those beyond are forwarded.
const REWINDS_WAITING_MAX: usize = 1024;

/// What serving rules need. Shared, because each connection has several services.
pub(super) struct RuledReads {
    pub(super) control: ServingControl,
    /// Compares what is forwarded with what memory would have answered, where a rule says so.
    pub(super) shadow: Shadow,
}

/// Compresses lists and watches.
pub(super) struct Compressors {
    pub(super) blocks: BlockCompressor,
    pub(super) watches: WatchCompressor,
}

/// Answers requests from caches, or forwards them. Cloning is cheap; clones share everything.
#[derive(Clone)]
pub struct Service {
    pub(super) resources: Arc<dyn Resources>,
    pub(super) metrics: Arc<ListenerMetrics>,
    pub(super) compressors: Arc<Compressors>,
    pub(super) admission: Admission,
    /// `None` means that callers are neither authenticated nor authorized.
    pub(super) guard: Option<Guard>,
    /// `None` means no audit log.
    pub(super) audit: Option<Audit>,
    pub(super) users: Users,
    /// One permit: only one request at a time rewinds a snapshot to an older version, because that costs CPU.
    pub(super) rewinding: QueuedPermits,
    /// One in this many requests over HTTP/2 ends its connection; 0 for none.
    pub(super) requests_per_goaway: usize,
    /// The open connections, if clients may be sent to other replicas.
    pub(super) connections: Option<ConnectionTable>,
    /// Which reads memory answers; `None` for all that it can.
    pub(super) serving: Option<Arc<RuledReads>>,
    /// Permits for other gateways that ask how many watches there are.
    pub(super) load_permits: Permits,
}

pub(crate) type ServiceResponse = Response<AnswerBody>;

impl Service {
    /// A service for these resources, without authentication and audit log.
    #[must_use]
    pub fn new(
        resources: Arc<dyn Resources>,
        admission: Admission,
        metrics: ListenerMetrics,
    ) -> Self {
        // Compress on half of the cores, so that the other half can serve.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let compressors = Compressors {
            blocks: BlockCompressor::new(cores / 2),
            watches: WatchCompressor::new(CompressWatches::Auto),
        };
        Self {
            resources,
            metrics: Arc::new(metrics),
            compressors: Arc::new(compressors),
            admission,
            guard: None,
            audit: None,
            users: Users::default(),
            rewinding: QueuedPermits::new(1, REWINDS_WAITING_MAX),
            requests_per_goaway: 0,
            connections: None,
            serving: None,
            load_permits: Permits::new(LOAD_REQUESTS_MAX),
        }
    }

    /// Replaces the limits on lists, watches and memory.
    #[must_use]
    pub fn bounded(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    /// Sends these watches as gzip, if their clients accept it.
    #[must_use]
    pub fn compressing(self, which: CompressWatches) -> Self {
        let compressors = Compressors {
            blocks: self.compressors.blocks.clone(),
            watches: WatchCompressor::new(which),
        };
        Self {
            compressors: Arc::new(compressors),
            ..self
        }
    }

    /// Authenticates and authorizes callers: for what memory may answer, before anything else is done.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    /// Sets the users that are exempt from per-client limits. Needs a guard, which identifies callers.
    #[must_use]
    pub fn shared_among(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Sets the audit log, if there is one.
    #[must_use]
    pub fn audited(self, audit: Option<Audit>) -> Self {
        Self { audit, ..self }
    }

    /// The limits.
    #[must_use]
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The metrics of connections and bad requests.
    #[must_use]
    pub fn metrics(&self) -> &ListenerMetrics {
        &self.metrics
    }

    pub(super) fn count_bad_request(&self, fault: BadRequest) {
        self.metrics.bad_requests.inc(fault);
    }
}
