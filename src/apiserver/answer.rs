//! Answers all requests but lists, watches and reviews: reads of one object, writes, discovery. Independent of connections.

mod options;

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};

use super::caches::object;
use super::form::{AcceptHeader, ResultShape, in_requested_form};
use super::kinds::{Catalogue, ServedKind};
use super::patch::Patch;
use super::reads::unknown_label;
use super::route::{ResourceVerb, Route, RouteError};
use super::storage::WriteTarget;
use super::store::Store;
use super::{body, discovery, nesting};
use crate::protocol::request::Query;
use crate::protocol::status::{NO_CACHE, PlainText, Status};
use crate::resource::{FieldTable, ResourceVersion};
use crate::selector::{FieldSelector, LabelSelector, Selector};
use options::{delete_options, dry_run};

/// The body of every response that is made here.
pub(super) type ApiBody = UnsyncBoxBody<Bytes, io::Error>;

/// kube-apiserver's limit on the body of a write.
const BODY_LEN_MAX: usize = 3 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The parts of the server that responses are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerContext<'a> {
    pub(super) store: &'a Store,
    pub(super) catalogue: &'a Catalogue,
    /// The server's own address, which discovery returns.
    pub(super) address: SocketAddr,
}

/// A read of one object, or a write, with its whole body.
struct ObjectRequest<'a> {
    verb: ResourceVerb,
    target: WriteTarget,
    query: &'a Query,
    content_type: &'a str,
    body: Bytes,
}

impl AnswerContext<'_> {
    /// Answers one request that is neither a list nor a watch.
    pub(super) async fn answer<B>(&self, route: Route, request: Request<B>) -> Response<ApiBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let query = &Query::parse(head.uri.query());
        let Route::Resource {
            verb,
            kind_index,
            key,
            part,
        } = route
        else {
            if head.method != http::Method::GET && head.method != http::Method::HEAD {
                return refused(&Status::method_not_allowed());
            }
            return self.document(&route, &head.headers);
        };
        let choice = match AcceptHeader::of(&head.headers).choice() {
            Ok(choice) => choice,
            Err(refusal) => return refused(&refusal),
        };
        let body = match collect_body(body).await {
            Ok(body) => body,
            Err(refusal) => return refused(&refusal),
        };
        let outcome = dry_run(verb, query).and_then(|mode| {
            let target = WriteTarget {
                kind_index,
                key,
                part,
                mode,
            };
            let depth = nesting::text_depth(&body);
            let request = ObjectRequest {
                verb,
                target,
                query,
                content_type: content_type(&head.headers),
                body,
            };
            nesting::with_stack(depth, || self.resource(request))
        });
        let shape = if verb == ResourceVerb::DeleteCollection {
            ResultShape::List
        } else {
            ResultShape::Object
        };
        let kind = self.catalogue.kind(kind_index);
        // The write is kept even if its result cannot be converted.
        let outcome = outcome.and_then(|bytes| in_requested_form(choice, shape, kind, bytes));
        match outcome {
            Ok(bytes) if verb == ResourceVerb::Create => json(StatusCode::CREATED, &bytes),
            Ok(bytes) => json(StatusCode::OK, &bytes),
            Err(refusal) => refused(&refusal),
        }
    }

    fn resource(&self, mut request: ObjectRequest<'_>) -> Result<Bytes, Status> {
        let kind = self.catalogue.kind(request.target.kind_index);
        match request.verb {
            ResourceVerb::Get => self.get(&request),
            ResourceVerb::Create => {
                let object = written_object(kind, &request)?;
                self.store
                    .write(|storage, stamp| storage.create(&request.target, object, stamp))
            }
            ResourceVerb::Update => {
                let object = written_object(kind, &request)?;
                self.store
                    .write(|storage, _| storage.update(&request.target, object))
            }
            ResourceVerb::Patch => {
                let patch = Patch::decode(kind, request.content_type, &request.body)?;
                self.store
                    .write(|storage, _| storage.patch(&request.target, &patch))
            }
            ResourceVerb::Delete => {
                let (preconditions, mode) = delete_options(&request.body, request.target.mode)?;
                request.target.mode = mode;
                self.store
                    .write(|storage, stamp| storage.delete(&request.target, &preconditions, stamp))
            }
            ResourceVerb::DeleteCollection => {
                let (_, mode) = delete_options(&request.body, request.target.mode)?;
                request.target.mode = mode;
                self.delete_collection(&request)
            }
            ResourceVerb::List | ResourceVerb::Watch => Err(Status::method_not_allowed()),
        }
    }

    /// Reads one object. A requested resource version is only checked for syntax: the store always has the newest state, and a newer
    /// version does not exist yet.
    fn get(&self, request: &ObjectRequest<'_>) -> Result<Bytes, Status> {
        let version = request.query.first("resourceVersion");
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            version.parse::<ResourceVersion>().map_err(|fault| {
                Status::untyped(format!(
                    "resourceVersion: Invalid value: {version:?}: {fault}"
                ))
            })?;
        }
        self.store
            .object(request.target.kind_index, &request.target.key)
    }

    /// Deletes the objects that a list with the same selectors would return.
    fn delete_collection(&self, request: &ObjectRequest<'_>) -> Result<Bytes, Status> {
        let kind = self.catalogue.kind(request.target.kind_index);
        let fields = FieldTable::of(&kind.resource.gvr);
        let text = |name| request.query.first(name).unwrap_or_default();
        let field_selector = text("fieldSelector");
        if let Some(refusal) = unknown_label(kind, field_selector) {
            return Err(refusal);
        }
        let bad_request = |fault: &dyn std::fmt::Display| Status::bad_request(fault.to_string());
        let selector = Selector {
            // The storage itself restricts the deletion to the target's namespace.
            namespace: None,
            labels: LabelSelector::parse(text("labelSelector"))
                .map_err(|fault| bad_request(&fault))?,
            fields: FieldSelector::parse(field_selector, fields)
                .map_err(|fault| bad_request(&fault))?,
            shard: None,
        };
        let is_selected = |bytes: &Bytes| {
            selector.is_everything()
                || object(bytes, fields).is_ok_and(|object| selector.matches(&object))
        };
        self.store.delete_collection(&request.target, &is_selected)
    }

    /// Answers discovery, the version and health checks.
    fn document(&self, route: &Route, headers: &HeaderMap) -> Response<ApiBody> {
        let aggregated = wants_aggregated(headers);
        match route {
            Route::CoreVersions if aggregated => {
                discovery_response(discovery::aggregated_core(self.catalogue))
            }
            Route::Groups if aggregated => {
                discovery_response(discovery::aggregated_groups(self.catalogue))
            }
            Route::CoreVersions => json(
                StatusCode::OK,
                &discovery::core_versions(&self.address.to_string()),
            ),
            Route::Groups => json(
                StatusCode::OK,
                &discovery::groups(self.catalogue, &self.address.to_string()),
            ),
            Route::Group(name) => match discovery::group(self.catalogue, name) {
                Some(document) => json(StatusCode::OK, &document),
                None => page_not_found(),
            },
            Route::Resources(group, version) => {
                match discovery::resources(self.catalogue, group, version) {
                    Some(document) => json(StatusCode::OK, &document),
                    None if discovery::group(self.catalogue, group).is_some() => {
                        refused(&Status::unknown_resource())
                    }
                    None => page_not_found(),
                }
            }
            Route::Version => respond(StatusCode::OK, JSON, discovery::version()),
            Route::Health => nosniff(respond(StatusCode::OK, TEXT, Bytes::from_static(b"ok"))),
            Route::Faults | Route::Review(_) | Route::Resource { .. } => page_not_found(),
        }
    }
}

