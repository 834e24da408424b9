//! The canary's Lease: its name, its content, and the requests that write it.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::metrics::CanaryFailure;
use crate::resource::{ResourceVersion, random};
use crate::upstream::client::{Client, RequestBody, SendError};

/// How long upstream may take for one request.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// As long as an object may be: others may annotate the Lease.
const ANSWER_LEN_MAX: usize = 4 << 20;
/// The host's part of the name: with the prefix it fits into a label's value, too.
const HOST_LEN_MAX: usize = 40;
const PREFIX: &str = "kube-fanout-canary-";
/// In a pod this is its name.
const HOST_FILE: &str = "/proc/sys/kernel/hostname";
/// The Lease counts as abandoned after so many intervals.
const INTERVALS_PER_LEASE: u32 = 6;

/// A Lease that only this gateway writes.
#[derive(Debug)]
pub(super) struct CanaryLease {
    namespace: String,
    name: String,
    /// Tells this process from an earlier one with the same name.
    holder: String,
    seconds: u64,
    /// The version of the last write; `None` if the Lease must be read or created first.
    version: Option<String>,
    /// Whether the Lease is to be created.
    is_missing: bool,
    /// Whether this process has written the Lease, as far as it knows.
    is_written: bool,
}

/// A write that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseAnswer {
    pub(super) version: ResourceVersion,
    pub(super) sent_at: Instant,
    pub(super) answered_at: Instant,
}

impl CanaryLease {
    pub(super) fn new(namespace: &str, interval: Duration) -> Self {
        let name = lease_name(&std::fs::read_to_string(HOST_FILE).unwrap_or_default());
        Self {
            namespace: namespace.to_owned(),
            holder: format!("{name}_{:08x}", random() >> 32),
            name,
            seconds: (interval * INTERVALS_PER_LEASE).as_secs().max(1),
            version: None,
            is_missing: false,
            is_written: false,
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn collection(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Reads the Lease if its version is not known.
    pub(super) async fn prepare(&mut self, client: &Client) -> Result<(), CanaryFailure> {
        if self.version.is_some() || self.is_missing {
            return Ok(());
        }
        match send(client, Method::GET, self.path(), None).await? {
            (StatusCode::OK, lease) => self.version = version_of(&lease).map(str::to_owned),
            (StatusCode::NOT_FOUND, _) => self.is_missing = true,
            (status, _) => return Err(failure(status)),
        }
        Ok(())
    }

    /// Creates the Lease, or writes it anew.
    pub(super) async fn write(&mut self, client: &Client) -> Result<LeaseAnswer, CanaryFailure> {
        let (method, path) = match self.is_missing {
            true => (Method::POST, self.collection()),
            false => (Method::PUT, self.path()),
        };
        let lease = self.content(Timestamp::now());
        // Whatever happens to this write, what is known of the Lease is known again only after its answer.
        self.version = None;
        let is_new = std::mem::take(&mut self.is_missing);
        // It may be written although no answer comes.
        self.is_written = true;
        let sent_at = Instant::now();
        let (status, lease) = send(client, method, path, Some(&lease)).await?;
        let answered_at = Instant::now();
        match status {
            StatusCode::OK | StatusCode::CREATED => {}
            // A Lease that was deleted; of a new one, the namespace is missing.
            StatusCode::NOT_FOUND if !is_new => return Err(CanaryFailure::Conflict),
            status => return Err(failure(status)),
        }
        let version = version_of(&lease).ok_or(CanaryFailure::Refused)?;
        let parsed = version.parse().map_err(|_| CanaryFailure::Refused)?;
        self.version = Some(version.to_owned());
        Ok(LeaseAnswer {
            version: parsed,
            sent_at,
            answered_at,
        })
    }

    /// Deletes the Lease, if this gateway was the last to write it: another process may have the same name.
    pub(super) async fn delete(&self, client: &Client) {
        if !self.is_written {
            return;
        }
        let version = match &self.version {
            Some(version) => Some(version.clone()),
            // A write may have been given up half way.
            None => self.own_version(client).await,
        };
        if let Some(version) = version {
            let options = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"resourceVersion": version},
            });
            // If it stays, nothing depends on it.
            let _ = send(client, Method::DELETE, self.path(), Some(&options)).await;
        }
    }

