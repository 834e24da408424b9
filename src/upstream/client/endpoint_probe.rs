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

use super::endpoint_table::{EndpointFailure, EndpointMask, ProbeOutcome};
use super::endpoints::{EndpointRecorder, PROBE_TIMEOUT, is_local};
use super::{Client, RequestBody, ResponseBody, SendError};

/// The time for the uid of a server that is not ready.
const UID_TIMEOUT: Duration = Duration::from_secs(1);
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

    /// Checks all API servers once. The first one, in the order of the configuration, whose uid can be read decides which cluster
    /// the others must belong to; from then on requests can be sent.
    pub async fn check_endpoints(&self) {
        let endpoints = &self.shared.endpoints;
        if !endpoints.are_several() {
            return;
        }
        let mut checks = JoinSet::new();
        for index in 0..endpoints.names().len() {
            let client = self.clone();
            if endpoints.have_cluster() {
                checks.spawn(async move { client.check(index).await });
            } else {
                client.check(index).await;
            }
        }
        while checks.join_next().await.is_some() {}
        endpoints.start();
    }

    /// Checks the API servers as long as the future is polled. Never ends; with a single server it does nothing.
    pub async fn follow_endpoints(&self) {
        let endpoints = &self.shared.endpoints;
        if !endpoints.are_several() {
            return std::future::pending().await;
        }
        endpoints.start();
        let mut checks = JoinSet::new();
        let mut running = EndpointMask::default();
        loop {
            for index in endpoints.due(running) {
                // Until the cluster is known, only one answer at a time may decide it.
                if endpoints.have_cluster() || checks.is_empty() {
                    running.insert(index);
                    let client = self.clone();
                    checks.spawn(async move {
                        client.check(index).await;
                        index
                    });
                }
            }
            let waits_for_cluster = !endpoints.have_cluster() && !checks.is_empty();
            tokio::select! {
                Some(checked) = checks.join_next() => match checked {
                    Ok(index) => running.remove(index),
                    // A check has panicked: the owner of this task starts anew.
                    Err(_) => return,
                },
                () = endpoints.wait_until_due(running), if !waits_for_cluster => {}
            }
        }
    }

    async fn check(&self, index: usize) {
        let outcome = self.probe(index).await;
        if matches!(outcome, ProbeOutcome::Failed { .. }) {
            self.renew_check(index);
        }
        self.shared.endpoints.probed(index, outcome);
    }

    async fn probe(&self, index: usize) -> ProbeOutcome {
        let until = Instant::now() + PROBE_TIMEOUT;
        match self.read_until(until, index, READY_PATH).await {
            Ok((status, _)) if status.is_server_error() => ProbeOutcome::Unready {
                reason: format!("{READY_PATH} answers {status}"),
                uid: self.uid_if_unproven(until, index).await,
            },
            Ok((StatusCode::UNAUTHORIZED, _)) => ProbeOutcome::Unauthorized,
            Ok(_) if !self.shared.endpoints.needs_identity(index) => ProbeOutcome::Ready,
            Ok(_) => match self.read_until(until, index, CLUSTER_PATH).await {
                Ok((status, body)) => identity(status, body.as_deref()),
                Err(outcome) => outcome,
            },
            Err(outcome) => outcome,
        }
    }

    /// The uid that a server tells although it is not ready, if it is not proven that it belongs to the cluster.
    async fn uid_if_unproven(&self, until: Instant, index: usize) -> Option<String> {
        if self.shared.endpoints.is_proven(index) {
            return None;
        }
        // That it is not ready is known even if this takes long.
        let until = until.min(Instant::now() + UID_TIMEOUT);
        let answer = self.read_until(until, index, CLUSTER_PATH).await;
        let (status, body) = answer.ok()?;
        match identity(status, body.as_deref()) {
            ProbeOutcome::Identified(uid) => uid,
            ProbeOutcome::Ready
            | ProbeOutcome::Unready { .. }
            | ProbeOutcome::Unidentified
            | ProbeOutcome::Unauthorized
            | ProbeOutcome::Failed { .. }
            | ProbeOutcome::Undecided => None,
        }
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
        let response = self.send_check(index, request).await;
        let (head, body) = response.map_err(|error| unanswered(&error))?.into_parts();
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

/// The cluster that an answer names. Without permission to read the namespace, or where it does not exist, the cluster is
/// unknown. Any other answer says nothing: whether the server is ready, only `/readyz` decides.
fn identity(status: StatusCode, body: Option<&[u8]>) -> ProbeOutcome {
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
            Some(Ok(namespace)) => ProbeOutcome::Identified(Some(namespace.metadata.uid)),
            Some(Err(_)) | None => ProbeOutcome::Unidentified,
        },
        StatusCode::UNAUTHORIZED => ProbeOutcome::Unauthorized,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => ProbeOutcome::Identified(None),
        _ => ProbeOutcome::Unidentified,
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