/// The response to a request without a route.
pub(super) fn no_route(error: &RouteError) -> Response<ApiBody> {
    match error {
        RouteError::Page => page_not_found(),
        RouteError::Refused(refusal) => refused(refusal),
    }
}

/// The response with a `Status`.
pub(super) fn refused(refusal: &Status) -> Response<ApiBody> {
    whole_body(refusal.to_response())
}

/// A response with compact JSON and a newline.
pub(super) fn json(code: StatusCode, document: &Bytes) -> Response<ApiBody> {
    respond(code, JSON, [document, b"\n".as_slice()].concat().into())
}

/// Adds the headers that every response carries: the audit id, and `Cache-Control` unless it is set already.
pub(super) fn with_common_headers<B>(
    mut response: Response<B>,
    audit_id: HeaderValue,
) -> Response<B> {
    response.headers_mut().insert(AUDIT_ID, audit_id);
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(NO_CACHE);
    response
}

/// The audit id that a client sent.
pub(super) fn audit_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(AUDIT_ID).cloned()
}

/// Reads a whole body, up to [`BODY_LEN_MAX`].
///
/// # Errors
/// 413 for a longer body, 400 if reading it fails.
pub(super) async fn collect_body<B>(body: B) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LEN_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(fault) if fault.is::<http_body_util::LengthLimitError>() => Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {BODY_LEN_MAX}"),
        )),
        Err(fault) => Err(Status::bad_request(fault.to_string())),
    }
}

/// The object in the body of a creation or an update.
fn written_object(
    kind: &ServedKind,
    request: &ObjectRequest<'_>,
) -> Result<serde_json::Value, Status> {
    match request.content_type {
        "application/json" | "" => body::decode(kind, &request.body),
        _ => Err(unknown_format()),
    }
}

/// 415 for a body whose content type is not JSON.
pub(super) fn unknown_format() -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json",
    )
}

/// The media type of a request's body, without parameters; empty if there is none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    accept_elements(headers).any(|element| {
        let has = |expected: &str| element.split(';').any(|part| part.trim() == expected);
        has("application/json")
            && has("as=APIGroupDiscoveryList")
            && has("v=v2")
            && has("g=apidiscovery.k8s.io")
    })
}

fn accept_elements(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

fn discovery_response(document: Bytes) -> Response<ApiBody> {
    let mut response = json(StatusCode::OK, &document);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, AGGREGATED);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn page_not_found() -> Response<ApiBody> {
    whole_body(PlainText::not_found().to_response())
}

fn nosniff(mut response: Response<ApiBody>) -> Response<ApiBody> {
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn respond(code: StatusCode, content_type: HeaderValue, body: Bytes) -> Response<ApiBody> {
    let mut response = whole_body(Response::new(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Boxes the response's body, which is in memory.
pub(super) fn whole_body(response: Response<Bytes>) -> Response<ApiBody> {
    response.map(|body| UnsyncBoxBody::new(Full::new(body).map_err(|never| match never {})))
}
