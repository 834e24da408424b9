//! Discovers which resources can be listed and watched. Each call asks upstream once; the caller decides when to do so
//! again.

mod documents;
mod groups;
mod resource;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use thiserror::Error;
use tokio::task::JoinSet;

use crate::client::{Client, SendError};
use crate::error_chain::one_line;
use crate::resource::Gvr;

pub use groups::api_groups;
pub use resource::DiscoveredResource;

use documents::{DiscoveryResponse, GroupVersionEntry};

/// A part of the API that could not be discovered. The rest of [`Discovery`] is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// A path such as `/apis` or `/apis/metrics.k8s.io/v1beta1`.
    pub path: String,
    /// The error, in one line.
    pub reason: String,
}

/// The resources that the server offers, without subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    resources: BTreeMap<Gvr, DiscoveredResource>,
    failed: Vec<FailedPart>,
}

impl Discovery {
    /// Looks a resource up by its full name.
    #[must_use]
    pub fn resource(&self, gvr: &Gvr) -> Option<&DiscoveredResource> {
        self.resources.get(gvr)
    }

    /// All resources, by group, version and name.
    pub fn resources(&self) -> impl Iterator<Item = &DiscoveredResource> {
        self.resources.values()
    }

    /// The parts that could not be discovered: usually aggregated API servers that are down.
    #[must_use]
    pub fn failed(&self) -> &[FailedPart] {
        &self.failed
    }

