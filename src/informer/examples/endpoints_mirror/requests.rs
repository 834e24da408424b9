//! Requests that informers do not make: writes, and lists without a local store.

use anyhow::bail;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube_fanout_informer::client::Client;
use serde_json::Value;

/// Maximum length of a response in bytes. The check at the end lists all services, slices and copies in one response each.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// Sends one request and reads the whole response, whatever its status.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<(StatusCode, Value)> {
    let sort = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = body.map_or_else(Bytes::new, |value| value.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, sort)
        .body(bytes)?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let bytes = Limited::new(answer.into_body(), ANSWER_LEN_MAX)
        .collect()
        .await
        .map_err(anyhow::Error::from_boxed)?
        .to_bytes();
    Ok((status, serde_json::from_slice(&bytes)?))
}

/// The items of the list at `path`.
pub(crate) async fn list(client: &Client, path: &str) -> anyhow::Result<Vec<Value>> {
    let (status, mut answer) = send(client, Method::GET, path, None).await?;
    if status != StatusCode::OK {
        bail!("{path}: {status}: {}", answer["message"]);
    }
    let Value::Array(items) = answer["items"].take() else {
        bail!("{path}: the response is not a list");
    };
    Ok(items)
}
