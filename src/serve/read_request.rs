//! A list or watch request, parsed before anything is answered.

use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::request_timeout::RequestTimeout;
use crate::audit::AuditTrail;
use crate::fairness::Peer;
use crate::protocol::request::{
    Accept, CacheRead, ListOptions, PathForm, Query, ReadRefusal, RequestFault, RequestTarget,
    ResourcePath, Spelling, Verb, is_routed, verb, wants_pretty,
};
use crate::protocol::status::{PlainText, Status, StatusForm};
use crate::protocol::websocket::{CanSwitch, UpgradeRequest, WebSocketUpgrade};
use crate::resource::{CacheKey, Gvr, ResourceKind};
use crate::selector::Selector;
use crate::serve::gzip::accepts_gzip;
use crate::serve::resources::{FillWait, ForwardPermit, Permission};
use crate::view::ObjectFormat;

/// A list or watch that memory may answer.
pub(super) struct ReadRequest {
    pub(super) path: ResourcePath,
    pub(super) verb: Verb,
    /// The options, or the error if a number among them does not parse.
    pub(super) options: Result<ListOptions, Status>,
    /// The cache to read. Its encoding is JSON until a cache is chosen.
    pub(super) key: CacheKey,
    pub(super) format: ObjectFormat,
    /// The format of error responses; `None` if only upstream can write it.
    pub(super) status_form: Option<StatusForm>,
    /// `Warning` headers, which every response to this request has.
    pub(super) warnings: Vec<HeaderValue>,
    pub(super) is_indented: bool,
    pub(super) takes_gzip: bool,
    /// The upgrade of a watch that requests WebSocket.
    pub(super) socket: Option<WebSocketUpgrade>,
    pub(super) started: Instant,
    /// The time by which the response must have started; `None` for watches.
    pub(super) deadline: Option<Instant>,
    pub(super) peer: Peer,
    /// The permit to forward the request although its cache is being filled.
    pub(super) permit: Option<ForwardPermit>,
    /// The caller's permission, once it is authorized; `None` if callers are not authenticated.
    pub(super) permission: Option<Permission>,
    /// The request's entry in the audit log.
    pub(super) trail: Option<AuditTrail>,
}

/// Sending this many items costs less than waiting for a permit.
const SHORT_ITEMS: u64 = 100;

/// Whether a list is certain to be so short that it needs no permit: one object, or a short page without selectors to evaluate.
pub(super) fn is_short(selector: &Selector, limit: Option<u64>) -> bool {
    let is_searched = !selector.labels.is_empty() || !selector.fields.is_empty();
    selector.fields.pinned_name().is_some()
        || limit.is_some_and(|limit| limit <= SHORT_ITEMS && !is_searched)
}

/// How long the request waits for its cache to be filled. A page or one object costs upstream little; kube-apiserver also answers
/// these from its storage while its cache is being filled (docs/PROTOCOL.md §6.9).
pub(super) fn fill_wait(read: &ReadRequest) -> FillWait {
    let Ok(options) = &read.options else {
        return FillWait::Short;
    };
    let is_page = options.limit > 0 && options.field_selector.is_empty();
    let is_object = options.field_selector.starts_with("metadata.name=");
    let is_searched = !options.label_selector.is_empty();
    if read.verb == Verb::List && (is_page || is_object) && !is_searched {
        FillWait::Short
    } else {
        FillWait::Long
    }
}

/// Parses the request; `None` if memory cannot answer it.
pub(super) fn read_request(request: &Request<Incoming>) -> Result<Option<ReadRequest>, PlainText> {
    let path = match RequestTarget::parse(request.uri())? {
        RequestTarget::Resource(path) => path,
        RequestTarget::NonResource => return Ok(None),
    };
    let query = Query::parse(request.uri().query());
    let verb = verb(request.method(), &path, &query);
    let reads = request.method() == Method::GET && matches!(verb, Verb::List | Verb::Watch);
    let plain = path.spelling == Spelling::Clean
        && path.subresource.is_none()
        && path.form != PathForm::ProxyPrefix;
    let timeout = RequestTimeout::of(&query, verb);
    if !reads || !plain || timeout == RequestTimeout::Unknown {
        return Ok(None);
    }
    let socket = match UpgradeRequest::of(request.version(), request.headers()) {
        UpgradeRequest::WebSocket(upgrade) if verb == Verb::Watch && can_upgrade(request) => {
            Some(upgrade)
        }
        UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream if verb == Verb::Watch => {
            return Ok(None);
        }
        // Lists ignore upgrade requests.
        UpgradeRequest::Http | UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream => None,
    };
    let status_form = match Accept::of(request.headers()).refusal_form() {
        Some(StatusForm::Json) if prefers_indented(request) => Some(StatusForm::Indented),
        form => form,
    };
    let started = Instant::now();
    Ok(Some(ReadRequest {
        key: CacheKey::json(&path.gvr),
        path,
        verb,
        options: ListOptions::from_query(&query),
        format: ObjectFormat::default(),
        status_form,
        warnings: Vec::new(),
        is_indented: false,
        takes_gzip: accepts_gzip(request.headers()),
        deadline: match timeout {
            RequestTimeout::Until(limit) => Some(started + limit),
            RequestTimeout::Endless | RequestTimeout::Unknown => None,
        },
        socket,
        started,
        peer: request.extensions().get().copied().unwrap_or(Peer::UNKNOWN),
        permit: None,
        permission: None,
        trail: None,
    }))
}

/// Whether the connection can become a WebSocket.
fn can_upgrade(request: &Request<Incoming>) -> bool {
    request.extensions().get::<CanSwitch>().is_some()
}

/// Whether the query or the `User-Agent` asks for indented JSON; the media type can ask for it, too.
pub(super) fn prefers_indented(request: &Request<Incoming>) -> bool {
    let agent = request.headers().get(USER_AGENT);
    let agent = agent.and_then(|value| value.to_str().ok());
    wants_pretty(&Query::parse(request.uri().query()), agent)
}

/// Derives the read from the request and its kind, or says that upstream must answer.
pub(super) fn decide(read: &ReadRequest, kind: &ResourceKind) -> Result<CacheRead, ReadRefusal> {
    if read.path.namespace.is_some()
        && !kind.namespaced
        && read.path.gvr != Gvr::new("", "v1", "namespaces")
    {
        return Err(ReadRefusal::Forward);
    }
    // Check the route before the options: a path without a route is upstream's 404, whatever its options.
    if !is_routed(&read.path, kind) {
        return Err(ReadRefusal::Forward);
    }
    let options = read.options.as_ref();
    let options =
        options.map_err(|status| ReadRefusal::Bad(RequestFault::Options, status.clone()))?;
    CacheRead::decide(&read.path, options, kind)
}
