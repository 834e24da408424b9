//! Takes a request through its steps: authentication and authorization, routing, faults, answer.

mod resource;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::accept::{Accept, wants_aggregated};
use super::auth::{Access, Auth, Credentials, unreadable_path};
use super::connection::Connection;
use super::faults::{Fault, FaultCounts, FaultError, FaultOrder, Faults, RequestFaults};
use super::query::Query;
use super::request::{Target, Verb};
use super::reviews::{ReviewCounts, ReviewTotals};
use super::status::{JSON, NOSNIFF, Status, page_not_found, plain_text};
use super::store::Random;
use super::view::View;
use super::watch::WatchGroup;
use super::{discovery, json};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);
/// kube-apiserver's limit of a body.
const BODY_LEN_MAX: usize = 3 << 20;

/// Any body.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) view: Arc<View>,
    pub(super) auth: Auth,
    pub(super) reviews: ReviewCounts,
    address: SocketAddr,
    faults: Mutex<Faults>,
    /// The open watches of each kind.
    watches: Vec<Mutex<Arc<WatchGroup>>>,
    random: Mutex<Random>,
}

/// The connection is to be aborted, as ordered.
#[derive(Debug, thiserror::Error)]
#[error("aborted as ordered")]
pub(super) struct Abort;

/// Why a request gets an error.
enum Failure {
    Status(Status),
    /// A response that is no `Status`.
    Response(Box<Response<Bytes>>),
    Abort,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Response<Bytes>> for Failure {
    fn from(response: Response<Bytes>) -> Self {
        Self::Response(Box::new(response))
    }
}

/// What the steps of a request need.
struct Context<'a> {
    method: Method,
    headers: HeaderMap,
    query: Query,
    accept: Accept,
    connection: &'a Connection,
    version: Version,
}

impl Server {
    pub(super) fn new(view: Arc<View>, address: SocketAddr, auth: Auth, seed: u64) -> Self {
        let kinds = view.store.catalogue().kinds().iter();
        Self {
            watches: kinds
                .map(|_| Mutex::new(Arc::new(WatchGroup::new())))
                .collect(),
            view,
            auth,
            reviews: ReviewCounts::default(),
            address,
            faults: Mutex::default(),
            random: Mutex::new(Random(seed)),
        }
    }

    /// The number of open watches, without those that an order has ended.
    pub(super) fn watch_count(&self) -> usize {
        self.watches.iter().map(|group| group.lock().count()).sum()
    }

    pub(super) fn fault_counts(&self) -> FaultCounts {
        self.faults.lock().counts
    }

    /// Takes an order, and carries it out if it is not one that waits for requests.
    pub(super) fn order(&self, order: FaultOrder) -> Result<(), FaultError> {
        self.faults.lock().order(order.clone())?;
        let kinds = self.view.store.catalogue().kinds().iter();
        for (index, kind) in kinds.enumerate() {
            if order
                .resource
                .as_ref()
                .is_some_and(|plural| *plural != kind.plural)
            {
                continue;
            }
            if order.fault == Fault::EndWatches {
                let new = Arc::new(WatchGroup::new());
                std::mem::replace(&mut *self.watches[index].lock(), new).end();
            } else if order.fault == Fault::Compact {
                self.view.store.compact(index);
            }
        }
        Ok(())
    }

