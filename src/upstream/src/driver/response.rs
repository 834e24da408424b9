//! Reads whole responses, at a bounded length.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::RETRY_AFTER;
use http_body::Body;
use http_body_util::BodyExt;

use super::fault::{AttemptFailure, FrameRejection, check_content_type};
use super::fetch::{Fetch, RequestPurpose};
use crate::decode::{UpstreamStatus, scan_protobuf_status, scan_status};
use crate::resource::Encoding;
use crate::resource::wire::MAGIC;

/// Longest page, bytes. 500 objects of the largest size that etcd accepts by default (1.5 MiB each) fit.
const PAGE_LEN_MAX: usize = 1 << 30;
/// Longest page of metadata, bytes. Most objects have a few kilobytes of it.
const VERSIONS_LEN_MAX: usize = 16 << 20;
/// Longest part of an error response that is read, bytes. A Status has a few hundred; what an unknown proxy sends is cut
/// off.
const STATUS_LEN_MAX: usize = 64 << 10;

/// The API server ends its lists after 60 s, so a response that has been silent for as long will not continue, whether it
/// is streamed or not. That the connection below is alive proves nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Fetches a whole response body.
pub(super) async fn fetch_body<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: RequestPurpose,
    encoding: Encoding,
) -> Result<Bytes, AttemptFailure> {
    Ok(fetch_whole(fetch, path, purpose, encoding)
        .await?
        .into_body())
}

/// Fetches a whole response with its headers.
pub(super) async fn fetch_whole<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: RequestPurpose,
    encoding: Encoding,
) -> Result<Response<Bytes>, AttemptFailure> {
    let response = fetch.get(path, purpose, encoding).await?;
    if response.status().as_u16() != 200 {
        return Err(AttemptFailure::refused(read_status(response).await));
    }
    check_content_type(&response, encoding)?;
    let (head, body) = response.into_parts();
    let len_max = match purpose {
        RequestPurpose::ReadShort | RequestPurpose::ReadVersions => VERSIONS_LEN_MAX,
        RequestPurpose::Read
        | RequestPurpose::ReadMetadata
        | RequestPurpose::Watch
        | RequestPurpose::WatchMetadata => PAGE_LEN_MAX,
    };
    let body = read_body(body, len_max)
        .await
        .map_err(|truncated| truncated.fault)?;
    Ok(Response::from_parts(head, body))
}

/// Reads the Status of an error response.
pub(super) async fn read_status<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin>(
    response: Response<B>,
) -> UpstreamStatus {
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = match read_body(response.into_body(), STATUS_LEN_MAX).await {
        Ok(body) => body,
        Err(truncated) => truncated.received,
    };
    let status = if body.is_empty() {
        UpstreamStatus::of_code(code)
    } else {
        match body.starts_with(MAGIC) {
            true => scan_protobuf_status(&body),
            false => scan_status(&body),
        }
    };
    status.over_http(code, retry_after)
}

struct TruncatedBody {
    received: Bytes,
    fault: AttemptFailure,
}

async fn read_body<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin>(
    mut body: B,
    len_max: usize,
) -> Result<Bytes, TruncatedBody> {
    let mut received = BytesMut::new();
    let fault = loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => return Ok(received.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => break AttemptFailure::transport(error.to_string()),
            Err(_) => break AttemptFailure::transport("the response stopped half way"),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if received.len() + data.len() > len_max {
            let cause = format!("longer than {len_max} bytes");
            break AttemptFailure::rejected(FrameRejection::TooLong, cause);
        }
        received.extend_from_slice(&data);
    };
    Err(TruncatedBody {
        received: received.freeze(),
        fault,
    })
}
