//! Reads for a cache what kube-apiserver stores itself, and nothing that a service behind an APIService sends (decision 59).
//!
//! What the registry knows of the APIServices may be a minute old. An API server sends a request to a service only after the APIService
//! names it, so an APIService that is read after a response has begun, and names no service, proves that the response is kube-apiserver's.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::timeout;

use crate::cache_rule::{ApiServices, GroupOrigin, api_service_name, api_services};
use crate::resource::{Encoding, Gvr};
use crate::upstream::driver::{Collection, Fetch, FetchError, RequestPurpose, short_list};
use crate::upstream::reflector::Failure;

/// The time for a check. Meanwhile the response that it is about waits.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a response is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OriginError {
    /// This service serves the resource.
    #[error("the service {0} serves the resource now")]
    Service(Box<str>),
    /// No APIService names the group and version.
    #[error("no APIService names the group and version any more")]
    Unlisted,
    /// The APIService cannot be read.
    #[error("who serves the resource cannot be read: {0}")]
    Unread(Failure),
}

/// Sends the requests of a cache.
#[derive(Debug)]
pub(super) struct LocalFetch<F> {
    fetch: Arc<F>,
    /// The resource whose APIService is read; `None` if nothing has to be proven.
    unproven: Option<Gvr>,
}

impl<F: Fetch> LocalFetch<F> {
    pub(super) const fn new(fetch: Arc<F>, unproven: Option<Gvr>) -> Self {
        Self { fetch, unproven }
    }

    /// Whether kube-apiserver itself has answered the requests whose responses have begun by now. Costs upstream a list of one object.
    pub(super) async fn check(&self) -> Result<(), OriginError> {
        let Some(gvr) = &self.unproven else {
            return Ok(());
        };
        let collection = Collection {
            // A list, because the gateway has that right already.
            field_selector: format!("metadata.name={}", api_service_name(gvr)),
            ..Collection::all(&api_services())
        };
        let list = timeout(CHECK_TIME_MAX, short_list(&*self.fetch, &collection))
            .await
            .unwrap_or(Err(Failure::Transport));
        let list = list.map_err(OriginError::Unread)?;
        let services: ApiServices =
            serde_json::from_slice(&list).map_err(|_| OriginError::Unread(Failure::Protocol))?;
        match services.origin(gvr) {
            GroupOrigin::Local => Ok(()),
            GroupOrigin::Service(service) => Err(OriginError::Service(service)),
            GroupOrigin::Unlisted => Err(OriginError::Unlisted),
        }
    }
}

impl<F: Fetch> Fetch for LocalFetch<F> {
    type Body = F::Body;

    async fn get(
        &self,
        path_and_query: String,
        purpose: RequestPurpose,
        encoding: Encoding,
    ) -> Result<Response<F::Body>, FetchError> {
        let response = self.fetch.get(path_and_query, purpose, encoding).await?;
        // Versions are compared with the cache's, and no client gets them.
        let is_kept = purpose != RequestPurpose::ReadVersions;
        if is_kept && response.status() == StatusCode::OK {
            self.check().await.map_err(|error| {
                FetchError(match error {
                    // Whoever is refused the APIService goes by the status, as if the resource had been refused.
                    OriginError::Unread(failure) => failure.into(),
                    OriginError::Service(_) | OriginError::Unlisted => error.into(),
                })
            })?;
        }
        Ok(response)
    }

    fn lagging(&self) {
        self.fetch.lagging();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::driver::samples::scripted::Script;

    /// Whether a response of this purpose is used while the APIServices of its name are these, and whether they are read.
    async fn is_used(purpose: RequestPurpose, items: Result<&str, u16>) -> (bool, bool) {
        let (script, mut requests) = Script::new();
        let gvr = Gvr::new("example.com", "v1", "widgets");
        let fetch = LocalFetch::new(Arc::new(script), Some(gvr));
        let path = "/apis/example.com/v1/widgets".to_owned();
        let sent = async move { fetch.get(path, purpose, Encoding::Json).await.is_ok() };
        let answer = async {
            let _feed = requests.recv().await.unwrap().open();
            let Some(request) = requests.recv().await else {
                return false;
            };
            assert_eq!(
                request.path,
                "/apis/apiregistration.k8s.io/v1/apiservices?fieldSelector=metadata.name%3Dv1.example.com"
            );
            match items {
                Ok(items) => {
                    let list =
                        format!(r#"{{"kind":"APIServiceList","metadata":{{}},"items":[{items}]}}"#);
                    request.whole(200, &list).await;
                }
                Err(code) => request.refuse(code).await,
            }
            true
        };
        tokio::join!(sent, answer)
    }

    #[tokio::test]
    async fn a_response_is_used_only_if_its_api_service_then_names_no_service() {
        let local = r#"{"spec":{"group":"example.com","version":"v1"}}"#;
        let moved = r#"{"spec":{"group":"example.com","version":"v1","service":{"namespace":"ns","name":"s"}}}"#;
        let other = r#"{"spec":{"group":"example.com","version":"v2"}}"#;
        for purpose in [RequestPurpose::Read, RequestPurpose::Watch] {
            assert_eq!(is_used(purpose, Ok(local)).await, (true, true));
            for items in [Ok(moved), Ok(other), Ok(""), Ok("5"), Err(503), Err(403)] {
                let (is_used, is_checked) = is_used(purpose, items).await;
                assert!(!is_used && is_checked, "{items:?}");
            }
        }
        let versions = is_used(RequestPurpose::ReadVersions, Ok(moved)).await;
        assert_eq!(versions, (true, false), "no client gets them");
    }
}
