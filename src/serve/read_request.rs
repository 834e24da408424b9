//! What a request for a list or a watch asks for, taken apart before anything is answered.

use http::header::{ACCEPT, HeaderValue, USER_AGENT};
use http::{Method, Request};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::request_timeout::RequestTimeout;
use crate::audit::AuditTrail;
use crate::fairness::Peer;
use crate::protocol::request::{
    CacheRead, ListOptions, PathForm, Query, ReadRefusal, RequestFault, RequestTarget,
    ResourcePath, Spelling, Verb, is_routed, refusal_form, verb, wants_pretty,
};
use crate::protocol::status::{PlainText, Status, StatusForm};
use crate::protocol::websocket::{CanSwitch, UpgradeRequest, WebSocketUpgrade};
use crate::resource::{CacheKey, Gvr, ResourceKind};
use crate::serve::gzip::accepts_gzip;
use crate::serve::resources::{FillWait, ForwardPermit, Permission};
use crate::view::ObjectFormat;
use crate::view::selector::Selector;

/// A list or a watch that memory may answer.
pub(super) struct ReadRequest {
    pub(super) path: ResourcePath,
    pub(super) verb: Verb,
    /// Or what is wrong with the numbers among them.
    pub(super) options: Result<ListOptions, Status>,
    /// What the client wants, as far as it is known: JSON until a cache was chosen.
    pub(super) key: CacheKey,
    pub(super) rendition: ObjectFormat,
    /// How a refusal is written; `None` if only upstream can write it.
    pub(super) status_form: Option<StatusForm>,
    /// Whatever the answer, these go with it.
    pub(super) warnings: Vec<HeaderValue>,
    pub(super) is_indented: bool,
    pub(super) takes_gzip: bool,
    /// Of a watch that is to go over WebSocket.
    pub(super) socket: Option<WebSocketUpgrade>,
    pub(super) started: Instant,
    /// When the answer must have begun.
    pub(super) overdue_at: Option<Instant>,
    pub(super) peer: Peer,
    /// Under which it is forwarded although its cache is being filled.
    pub(super) permit: Option<ForwardPermit>,
    /// Of its caller, once it is authorized; `None` where callers are not told apart.
    pub(super) permission: Option<Permission>,
    /// Of the audit log.
    pub(super) trail: Option<AuditTrail>,
}

/// So many items are sent with less effort than a list waits for.
const SHORT_ITEMS: u64 = 100;

/// Whether an answer is surely so short that it takes no place: one object, or a short page that nothing is searched for.
pub(super) fn is_short(selector: &Selector, limit: Option<u64>) -> bool {
    let is_searched = !selector.labels.is_empty() || !selector.fields.is_empty();
    selector.fields.pinned_name().is_some()
        || limit.is_some_and(|limit| limit <= SHORT_ITEMS && !is_searched)
}

/// How long it waits for its cache: a page or one object costs upstream little, as it costs kube-apiserver's own storage, which
/// answers these while its cache is being filled (docs/PROTOCOL.md §6.9).
pub(super) fn fill_wait(asked: &ReadRequest) -> FillWait {
    let Ok(options) = &asked.options else {
        return FillWait::Short;
    };
    let is_page = options.limit > 0 && options.field_selector.is_empty();
    let is_object = options.field_selector.starts_with("metadata.name=");
    let is_searched = !options.label_selector.is_empty();
    if asked.verb == Verb::List && (is_page || is_object) && !is_searched {
        FillWait::Short
    } else {
        FillWait::Long
    }
}

/// Takes the request apart; `None` when memory cannot answer it.
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
    let patience = RequestTimeout::of(&query, verb);
    if !reads || !plain || patience == RequestTimeout::Unknown {
        return Ok(None);
    }
    let socket = match UpgradeRequest::of(request.version(), request.headers()) {
        UpgradeRequest::WebSocket(upgrade) if verb == Verb::Watch && can_upgrade(request) => {
            Some(upgrade)
        }
        UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream if verb == Verb::Watch => {
            return Ok(None);
        }
        // Lists ignore upgrades.
        UpgradeRequest::Http | UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream => None,
    };
    let status_form = match refusal_form(&accept(request)) {
        Some(StatusForm::Json) if prefers_indented(request) => Some(StatusForm::Indented),
        form => form,
    };
    let started = Instant::now();
    Ok(Some(ReadRequest {
        key: CacheKey::json(&path.gvr),
        path,
        verb,
        options: ListOptions::from_query(&query),
        rendition: ObjectFormat::default(),
        status_form,
        warnings: Vec::new(),
        is_indented: false,
        takes_gzip: accepts_gzip(request.headers()),
        overdue_at: match patience {
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

pub(super) fn accept(request: &Request<Incoming>) -> Vec<&str> {
    let values = request.headers().get_all(ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

/// Whether JSON is indented, as far as the media type does not say so.
pub(super) fn prefers_indented(request: &Request<Incoming>) -> bool {
    let agent = request.headers().get(USER_AGENT);
    let agent = agent.and_then(|value| value.to_str().ok());
    wants_pretty(&Query::parse(request.uri().query()), agent)
}

/// Decides what is read, or that upstream must answer.
pub(super) fn decide(asked: &ReadRequest, kind: &ResourceKind) -> Result<CacheRead, ReadRefusal> {
    if asked.path.namespace.is_some()
        && !kind.namespaced
        && asked.path.gvr != Gvr::new("", "v1", "namespaces")
    {
        return Err(ReadRefusal::Forward);
    }
    // What has no route has no options either.
    if !is_routed(&asked.path, kind) {
        return Err(ReadRefusal::Forward);
    }
    let options = asked.options.as_ref();
    let options =
        options.map_err(|status| ReadRefusal::Bad(RequestFault::Options, status.clone()))?;
    CacheRead::decide(&asked.path, options, kind)
}
