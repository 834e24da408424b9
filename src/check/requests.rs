//! Requests of checks. What is read is bounded, and a refusal says in one line why.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error_chain::root_cause;
use crate::upstream::client::{Client, RequestBody, SendError};

/// Documents, reviews and pages of lists.
const ANSWER_LEN_MAX: usize = 4 << 20;
/// A list of metadata of 100,000 objects, or the metrics of more caches than a gateway has.
pub(super) const LIST_LEN_MAX: usize = 128 << 20;
/// A list without its objects' contents; whole objects from servers that know no other.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// The same for the events of a watch.
pub(super) const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Health checks answer in text.
const ACCEPTED: &str = "application/json, */*";
const JSON: &str = "application/json";

/// A response that was read to its end.
pub(super) struct CheckResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckRequestError {
    #[error("no response to {path}: {}", reason(.source))]
    Send { path: String, source: SendError },
    #[error("the response to {path} broke off, or is too long: {reason}")]
    Body { path: String, reason: String },
    #[error("{path} is answered {}{message}", status.as_u16())]
    Status {
        path: String,
        status: StatusCode,
        message: String,
    },
    #[error("the response to {path} is not what it should be: {reason}")]
    Json { path: String, reason: String },
    #[error("{path} cannot be requested")]
    Path { path: String },
}

impl CheckRequestError {
    /// The status, if there was a response.
    pub(super) const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Send { .. } | Self::Body { .. } | Self::Json { .. } | Self::Path { .. } => None,
        }
    }
}

/// The innermost cause, which is the same for API servers and gateways.
fn reason(error: &SendError) -> String {
    root_cause(error).to_string()
}

/// Sends a request for JSON and reads the response, whatever its status.
pub(super) async fn get(client: &Client, path: &str) -> Result<CheckResponse, CheckRequestError> {
    send(client, path, (ACCEPTED, RequestBody::Empty), ANSWER_LEN_MAX).await
}

/// The same for a response that may be long.
pub(super) async fn read_long(
    client: &Client,
    path: &str,
) -> Result<CheckResponse, CheckRequestError> {
    send(client, path, (ACCEPTED, RequestBody::Empty), LIST_LEN_MAX).await
}

/// Reads JSON.
pub(super) async fn read_json<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<T, CheckRequestError> {
    decode(path, get(client, path).await?)
}

/// Reads a list of metadata that may be long.
pub(super) async fn read_list<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<T, CheckRequestError> {
    let response = send(
        client,
        path,
        (METADATA_LIST, RequestBody::Empty),
        LIST_LEN_MAX,
    )
    .await?;
    decode(path, response)
}

/// Creates a review and reads it.
pub(super) async fn review<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    body: &Value,
) -> Result<T, CheckRequestError> {
    let body = RequestBody::Full(Bytes::from(body.to_string()));
    decode(
        path,
        send(client, path, (ACCEPTED, body), ANSWER_LEN_MAX).await?,
    )
}

async fn send(
    client: &Client,
    path: &str,
    (accept, body): (&'static str, RequestBody),
    len_max: usize,
) -> Result<CheckResponse, CheckRequestError> {
    let mut request = match body {
        RequestBody::Empty => Request::get(path),
        RequestBody::Full(_) | RequestBody::Stream { .. } => {
            Request::post(path).header(CONTENT_TYPE, HeaderValue::from_static(JSON))
        }
    };
    request = request.header(ACCEPT, HeaderValue::from_static(accept));
    let request = request.body(body).map_err(|_| CheckRequestError::Path {
        path: path.to_owned(),
    })?;
    let response = client.send(request).await;
    let response = response.map_err(|source| CheckRequestError::Send {
        path: path.to_owned(),
        source,
    })?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, len_max).collect().await;
    let body = body.map_err(|error| CheckRequestError::Body {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(CheckResponse {
        status: head.status,
        headers: head.headers,
        body: body.to_bytes(),
    })
}

pub(super) fn decode<T: DeserializeOwned>(
    path: &str,
    response: CheckResponse,
) -> Result<T, CheckRequestError> {
    if !response.status.is_success() {
        return Err(CheckRequestError::Status {
            path: path.to_owned(),
            status: response.status,
            message: message(&response.body),
        });
    }
    serde_json::from_slice(&response.body).map_err(|error| CheckRequestError::Json {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// The message of a Kubernetes `Status`, after a colon; empty if the body is none.
pub(super) fn message(body: &[u8]) -> String {
    let status = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let text = status["message"].as_str().unwrap_or_default();
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// The lines of a text.
pub(super) fn lines_of(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    text.lines().map(str::to_owned).collect()
}
