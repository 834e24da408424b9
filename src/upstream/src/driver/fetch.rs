//! How a driver sends its requests.

use std::fmt;
use std::future::Future;

use bytes::Bytes;
use http::Response;
use http_body::Body;

use crate::resource::Encoding;

/// What a request is for. It decides which connections the request uses and which forms of objects it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// A list, or another short request.
    Read,
    /// A short list, apart from what may take long.
    ReadShort,
    /// A list of which only metadata is read.
    ReadMetadata,
    /// A list of which only names and versions are read.
    ReadVersions,
    /// A watch: its body ends only with the watch.
    Watch,
    /// A watch of which only metadata is read.
    WatchMetadata,
}

/// Upstream did not respond.
#[derive(Debug, thiserror::Error)]
#[error("upstream did not answer")]
pub struct FetchError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Sends requests upstream. Tests have their own implementation.
pub trait Fetch: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: fmt::Display + Send> + Send + Unpin;

    /// Sends a GET that accepts this encoding. The body of the response is not compressed any more.
    fn get(
        &self,
        path_and_query: String,
        purpose: RequestPurpose,
        encoding: Encoding,
    ) -> impl Future<Output = Result<Response<Self::Body>, FetchError>> + Send;

    /// A watch has been shown to lack what upstream has: its server may lag, so the next one should be sent to another.
    fn lagging(&self) {}
}
