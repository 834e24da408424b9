//! The [`Resources`] of the embedded API server: the gateway's `serve` answers its lists and watches from the caches that the
//! store feeds.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, UPGRADE, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::form::{ResultShape, accept_header};
use super::kinds::Catalogue;
use super::refusal::bad_parameters;
use super::route::RouteError;
use super::store::Store;
use crate::protocol::continue_token::ContinueToken;
use crate::protocol::request::{
    CacheRead, JsonChoice, ListOptions, Query, RequestTarget, Spelling,
};
use crate::protocol::status::Status;
use crate::resource::{CacheKey, Encoding, Gvr};
use crate::serve::resources::{
    Availability, FillWait, ForwardRequest, Latest, Peer, RequestOutcome, Resources,
};
use crate::view::ServedResource;
use crate::watch::WatchRecorder;

/// Query parameters that are removed before a request is parsed: lists are never indented here, and sharded lists are behind a
/// feature gate that is off by default (docs/PROTOCOL.md §2.7).
const DROPPED_PARAMETERS: [&str; 2] = ["pretty", "shardSelector"];

/// The body of a response that `serve` did not make: a refusal, or a watch with ordered faults.
pub(super) type ApiBody = UnsyncBoxBody<Bytes, io::Error>;

/// The caches, for reading. There is no upstream to forward requests to.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    /// Cache and hub of each kind, by the kind's index.
    pub(super) served: Vec<ServedResource>,
}

impl Reads {
    /// Ends all open watches; later watches end immediately.
    pub(super) fn close(&self) {
        self.served.iter().for_each(|served| served.hub.close());
    }

    fn index_of(&self, gvr: &Gvr) -> Option<usize> {
        self.catalogue
            .index_of(&gvr.group, &gvr.version, &gvr.resource)
    }

    /// kube-apiserver's response to a read that the caches cannot answer.
    fn refusal(&self, request: &Request<Incoming>) -> Response<Bytes> {
        let RequestTarget::Resource(path) = RequestTarget::parse(request.uri()) else {
            return RouteError::Page.to_response();
        };
        let (Some(kind_index), Spelling::Clean) = (self.index_of(&path.gvr), path.spelling) else {
            return RouteError::Page.to_response();
        };
        if request.headers().contains_key(UPGRADE) {
            let message = "the embedded API server does not upgrade connections";
            return Status::bad_request(message).to_response();
        }
        let kind = self.catalogue.kind(kind_index);
        let query = Query::parse(request.uri().query());
        let status = match ListOptions::from_query(&query) {
            Some(options) if !options.is_allowed() => {
                let message = "the options of the request may not be combined";
                Status::new(422, "Invalid", message)
            }
            Some(options) if CacheRead::decide(&path, &options, &kind.resource).is_none() => {
                bad_parameters()
            }
            None => bad_parameters(),
            Some(options) if options.watch => {
                Status::too_many_requests("the open watches use too many different selectors", 5)
            }
            Some(options) => expired(&options),
        };
        status.to_response()
    }
}

impl Resources for Reads {
    type Forwarded = ApiBody;

    /// The store is the source of truth, so every kind is brought to the global revision for each request.
    async fn availability(&self, key: &CacheKey, _: FillWait, _: Peer) -> Availability {
        if key.encoding != Encoding::Json {
            return Availability::OtherEncoding;
        }
        match self.index_of(&key.gvr) {
            Some(kind_index) => {
                self.store.reached(kind_index);
                Availability::Ready(self.served[kind_index].clone())
            }
            None => Availability::Forwarded(None),
        }
    }

    async fn latest(&self, served: &ServedResource) -> Latest {
        self.index_of(&served.cache.kind().gvr)
            .map_or(Latest::Unknown, |kind_index| {
                Latest::At(self.store.reached(kind_index))
            })
    }

    async fn forward(&self, forward: ForwardRequest) -> Response<ApiBody> {
        let refusal = self.refusal(&forward.request.http);
        refusal.map(|body| {
            Full::new(body)
                .map_err(|never| match never {})
                .boxed_unsync()
        })
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::new(())
    }

    fn answered(&self, _: RequestOutcome<'_>) {}
}

/// Rewrites a read to request compact JSON, the only format that is served here, as whole objects or metadata.
pub(super) fn as_json(request: &mut Request<Incoming>, choice: JsonChoice, shape: ResultShape) {
    let headers = request.headers_mut();
    headers.insert(ACCEPT, accept_header(choice, shape));
    // `serve` indents lists for browsers and curl, which it recognizes by the user agent.
    headers.remove(USER_AGENT);
    if let Some(uri) = without_dropped_parameters(request.uri()) {
        *request.uri_mut() = uri;
    }
}

/// The URI without [`DROPPED_PARAMETERS`]; `None` if it has none of them.
fn without_dropped_parameters(uri: &Uri) -> Option<Uri> {
    let name = |pair: &str| {
        pair.split_once('=')
            .map_or(pair, |(name, _)| name)
            .to_owned()
    };
    let pairs: Vec<&str> = uri.query()?.split('&').collect();
    let kept: Vec<&str> = pairs
        .iter()
        .copied()
        .filter(|pair| !DROPPED_PARAMETERS.contains(&name(pair).as_str()))
        .collect();
    if kept.len() == pairs.len() {
        return None;
    }
    format!("{}?{}", uri.path(), kept.join("&")).parse().ok()
}

/// The error for a read of a version or a continue token that the history no longer reaches (docs/PROTOCOL.md §3.5).
fn expired(options: &ListOptions) -> Status {
    if options.continue_token.is_empty() {
        return match options.resource_version.as_str() {
            "" => Status::unknown_resource(),
            _ => Status::expired_list(),
        };
    }
    match ContinueToken::decode(&options.continue_token) {
        Some(token) => Status::expired_continue(token.at_latest().encode()),
        None => bad_parameters(),
    }
}
