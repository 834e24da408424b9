//! A watch that begins with all objects, read until the bookmark that says where they end.

use bytes::{Buf as _, BytesMut};
use http::header::ACCEPT;
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;

use super::comparison::{InitialProgress, WatchedEvent};
use super::requests::{CheckRequestError, LIST_LEN_MAX, METADATA, message};
use crate::upstream::client::{Client, RequestBody};

/// Most bytes that are read of a refusal.
const REFUSAL_LEN_MAX: usize = 64 << 10;
/// An event of metadata has some kilobytes.
const EVENT_LEN_MAX: usize = 4 << 20;
/// The server ends the watch then; the check itself has a longer time.
const SECONDS: u32 = 20;

/// Reads the initial events of a watch, and the bookmark after them. A stream that ends earlier is judged by its progress.
pub(super) async fn watch_from_start(
    client: &Client,
    collection: &str,
) -> Result<InitialProgress, CheckRequestError> {
    let path = format!(
        "{collection}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds={SECONDS}"
    );
    let request = Request::get(&path).header(ACCEPT, HeaderValue::from_static(METADATA));
    let request = request
        .body(RequestBody::Empty)
        .map_err(|_| CheckRequestError::Path { path: path.clone() })?;
    let response = client.send_watch(request).await;
    let response = response.map_err(|source| CheckRequestError::Send {
        path: path.clone(),
        source,
    })?;
    let status = response.status();
    let mut body = response.into_body();
    let (mut rest, mut total) = (BytesMut::new(), 0);
    let mut progress = InitialProgress::default();
    let broken = |reason: String| CheckRequestError::Body {
        path: path.clone(),
        reason,
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(error.to_string()))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        total += data.len();
        rest.extend_from_slice(data);
        if !status.is_success() {
            if total > REFUSAL_LEN_MAX {
                break;
            }
            continue;
        }
        if total > LIST_LEN_MAX {
            return Err(broken("it is longer than any list".to_owned()));
        }
        while let Some(end) = memchr::memchr(b'\n', &rest) {
            let event = serde_json::from_slice::<WatchedEvent>(&rest[..end]);
            rest.advance(end + 1);
            let event = event.map_err(|error| CheckRequestError::Json {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            if progress.note(&event) {
                return Ok(progress);
            }
        }
        if rest.len() > EVENT_LEN_MAX {
            return Err(broken("an event is longer than any object".to_owned()));
        }
    }
    if status.is_success() {
        return Ok(progress);
    }
    Err(CheckRequestError::Status {
        path,
        status,
        message: message(&rest),
    })
}