    /// The same with what was known `before` of the parts that could not be discovered now.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        let kept: Vec<_> = before
            .resources()
            .filter(|known| self.has_failed(&known.gvr))
            .filter(|known| !self.resources.contains_key(&known.gvr))
            .cloned()
            .collect();
        self.add(kept);
        self
    }

    /// Whether the part that names this resource could not be read.
    fn has_failed(&self, gvr: &Gvr) -> bool {
        let path = match &*gvr.group {
            "" => format!("/api/{}", gvr.version),
            group => format!("/apis/{group}/{}", gvr.version),
        };
        self.failed.iter().any(|part| {
            let rest = path.strip_prefix(&*part.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn add(&mut self, found: Vec<DiscoveredResource>) {
        let named = found.into_iter().map(|found| (found.gvr.clone(), found));
        self.resources.extend(named);
    }

    fn fail(&mut self, path: String, reason: &(dyn std::error::Error + 'static)) {
        let reason = one_line(reason);
        self.failed.push(FailedPart { path, reason });
    }
}

#[cfg(any(test, feature = "testing"))]
impl FromIterator<DiscoveredResource> for Discovery {
    fn from_iter<I: IntoIterator<Item = DiscoveredResource>>(found: I) -> Self {
        let mut discovery = Self::default();
        discovery.add(found.into_iter().collect());
        discovery
    }
}

/// Why nothing could be discovered at all.
#[derive(Debug, Error)]
#[error("cannot discover the resources of the API server")]
pub struct DiscoverError(#[source] pub AskError);

impl DiscoverError {
    /// What went wrong, in one line. Further causes, such as the output of a credential plugin, are not for every reader.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.0 {
            AskError::Send(error) => error.to_string(),
            AskError::Status(_) | AskError::Body(_) | AskError::Timeout | AskError::Document(_) => {
                self.0.to_string()
            }
        }
    }
}

/// Why one discovery document could not be read.
#[derive(Debug, Error)]
pub enum AskError {
    /// No response came.
    #[error("no response")]
    Send(#[from] SendError),
    /// A response other than 200.
    #[error("the server responded with {0}")]
    Status(StatusCode),
    /// The body broke off, or is longer than `DOCUMENT_LEN_MAX`.
    #[error("the document broke off or is too long")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response, including its body, did not come in time.
    #[error("no complete response in time")]
    Timeout,
    /// None of the known discovery documents.
    #[error("not a discovery document")]
    Document(#[from] serde_json::Error),
}

/// Discovers everything that the server offers: with two aggregated documents (KEP-3352) if the server has them, otherwise
/// with one document per group and version.
///
/// # Errors
/// Neither `/api` nor `/apis` can be read. The failures of single groups are in [`Discovery::failed`].
pub async fn discover(client: &Client) -> Result<Discovery, DiscoverError> {
    let mut discovery = Discovery::default();
    let mut entries = Vec::new();
    let mut has_response = false;
    let mut last_error = None;
    for path in ["/api", "/apis"] {
        match read_document(client, path, ACCEPT_AGGREGATED).await {
            Ok(DiscoveryResponse::Aggregated { found, stale }) => {
                has_response = true;
                discovery.add(found);
                for entry in stale {
                    discovery.fail(
                        entry.path(),
                        &AskError::Status(StatusCode::SERVICE_UNAVAILABLE),
                    );
                }
            }
            Ok(DiscoveryResponse::Groups(more)) => {
                has_response = true;
                entries.extend(more);
            }
            Ok(DiscoveryResponse::Resources(found)) => discovery.add(found),
            Err(error) => {
                discovery.fail(path.to_owned(), &error);
                last_error = Some(error);
            }
        }
    }
    match last_error {
        Some(error) if !has_response => return Err(DiscoverError(error)),
        _ => {}
    }
    discover_each(client, entries, &mut discovery).await;
    Ok(discovery)
}

/// Reads the document of each group and version, a few at a time.
async fn discover_each(
    client: &Client,
    entries: Vec<GroupVersionEntry>,
    discovery: &mut Discovery,
) {
    let mut remaining = entries.into_iter().take(GROUP_VERSIONS_MAX);
    let mut in_flight = JoinSet::new();
    loop {
        while in_flight.len() < IN_FLIGHT_MAX {
            let Some(entry) = remaining.next() else { break };
            let client = client.clone();
            in_flight.spawn(async move {
                let path = entry.path();
                let response = read_document(&client, &path, ACCEPT_AGGREGATED).await;
                (path, response)
            });
        }
        match in_flight.join_next().await {
            None => return,
            Some(Ok((_, Ok(DiscoveryResponse::Resources(found))))) => discovery.add(found),
            Some(Ok((
                _,
                Ok(DiscoveryResponse::Groups(_) | DiscoveryResponse::Aggregated { .. }),
            ))) => {}
            Some(Ok((path, Err(error)))) => discovery.fail(path, &error),
            Some(Err(_panicked)) => {}
        }
    }
}

async fn read_document(
    client: &Client,
    path: &str,
    accept: &'static str,
) -> Result<DiscoveryResponse, AskError> {
    let bytes = tokio::time::timeout(DOCUMENT_TIMEOUT, fetch(client, path, accept))
        .await
        .map_err(|_elapsed| AskError::Timeout)??;
    Ok(documents::read(&bytes)?)
}

async fn fetch(client: &Client, path: &str, accept: &'static str) -> Result<Bytes, AskError> {
    let mut request = Request::new(());
    *request.uri_mut() = path
        .parse()
        .map_err(|error: http::uri::InvalidUri| SendError::Target(error.into()))?;
    let accept = HeaderValue::from_static(accept);
    request.headers_mut().insert(ACCEPT, accept);
    let response = client.send(request).await?;
    if response.status() != StatusCode::OK {
        return Err(AskError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), DOCUMENT_LEN_MAX);
    Ok(body.collect().await.map_err(AskError::Body)?.to_bytes())
}

/// Servers have v2 since 1.30, and had v2beta1 from 1.26 to 1.32. Older ones send the plain document.
const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Longest document. A cluster with a thousand custom resources has about 1 MB of discovery.
const DOCUMENT_LEN_MAX: usize = 64 << 20;

/// The server has its documents in memory. Only an aggregated API server that is down takes long.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests in flight. Few enough for a server that has just restarted, and fast enough: 100 groups take 13 rounds.
const IN_FLIGHT_MAX: usize = 8;

/// Protects against a peer that names groups without end.
const GROUP_VERSIONS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
