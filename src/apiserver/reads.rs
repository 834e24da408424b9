//! Lists and watches, answered by the gateway's own reading side from the caches that the store feeds.

use std::sync::Arc;

use http::header::{ACCEPT, UPGRADE, USER_AGENT};
use http::{Request, Response, Uri};
use hyper::body::Incoming;

use super::answer::{ApiBody, no_route, refused};
use super::form::{ResultShape, accept_header};
use super::kinds::{Catalogue, ServedKind};
use super::route::RouteError;
use super::store::Store;
use crate::protocol::continue_token::ContinueToken;
use crate::protocol::request::{JsonChoice, ListOptions, RequestTarget, Spelling, is_oversized};
use crate::protocol::status::Status;
use crate::resource::{CacheKey, Encoding, FieldTable, Gvr, Layout};
use crate::serve::resources::{Availability, FillWait, Latest, Peer, RequestOutcome, Resources};
use crate::view::ServedResource;
use crate::view::selector::{FieldSelector, FieldSelectorError};
use crate::watch::{WatchRecorder, WatchTotals};

/// Parameters that are dropped before a request is looked at: indented answers are not made here, and sharded lists
/// are behind a gate that is off by default (docs/PROTOCOL.md §2.7).
const DROPPED: [&str; 2] = ["pretty", "shardSelector"];

/// The caches as the reading side knows them. There is nothing upstream of them.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    pub(super) served: Vec<ServedResource>,
    /// One share for each open watch, and this one.
    pub(super) streams: Arc<NoRecorder>,
}

/// What streams deliver is for their clients to count.
#[derive(Debug)]
pub(super) struct NoRecorder;

impl WatchRecorder for NoRecorder {
    fn delivered(&self, _: u64, _: u64) {}

    fn ended(&self, _: WatchTotals) {}
}

impl Reads {
    /// How many watches are open.
    pub(super) fn watch_count(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    /// Ends all watches, and those that still come.
    pub(super) fn close(&self) {
        self.served.iter().for_each(|served| served.hub.close());
    }

    fn index_of(&self, gvr: &Gvr) -> Option<usize> {
        self.catalogue
            .index_of(&gvr.group, &gvr.version, &gvr.resource)
    }

    /// What the real server says to a read that memory cannot answer.
    fn refusal(&self, request: &Request<Incoming>) -> Response<ApiBody> {
        let Ok(RequestTarget::Resource(path)) = RequestTarget::parse(request.uri()) else {
            return no_route(&RouteError::Page);
        };
        let (Some(kind_index), Spelling::Clean) = (self.index_of(&path.gvr), path.spelling) else {
            return no_route(&RouteError::Page);
        };
        if request.headers().contains_key(UPGRADE) {
            return refused(&Status::bad_request("connections are not upgraded here"));
        }
        let kind = self.catalogue.kind(kind_index);
        let status = match ListOptions::parse(request.uri().query()) {
            Ok(options) => match unknown_label(kind, &options.field_selector) {
                Some(refusal) => return refused(&refusal),
                None if is_oversized(&options, &kind.resource) => {
                    Status::bad_request("selectors as long as this are not served here")
                }
                None if options.watch => {
                    Status::too_many_requests("too many selectors are watched by", 5)
                }
                None => expired(&options),
            },
            Err(status) => status,
        };
        answered(&status)
    }
}

impl Resources for Reads {
    type Forwarded = ApiBody;

    /// Memory is the truth here, so that every kind is at the global revision whenever somebody asks.
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

    async fn forward(&self, request: Request<Incoming>) -> Response<ApiBody> {
        self.refusal(&request)
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::clone(&self.streams) as Arc<dyn WatchRecorder>
    }

    fn answered(&self, _: RequestOutcome<'_>) {}
}

/// Makes a read ask for compact JSON, all that is spoken here, in the form that fits the wish and the read.
pub(super) fn as_json(request: &mut Request<Incoming>, wish: JsonChoice, shape: ResultShape) {
    let headers = request.headers_mut();
    headers.insert(ACCEPT, accept_header(wish, shape));
    // By their names browsers and curl would get indented lists.
    headers.remove(USER_AGENT);
    if let Some(uri) = without_dropped(request.uri()) {
        *request.uri_mut() = uri;
    }
}

/// The address without the dropped parameters; none if it has none of them.
fn without_dropped(uri: &Uri) -> Option<Uri> {
    let name = |pair: &str| {
        pair.split_once('=')
            .map_or(pair, |(name, _)| name)
            .to_owned()
    };
    let pairs: Vec<&str> = uri.query()?.split('&').collect();
    let kept: Vec<&str> = pairs
        .iter()
        .copied()
        .filter(|pair| !DROPPED.contains(&name(pair).as_str()))
        .collect();
    if kept.len() == pairs.len() {
        return None;
    }
    format!("{}?{}", uri.path(), kept.join("&")).parse().ok()
}

/// The refusal of a field selector that names what a kind does not select by (docs/PROTOCOL.md §2.6).
pub(super) fn unknown_label(kind: &ServedKind, selector: &str) -> Option<Status> {
    let gvr = &kind.resource.gvr;
    let label = match FieldSelector::parse(selector, FieldTable::of(gvr)) {
        Err(FieldSelectorError::UnknownLabel(label)) => label,
        Ok(fields) if fields.names_namespace() && !kind.resource.namespaced => {
            "metadata.namespace".to_owned()
        }
        Ok(_) | Err(FieldSelectorError::Syntax(_)) => return None,
    };
    let message = match (&*gvr.group, &*gvr.resource) {
        ("batch", "jobs") => format!("field label {label:?} not supported for batchv1.Job"),
        ("", "configmaps" | "serviceaccounts") => known_only(&label),
        ("", _) => format!("field label not supported: {label}"),
        _ if kind.resource.layout == Layout::Dynamic => {
            format!("field label not supported: {label}")
        }
        _ => known_only(&label),
    };
    Some(Status::bad_request(message))
}

fn known_only(label: &str) -> String {
    format!(
        r#"{label:?} is not a known field selector: only "metadata.name", "metadata.namespace""#
    )
}

/// The answer to a read of history that is gone (docs/PROTOCOL.md §3.5).
fn expired(options: &ListOptions) -> Status {
    if options.continue_token.is_empty() {
        return match options.resource_version.as_str() {
            "" => Status::unknown_resource(),
            _ => Status::expired_list(),
        };
    }
    match ContinueToken::decode(&options.continue_token) {
        Ok(token) => Status::expired_continue(token.at_latest().encode()),
        Err(status) => status,
    }
}

fn answered(status: &Status) -> Response<ApiBody> {
    let response = status.to_response();
    response.map(|bytes| {
        use http_body_util::BodyExt;
        ApiBody::new(http_body_util::Full::new(bytes).map_err(|never| match never {}))
    })
}
