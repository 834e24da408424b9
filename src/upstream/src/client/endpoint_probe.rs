//! Checks several API servers: whether each is ready, and whether all belong to one cluster.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::endpoint_table::{ClusterUid, EndpointFailure, ProbeAnswer, ProbeOutcome};
use super::endpoints::{EndpointRecorder, is_local};
use super::{Client, RequestBody, ResponseBody, SendError};

/// The time for a check. `/readyz` waits up to 2 s for etcd.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause between two rounds of checks until one says which cluster it is.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);
/// Longest answer that is read: an object with all its annotations and managed fields, which etcd bounds at 1.5 MiB, in JSON.
const ANSWER_LEN_MAX: usize = 3 << 20;

const READY_PATH: &str = "/readyz";
/// The namespace whose uid identifies a cluster. It exists once the API server is ready, and its uid never changes, so any
/// version will do.
const CLUSTER_PATH: &str = "/api/v1/namespaces/kube-system?resourceVersion=0";

impl Client {
    /// Host and port of each API server.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        self.shared.endpoints.names()
    }

    /// Sets where states and failures of several API servers are recorded.
    pub fn record_endpoints(&self, recorder: Arc<dyn EndpointRecorder>) {
        self.shared.endpoints.record(recorder);
    }

    /// Whether requests have moved to another API server within the last minutes. What it answers from its own caches may be
    /// older than what the last one has answered.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.shared.endpoints.have_moved()
    }

    /// Checks all API servers once, at the same time. The first one, in the order of the configuration, that tells its uid decides
    /// which cluster the others must belong to; from then on requests can be sent.
    pub async fn check_endpoints(&self) {
        let endpoints = &self.shared.endpoints;
        if !endpoints.are_several() {
            return;
        }
        let began = Instant::now();
        let mut checks = JoinSet::new();
        for index in 0..endpoints.names().len() {
            let client = self.clone();
            checks.spawn(async move { (index, client.probe(index).await) });
        }
        let mut outcomes = vec![ProbeOutcome::Undecided; endpoints.names().len()];
        while let Some(checked) = checks.join_next().await {
            // One that has panicked has decided nothing.
            if let Ok((index, outcome)) = checked {
                outcomes[index] = outcome;
            }
        }
        endpoints.all_probed(outcomes, began);
    }

    /// Checks the API servers as long as the future is polled. Never ends; with a single server it does nothing.
    pub async fn follow_endpoints(&self) {
        let endpoints = &self.shared.endpoints;
        if !endpoints.are_several() {
            return std::future::pending().await;
        }
        while !endpoints.have_cluster() {
            self.check_endpoints().await;
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
        let mut checks = JoinSet::new();
        for index in 0..endpoints.names().len() {
            let client = self.clone();
            checks.spawn(async move {
                loop {
                    tokio::time::sleep(client.shared.endpoints.pause(index)).await;
                    client.check(index).await;
                }
            });
        }
        // None ends unless it panics: the owner of this task starts anew.
        checks.join_next().await;
    }

    async fn check(&self, index: usize) {
        let began = Instant::now();
        let outcome = self.probe(index).await;
        self.shared.endpoints.probed(index, outcome, began);
    }

    /// Whether a server is ready, only `/readyz` decides: under load it refuses or delays other requests, and that load must not move
    /// to the next server.
    async fn probe(&self, index: usize) -> ProbeOutcome {
        let until = Instant::now() + PROBE_TIMEOUT;
        let status = match self.read_until(until, index, READY_PATH).await {
            Ok((status, _)) => status,
            Err(outcome) => {
                // The connection may be silent although the server is not.
                self.renew_check(index);
                return outcome;
            }
        };
        let cluster = self.read_until(until, index, CLUSTER_PATH).await;
        ProbeOutcome::Answered(ProbeAnswer {
            unready: status
                .is_server_error()
                .then(|| format!("{READY_PATH} answers {status}")),
            is_authorized: status != StatusCode::UNAUTHORIZED
                && !cluster
                    .as_ref()
                    .is_ok_and(|cluster| cluster.0 == StatusCode::UNAUTHORIZED),
            uid: cluster.map_or(ClusterUid::Untold, |(status, body)| {
                cluster_uid(status, body.as_deref())
            }),
        })
    }

    /// What [`Client::read`] returns, or a failure if that takes too long.
    async fn read_until(
        &self,
        until: Instant,
        index: usize,
        path: &'static str,
    ) -> Result<(StatusCode, Option<Bytes>), ProbeOutcome> {
        let read = tokio::time::timeout_at(until, self.read(index, path)).await;
        read.unwrap_or_else(|_elapsed| {
            Err(ProbeOutcome::Failed {
                failure: EndpointFailure::Timeout,
                reason: format!("no answer to {path} within {PROBE_TIMEOUT:?}"),
            })
        })
    }

    /// Status and body; no body if it is too long.
    async fn read(
        &self,
        index: usize,
        path: &'static str,
    ) -> Result<(StatusCode, Option<Bytes>), ProbeOutcome> {
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = http::Uri::from_static(path);
        let json = HeaderValue::from_static("application/json, */*");
        request.headers_mut().insert(ACCEPT, json);
        let (head, body) = self
            .send_check(index, request)
            .await
            .map_err(|error| unanswered(&error))?
            .into_parts();
        let body = Limited::<ResponseBody>::new(body, ANSWER_LEN_MAX)
            .collect()
            .await;
        match body {
            Ok(body) => Ok((head.status, Some(body.to_bytes()))),
            Err(error) if error.is::<LengthLimitError>() => Ok((head.status, None)),
            Err(error) => Err(ProbeOutcome::Failed {
                failure: EndpointFailure::Broken,
                reason: error.to_string(),
            }),
        }
    }
}

/// The uid that an answer tells. Without permission to read the namespace, or where it does not exist, nobody can tell it.
fn cluster_uid(status: StatusCode, body: Option<&[u8]>) -> ClusterUid {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    match status {
        StatusCode::OK => match body.map(serde_json::from_slice::<Namespace>) {
            Some(Ok(namespace)) => ClusterUid::Told(namespace.metadata.uid),
            Some(Err(_)) | None => ClusterUid::Untold,
        },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            ClusterUid::Denied
        }
        _ => ClusterUid::Untold,
    }
}

/// The outcome of a check without an answer.
fn unanswered(error: &SendError) -> ProbeOutcome {
    let failure = match error {
        SendError::Unreachable(cause) if is_local(cause) => return ProbeOutcome::Undecided,
        SendError::Unreachable(_) => EndpointFailure::Connect,
        SendError::Untrusted(_) => EndpointFailure::Certificate,
        SendError::Broken(_) | SendError::Lost | SendError::Unprocessed(_) => {
            EndpointFailure::Broken
        }
        SendError::Timeout => EndpointFailure::Timeout,
        SendError::Credentials(_)
        | SendError::Saturated
        | SendError::Target(_)
        | SendError::Abandoned
        | SendError::NoEndpoint => return ProbeOutcome::Undecided,
    };
    let cause = std::error::Error::source(error);
    let reason = match cause.and_then(|cause| cause.source()) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    ProbeOutcome::Failed { failure, reason }
}

#[cfg(test)]
mod tests;
