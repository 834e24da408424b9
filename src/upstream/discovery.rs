//! Which resources can be listed and watched. Asks once per call; when to ask again is the caller's business.

mod documents;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use thiserror::Error;
use tokio::task::JoinSet;

use crate::resource::Gvr;
use crate::upstream::client::{Client, SendError};

use documents::{DiscoveryResponse, GroupVersionEntry};

/// One resource type the server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// Group, version, plural name.
    pub gvr: Gvr,
    /// `Pod`; empty if the server does not say.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be listed.
    pub list: bool,
    /// Whether it can be watched.
    pub watch: bool,
}

impl DiscoveredResource {
    /// Whether the gateway can hold it in memory: that needs both list and watch.
    #[must_use]
    pub const fn can_be_cached(&self) -> bool {
        self.list && self.watch
    }
}

/// A part of the API that could not be asked; the rest of [`Discovery`] is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPart {
    /// A path such as `/apis` or `/apis/metrics.k8s.io/v1beta1`.
    pub path: String,
    /// Why, in one line.
    pub reason: String,
}

/// What the server offers, subresources left out.
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

    /// What could not be asked: aggregated API servers that are down, as a rule.
    #[must_use]
    pub fn failed(&self) -> &[FailedPart] {
        &self.failed
    }

    fn add(&mut self, found: Vec<DiscoveredResource>) {
        let named = found.into_iter().map(|found| (found.gvr.clone(), found));
        self.resources.extend(named);
    }

    fn fail(&mut self, path: String, reason: &dyn std::error::Error) {
        let reason = one_line(reason);
        self.failed.push(FailedPart { path, reason });
    }
}

/// Why nothing could be discovered at all.
#[derive(Debug, Error)]
#[error("cannot discover what the API server offers")]
pub struct DiscoverError(#[source] pub AskError);

/// Why one discovery document could not be had.
#[derive(Debug, Error)]
pub enum AskError {
    /// No response.
    #[error("no answer")]
    Send(#[from] SendError),
    /// A response other than 200.
    #[error("answered {0}")]
    Status(StatusCode),
    /// The body broke off, or is longer than `DOCUMENT_LEN_MAX`.
    #[error("the document broke off or is too long")]
    Body(#[source] tower::BoxError),
    /// Not in time, body included.
    #[error("no complete answer in time")]
    Timeout,
    /// Neither of the known documents.
    #[error("not a discovery document")]
    Document(#[from] serde_json::Error),
}

/// Asks for everything the server offers: two aggregated documents (KEP-3352) where the server has them, otherwise one
/// document per group and version.
///
/// # Errors
/// If neither `/api` nor `/apis` can be had. A group that fails alone is found in [`Discovery::failed`].
pub async fn discover(client: &Client) -> Result<Discovery, DiscoverError> {
    let mut discovery = Discovery::default();
    let mut entries = Vec::new();
    let mut answered = false;
    let mut last_error = None;
    for path in ["/api", "/apis"] {
        match ask(client, path).await {
            Ok(DiscoveryResponse::Aggregated { found, stale }) => {
                answered = true;
                discovery.add(found);
                for entry in stale {
                    discovery.fail(
                        entry.path(),
                        &AskError::Status(StatusCode::SERVICE_UNAVAILABLE),
                    );
                }
            }
            Ok(DiscoveryResponse::Groups(more)) => {
                answered = true;
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
        Some(error) if !answered => return Err(DiscoverError(error)),
        _ => {}
    }
    ask_each(client, entries, &mut discovery).await;
    Ok(discovery)
}

/// Asks for each group and version by itself, a few at a time.
async fn ask_each(client: &Client, entries: Vec<GroupVersionEntry>, discovery: &mut Discovery) {
    let mut waiting = entries.into_iter().take(GROUP_VERSIONS_MAX);
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < ASKING_MAX {
            let Some(entry) = waiting.next() else { break };
            let client = client.clone();
            asking.spawn(async move {
                let path = entry.path();
                let answer = ask(&client, &path).await;
                (path, answer)
            });
        }
        match asking.join_next().await {
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

async fn ask(client: &Client, path: &str) -> Result<DiscoveryResponse, AskError> {
    let bytes = tokio::time::timeout(ASK_TIMEOUT, fetch(client, path))
        .await
        .map_err(|_elapsed| AskError::Timeout)??;
    Ok(documents::read(&bytes)?)
}

async fn fetch(client: &Client, path: &str) -> Result<Bytes, AskError> {
    let mut request = Request::new(());
    *request.uri_mut() = path
        .parse()
        .map_err(|error: http::uri::InvalidUri| SendError::Target(error.into()))?;
    let accept = HeaderValue::from_static(ACCEPT_AGGREGATED);
    request.headers_mut().insert(ACCEPT, accept);
    let response = client.send(request).await?;
    if response.status() != StatusCode::OK {
        return Err(AskError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), DOCUMENT_LEN_MAX);
    Ok(body.collect().await.map_err(AskError::Body)?.to_bytes())
}

fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// v2 is in all servers since 1.30, v2beta1 from 1.26 to 1.32; older ones answer with the plain document.
const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// A cluster with a thousand custom resources has about 1 MB of discovery.
const DOCUMENT_LEN_MAX: usize = 64 << 20;

/// Documents come from the server's memory; an aggregated server that is down is what takes time.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

/// Polite to a server that has just restarted, and quick enough: 100 groups in 13 rounds.
const ASKING_MAX: usize = 8;

/// Against a peer that names groups without end.
const GROUP_VERSIONS_MAX: usize = 4096;

/// Chains of causes are four or five long.
const CAUSES_MAX: usize = 8;

#[cfg(test)]
mod tests;