    /// Ends the open watches, and later ones at once.
    pub(super) fn end_watches(&self) {
        self.watches.iter().for_each(|group| group.lock().end());
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`Abort`] if a fault says so.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &Connection,
    ) -> Result<Response<Body>, Abort> {
        let (head, body) = request.into_parts();
        let client_s = head.headers.get(AUDIT_ID).filter(|id| !id.is_empty());
        let audit_id = client_s.cloned().unwrap_or_else(|| {
            let uuid = self.random.lock().uuid();
            HeaderValue::from_str(&uuid).unwrap_or_else(|_| HeaderValue::from_static("-"))
        });
        let context = Context {
            query: Query::parse(head.uri.query()),
            accept: Accept::of(&head.headers),
            method: head.method,
            headers: head.headers,
            connection,
            version: head.version,
        };
        let answer = match Target::parse(&context.method, &head.uri, &context.query) {
            Ok(Target::Path(path)) if path.trim_matches('/') == "debug/faults" => {
                self.answer_faults(&context, body).await.map(whole)
            }
            Ok(target) => self.admit(&context, target, body).await,
            Err(_) => {
                let target = head
                    .uri
                    .path_and_query()
                    .map_or("", |target| target.as_str());
                Err(unreadable_path(target).into())
            }
        };
        let mut response = match answer {
            Ok(response) => response,
            Err(Failure::Status(status)) => {
                whole(status.to_response(context.accept.indents_errors))
            }
            Err(Failure::Response(response)) => whole(*response),
            Err(Failure::Abort) => return Err(Abort),
        };
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        Ok(response)
    }

    /// Authenticates and authorizes before anything is looked up, so that a caller without permission does not learn what exists.
    async fn admit(
        &self,
        context: &Context<'_>,
        target: Target,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        let credentials = Credentials {
            headers: &context.headers,
            certificates: &context.connection.certificates,
        };
        let access = Access::of(&context.method, &target, &context.query);
        let caller = self.auth.admit(credentials, &access);
        let is_unknown = match &caller {
            Ok(caller) => caller.is_unknown,
            Err(rejection) => rejection.is_unknown,
        };
        // As in kube-apiserver: the connection of a caller without credentials is closed.
        if is_unknown && context.version == Version::HTTP_2 {
            context.connection.go_away.notify_one();
        }
        let caller = caller.map_err(|rejection| {
            let mut response = rejection.status.to_response(context.accept.indents_errors);
            if rejection.status.code != 401 {
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
            }
            response
        })?;
        match target {
            Target::Path(path) => self.document(context, &path).map(whole),
            Target::Resource(target) => self.resource(context, &caller, target, body).await,
        }
    }

    /// The faults of a request. A delay is over when this returns.
    async fn strike(
        &self,
        context: &Context<'_>,
        verb: Verb,
        plural: &str,
    ) -> Result<RequestFaults, Failure> {
        let mut faults = self.faults.lock().strike(verb, plural);
        if let Some(delay) = faults.delay {
            tokio::time::sleep(delay).await;
        }
        if faults.closes_connection && context.version == Version::HTTP_2 {
            context.connection.go_away.notify_one();
        }
        if faults.breaks_off {
            return Err(Failure::Abort);
        }
        match faults.refusal.take() {
            None => Ok(faults),
            Some(status) => {
                let mut response = status.to_response(context.accept.indents_errors);
                close_if(faults.closes_connection, &mut response);
                Err(response.into())
            }
        }
    }

    /// Discovery, the version and health.
    fn document(&self, context: &Context<'_>, path: &str) -> Result<Response<Bytes>, Failure> {
        let catalogue = self.view.store.catalogue();
        let is_aggregated = wants_aggregated(&context.headers);
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let document = match segments.as_slice() {
            ["api"] if is_aggregated => Some(discovery::aggregated_core(catalogue)),
            ["apis"] if is_aggregated => Some(discovery::aggregated_groups(catalogue)),
            ["api"] => Some(discovery::core_versions(&self.address.to_string())),
            ["apis"] => Some(discovery::groups(catalogue)),
            ["apis", group] => discovery::group(catalogue, group),
            ["api", version] => discovery::resources(catalogue, "", version),
            ["apis", group, version] => discovery::resources(catalogue, group, version),
            ["version"] => Some(discovery::version()),
            ["healthz" | "livez" | "readyz", ..] => None,
            _ => return Err(page_not_found().into()),
        };
        if !matches!(context.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed().into());
        }
        match (document, segments.as_slice()) {
            (Some(document), ["version"]) => {
                Ok(json_response(StatusCode::OK, json::indented(&document)))
            }
            (Some(document), _) => {
                let mut response = json_line(StatusCode::OK, json::compact(&document));
                if is_aggregated && segments.len() == 1 {
                    let headers = response.headers_mut();
                    headers.insert(CONTENT_TYPE, AGGREGATED);
                    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
                    headers.insert(VARY, HeaderValue::from_static("Accept"));
                }
                Ok(response)
            }
            (None, ["healthz" | "livez" | "readyz", ..]) => Ok(plain_text(StatusCode::OK, "ok")),
            (None, ["api", _]) => Err(Status::unknown_resource().into()),
            (None, [_, group, _]) if discovery::group(catalogue, group).is_some() => {
                Err(Status::unknown_resource().into())
            }
            (None, _) => Err(page_not_found().into()),
        }
    }

    /// `/debug/faults`: GET returns the counts, POST takes an order first. Only for callers on the same machine.
    async fn answer_faults(
        &self,
        context: &Context<'_>,
        body: Incoming,
    ) -> Result<Response<Bytes>, Failure> {
        #[derive(Serialize)]
        struct Counts {
            #[serde(flatten)]
            faults: FaultCounts,
            reviews: ReviewTotals,
        }
        if !context.connection.peer.ip().to_canonical().is_loopback() {
            return Err(page_not_found().into());
        }
        if context.method == Method::POST {
            let order = serde_json::from_slice(&read_body(body).await?);
            let order = order.map_err(|fault| Status::bad_request(fault.to_string()))?;
            self.order(order)
                .map_err(|fault| Status::bad_request(fault.to_string()))?;
        } else if context.method != Method::GET {
            return Err(Status::method_not_allowed().into());
        }
        let counts = Counts {
            faults: self.fault_counts(),
            reviews: self.reviews.totals(),
        };
        Ok(json_line(StatusCode::OK, json::compact(&counts)))
    }
}

/// Reads the body of a write.
async fn read_body(body: Incoming) -> Result<Bytes, Status> {
    match Limited::new(body, BODY_LEN_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(fault) if fault.is::<http_body_util::LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_LEN_MAX}");
            Err(Status::new(413, "RequestEntityTooLarge", message))
        }
        Err(fault) => Err(Status::bad_request(fault.to_string())),
    }
}

/// A response whose body is in memory.
fn whole(response: Response<Bytes>) -> Response<Body> {
    response.map(|body| {
        Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync()
    })
}

fn json_response(code: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// JSON with a newline, as kube-apiserver ends it.
fn json_line(code: StatusCode, mut body: Vec<u8>) -> Response<Bytes> {
    body.push(b'\n');
    json_response(code, body)
}

/// Makes HTTP/1.1 close the connection after a response.
fn close_if<B>(is_closed: bool, response: &mut Response<B>) {
    if is_closed {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// The media type of a request's body.
fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let value = value.unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// A JSON body.
fn parse_json(content_type: &str, body: &[u8], kind: &str) -> Result<Value, Status> {
    if !matches!(content_type, "" | "application/json") {
        return Err(Status::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json",
        ));
    }
    let object = serde_json::from_slice(body).ok().filter(Value::is_object);
    object.ok_or_else(|| {
        let fault = match serde_json::from_slice::<Value>(body) {
            Ok(_) => "it is not an object".to_owned(),
            Err(fault) => fault.to_string(),
        };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {fault}"
        ))
    })
}