    /// The version of the Lease upstream, if its holder is this process.
    async fn own_version(&self, client: &Client) -> Option<String> {
        match send(client, Method::GET, self.path(), None).await {
            Ok((StatusCode::OK, lease)) if lease["spec"]["holderIdentity"] == *self.holder => {
                version_of(&lease).map(str::to_owned)
            }
            Ok(_) | Err(_) => None,
        }
    }

    fn content(&self, now: Timestamp) -> Value {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {
                    "app.kubernetes.io/managed-by": "kube-fanout",
                    "app.kubernetes.io/component": "canary",
                },
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.seconds,
                "renewTime": format!("{now:.6}"),
            },
        });
        if let Some(version) = &self.version {
            lease["metadata"]["resourceVersion"] = json!(version);
        }
        lease
    }
}

/// The name of a host's Lease: what a name may not have becomes a hyphen. A host without a usable name gets a random one.
fn lease_name(host: &str) -> String {
    let host: String = host
        .trim()
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => c,
            _ => '-',
        })
        .collect();
    // The end of a pod's name tells the pods of a deployment apart.
    let start = host.len().saturating_sub(HOST_LEN_MAX);
    let host = host[start..].trim_matches('-');
    match host {
        "" => format!("{PREFIX}{:08x}", random() >> 32),
        host => format!("{PREFIX}{host}"),
    }
}

fn version_of(lease: &Value) -> Option<&str> {
    lease["metadata"]["resourceVersion"].as_str()
}

fn failure(status: StatusCode) -> CanaryFailure {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CanaryFailure::Forbidden,
        StatusCode::NOT_FOUND => CanaryFailure::Namespace,
        StatusCode::CONFLICT => CanaryFailure::Conflict,
        _ => CanaryFailure::Refused,
    }
}

/// Sends one request; returns the status and the object of the answer, or null if there is none.
async fn send(
    client: &Client,
    method: Method,
    path: String,
    body: Option<&Value>,
) -> Result<(StatusCode, Value), CanaryFailure> {
    let body = body.map_or(RequestBody::Empty, |body| {
        RequestBody::Full(Bytes::from(body.to_string()))
    });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|_| CanaryFailure::Refused)?;
    let answer = async {
        let response = client.send(request).await.map_err(|error| match error {
            SendError::Timeout | SendError::Abandoned => CanaryFailure::TimedOut,
            SendError::Unreachable(_)
            | SendError::Untrusted(_)
            | SendError::Broken(_)
            | SendError::Lost
            | SendError::Unprocessed(_)
            | SendError::Credentials(_)
            | SendError::Saturated
            | SendError::NoEndpoint
            | SendError::Target(_) => CanaryFailure::Unreachable,
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX);
        let body = body
            .collect()
            .await
            .map_err(|_| CanaryFailure::Unreachable)?;
        let object = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        Ok((status, object))
    };
    timeout(ANSWER_WAIT, answer)
        .await
        .unwrap_or(Err(CanaryFailure::TimedOut))
}

#[cfg(test)]
mod tests {
    //! Names that the API server accepts.

    use super::*;

    #[test]
    fn a_host_gives_its_lease_a_name_that_is_valid_and_short() {
        for (host, name) in [
            ("kube-fanout-0\n", "kube-fanout-canary-kube-fanout-0"),
            (
                "Node_1.example.COM",
                "kube-fanout-canary-node-1-example-com",
            ),
            ("-a-", "kube-fanout-canary-a"),
            ("zürich", "kube-fanout-canary-z-rich"),
        ] {
            assert_eq!(lease_name(host), name);
        }
        let long = lease_name(&format!("{}-x7f2k", "a".repeat(300)));
        assert!(long.len() <= 63 && long.ends_with("-x7f2k"), "{long}");
        for nameless in ["", "...", "\n"] {
            let name = lease_name(nameless);
            assert_eq!(name.len(), PREFIX.len() + 8, "{name}");
            assert_ne!(name, lease_name(nameless));
        }
    }

    #[test]
    fn a_known_version_is_stated_so_that_a_write_of_another_is_noticed() {
        let mut lease = CanaryLease::new("a", Duration::from_secs(10));
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(version_of(&lease.content(now)), None);
        lease.version = Some("7".to_owned());
        let content = lease.content(now);
        assert_eq!(version_of(&content), Some("7"));
        assert_eq!(content["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
        assert_eq!(content["spec"]["leaseDurationSeconds"], 60);
    }
}
