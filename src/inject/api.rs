//! Requests to the API server, in JSON. What is read is bounded, and a failure is one line.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use tokio::time::timeout;

use crate::error_chain::one_line;
use crate::upstream::client::{Client, RequestBody};

/// A page of a list takes a second or two.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// A page of pods' metadata takes about one MiB.
const ANSWER_LEN_MAX: usize = 8 << 20;
/// Objects of a page.
const PAGE_LEN: usize = 250;
/// Pages of a list that are read: more pods than a cluster has.
const PAGES_MAX: usize = 1_000;
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// A list without the contents of its objects.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why there is no answer to use.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}: {reason}")]
pub(super) struct ApiFailure {
    method: Method,
    path: String,
    reason: String,
    /// The status, if there was a response.
    status: Option<StatusCode>,
}

impl ApiFailure {
    pub(super) fn is_not_found(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }
}

/// A client of one API server.
pub(super) struct Api(Client);

impl Api {
    pub(super) const fn new(client: Client) -> Self {
        Self(client)
    }

    /// An object or a list; `None` if there is none.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>, ApiFailure> {
        let read = self.send(Method::GET, path, (JSON, None)).await;
        match read {
            Err(failure) if failure.is_not_found() => Ok(None),
            read => read.map(Some),
        }
    }

    /// What `keep` takes from the metadata of all objects of a list, page by page. `query` may be empty.
    pub(super) async fn list<Kept>(
        &self,
        path: &str,
        query: &str,
        keep: impl Fn(&Value) -> Kept,
    ) -> Result<Vec<Kept>, ApiFailure> {
        let (mut items, mut token) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let page = format!("{path}?limit={PAGE_LEN}&{query}&continue={token}");
            let page = self.send(Method::GET, &page, (METADATA_LIST, None)).await?;
            items.extend(page["items"].as_array().into_iter().flatten().map(&keep));
            // A token is base64 without padding or signs that a query does not have.
            token = text(&page, "/metadata/continue").to_owned();
            if token.is_empty() {
                return Ok(items);
            }
        }
        Err(ApiFailure {
            method: Method::GET,
            path: path.to_owned(),
            reason: format!("more than {} objects", PAGES_MAX * PAGE_LEN),
            status: None,
        })
    }

    /// Merges a patch into an object.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<Value, ApiFailure> {
        self.send(Method::PATCH, path, (MERGE_PATCH, Some(patch)))
            .await
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiFailure> {
        self.send(Method::POST, path, (JSON, Some(object))).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, ApiFailure> {
        self.send(Method::DELETE, path, (JSON, None)).await
    }

    /// `form` is what is accepted, or the media type of what is sent, and that.
    async fn send(
        &self,
        method: Method,
        path: &str,
        (form, body): (&'static str, Option<&Value>),
    ) -> Result<Value, ApiFailure> {
        let failed = |status, reason| ApiFailure {
            method: method.clone(),
            path: path.split('?').next().unwrap_or_default().to_owned(),
            reason,
            status,
        };
        let request = Request::builder().method(&method).uri(path);
        let request = match body {
            None => request.header(ACCEPT, form).body(RequestBody::Empty),
            Some(body) => request
                .header(ACCEPT, JSON)
                .header(CONTENT_TYPE, form)
                .body(RequestBody::Full(Bytes::from(body.to_string()))),
        };
        let request = request.map_err(|error| failed(None, error.to_string()))?;
        let answered = timeout(ANSWER_WAIT_MAX, self.exchange(request)).await;
        let answered = answered.unwrap_or_else(|_| Err("no answer in 30 s".to_owned()));
        let (status, body) = answered.map_err(|reason| failed(None, reason))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !status.is_success() {
            let reason = format!("{}: {}", status.as_u16(), text(&answer, "/message"));
            return Err(failed(Some(status), reason));
        }
        match answer.is_object() {
            true => Ok(answer),
            false => Err(failed(Some(status), "the answer is no object".to_owned())),
        }
    }

    async fn exchange(&self, request: Request<RequestBody>) -> Result<(StatusCode, Bytes), String> {
        let response = self.0.send(request).await;
        let response = response.map_err(|error| one_line(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect();
        let body = body.await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    }
}

/// The text at a place of a document; empty if there is none.
pub(super) fn text<'a>(document: &'a Value, place: &str) -> &'a str {
    let found = document.pointer(place).and_then(Value::as_str);
    found.unwrap_or_default()
}
