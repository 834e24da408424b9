//! The service: the caches it answers from, its limits, and whom it answers.

use std::sync::Arc;

use http::Response;

use super::body::AnswerBody;
use super::connection_table::ConnectionTable;
use super::gzip::BlockCompressor;
use super::resources::Resources;
use crate::admission::Admission;
use crate::audit::Audit;
use crate::auth::guard::Guard;
use crate::fairness::queued_permits::QueuedPermits;
use crate::fairness::{Permits, Users};
use crate::metrics::BadRequest;

/// Gateways that may ask at a time how many watches there are: twice as many as one asks itself.
const LOAD_REQUESTS_MAX: usize = 32;

/// Lists that wait to rewind a snapshot. Each holds a permit of its own; those beyond are forwarded.
const REWINDS_WAITING_MAX: usize = 1024;

/// Answers requests from the caches of `R`, or forwards them. Cloning is cheap; clones share everything.
#[derive(Debug)]
pub struct Service<R> {
    pub(super) resources: Arc<R>,
    pub(super) compressor: BlockCompressor,
    /// `None` means no limits.
    pub(super) admission: Option<Admission>,
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
    /// Permits for other gateways that ask how many watches there are.
    pub(super) load_permits: Permits,
}

impl<R> Clone for Service<R> {
    fn clone(&self) -> Self {
        Self {
            resources: Arc::clone(&self.resources),
            compressor: self.compressor.clone(),
            admission: self.admission.clone(),
            guard: self.guard.clone(),
            audit: self.audit.clone(),
            users: self.users.clone(),
            rewinding: self.rewinding.clone(),
            requests_per_goaway: self.requests_per_goaway,
            connections: self.connections.clone(),
            load_permits: self.load_permits.clone(),
        }
    }
}

pub(super) type ServiceResponse<R> = Response<AnswerBody<<R as Resources>::Forwarded>>;

impl<R: Resources> Service<R> {
    /// A service for these resources, without limits, authentication and audit log.
    #[must_use]
    pub fn new(resources: Arc<R>) -> Self {
        // Compress on half of the cores, so that the other half can serve.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let compressor = BlockCompressor::new(cores / 2);
        Self {
            resources,
            compressor,
            admission: None,
            guard: None,
            audit: None,
            users: Users::default(),
            rewinding: QueuedPermits::new(1, REWINDS_WAITING_MAX),
            requests_per_goaway: 0,
            connections: None,
            load_permits: Permits::new(LOAD_REQUESTS_MAX),
        }
    }

    /// Sets the limits on lists, watches and memory.
    #[must_use]
    pub fn bounded(self, admission: Admission) -> Self {
        Self {
            admission: Some(admission),
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

    /// The limits, if there are any.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// The resources that this service answers from.
    #[must_use]
    pub fn resources(&self) -> &Arc<R> {
        &self.resources
    }

    pub(super) fn count_bad_request(&self, fault: BadRequest) {
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.bad_requests.inc(fault);
        }
    }
}
