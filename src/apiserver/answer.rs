//! Answers to everything but lists and watches: reads of one object, writes, discovery. Knows HTTP's messages, not its
//! connections.

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
use super::form::{AcceptHeader, ResultShape, in_form};
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
use crate::view::selector::{FieldSelector, LabelSelector, Selector};
use options::{delete_options, dry_run};

/// What every answer's body is.
pub(super) type ApiBody = UnsyncBoxBody<Bytes, io::Error>;

/// The API server's own bound on a written body.
const BODY_LEN_MAX: usize = 3 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What answers need to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerContext<'a> {
    pub(super) store: &'a Store,
    pub(super) catalogue: &'a Catalogue,
    /// `host:port` for discovery.
    pub(super) address: SocketAddr,
}

/// A write or a read of one object, its body read.
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
        let wish = match AcceptHeader::of(&head.headers).wish() {
            Ok(wish) => wish,
            Err(refusal) => return refused(&refusal),
        };
        let body = match collected(body).await {
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
            let asked = ObjectRequest {
                verb,
                target,
                query,
                content_type: content_type(&head.headers),
                body,
            };
            nesting::with_stack(depth, || self.resource(asked))
        });
        let shape = if verb == ResourceVerb::DeleteCollection {
            ResultShape::List
        } else {
            ResultShape::Object
        };
        let kind = self.catalogue.kind(kind_index);
        // What was written stays written, whether or not it can be shown.
        let outcome = outcome.and_then(|bytes| in_form(wish, shape, kind, bytes));
        match outcome {
            Ok(bytes) if verb == ResourceVerb::Create => json(StatusCode::CREATED, &bytes),
            Ok(bytes) => json(StatusCode::OK, &bytes),
            Err(refusal) => refused(&refusal),
        }
    }

    fn resource(&self, mut asked: ObjectRequest<'_>) -> Result<Bytes, Status> {
        let kind = self.catalogue.kind(asked.target.kind_index);
        match asked.verb {
            ResourceVerb::Get => self.get(&asked),
            ResourceVerb::Create => {
                let object = written(kind, &asked)?;
                self.store
                    .write(|storage, stamp| storage.create(&asked.target, object, stamp))
            }
            ResourceVerb::Update => {
                let object = written(kind, &asked)?;
                self.store
                    .write(|storage, _| storage.update(&asked.target, object))
            }
            ResourceVerb::Patch => {
                let patch = Patch::decode(kind, asked.content_type, &asked.body)?;
                self.store
                    .write(|storage, _| storage.patch(&asked.target, &patch))
            }
            ResourceVerb::Delete => {
                let (preconditions, mode) = delete_options(&asked.body, asked.target.mode)?;
                asked.target.mode = mode;
                self.store
                    .write(|storage, stamp| storage.delete(&asked.target, &preconditions, stamp))
            }
            ResourceVerb::DeleteCollection => {
                let (_, mode) = delete_options(&asked.body, asked.target.mode)?;
                asked.target.mode = mode;
                self.delete_collection(&asked)
            }
            ResourceVerb::List | ResourceVerb::Watch => Err(Status::method_not_allowed()),
        }
    }

    /// Reads ask for a version at most to be new enough; memory always is, or the version does not exist yet.
    fn get(&self, asked: &ObjectRequest<'_>) -> Result<Bytes, Status> {
        let version = asked.query.first("resourceVersion");
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            version.parse::<ResourceVersion>().map_err(|fault| {
                Status::untyped(format!(
                    "resourceVersion: Invalid value: {version:?}: {fault}"
                ))
            })?;
        }
        self.store
            .object(asked.target.kind_index, &asked.target.key)
    }

    /// Deletes what a list with the same selectors would show.
    fn delete_collection(&self, asked: &ObjectRequest<'_>) -> Result<Bytes, Status> {
        let kind = self.catalogue.kind(asked.target.kind_index);
        let fields = FieldTable::of(&kind.resource.gvr);
        let text = |name| asked.query.first(name).unwrap_or_default();
        let field_selector = text("fieldSelector");
        if let Some(refusal) = unknown_label(kind, field_selector) {
            return Err(refusal);
        }
        let bad = |fault: &dyn std::fmt::Display| Status::bad_request(fault.to_string());
        let selector = Selector {
            // The target's own namespace is the storage's to look at.
            namespace: None,
            labels: LabelSelector::parse(text("labelSelector")).map_err(|fault| bad(&fault))?,
            fields: FieldSelector::parse(field_selector, fields).map_err(|fault| bad(&fault))?,
            shard: None,
        };
        let chosen = |bytes: &Bytes| {
            selector.is_everything()
                || object(bytes, fields).is_ok_and(|object| selector.matches(&object))
        };
        self.store.delete_collection(&asked.target, &chosen)
    }

    fn document(&self, route: &Route, headers: &HeaderMap) -> Response<ApiBody> {
        let aggregated = wants_aggregated(headers);
        match route {
            Route::CoreVersions if aggregated => {
                discovered(discovery::aggregated_core(self.catalogue))
            }
            Route::Groups if aggregated => discovered(discovery::aggregated_groups(self.catalogue)),
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
            Route::Version => whole(StatusCode::OK, JSON, discovery::version()),
            Route::Health => nosniff(whole(StatusCode::OK, TEXT, Bytes::from_static(b"ok"))),
            Route::Faults | Route::Review(_) | Route::Resource { .. } => page_not_found(),
        }
    }
}

/// The answer to a request that leads nowhere.
pub(super) fn no_route(why: &RouteError) -> Response<ApiBody> {
    match why {
        RouteError::Page => page_not_found(),
        RouteError::Refused(refusal) => refused(refusal),
    }
}

/// A `Status` as an answer.
pub(super) fn refused(refusal: &Status) -> Response<ApiBody> {
    whole_body(refusal.to_response())
}

/// Compact JSON and the newline behind it.
pub(super) fn json(code: StatusCode, document: &Bytes) -> Response<ApiBody> {
    whole(code, JSON, [document, b"\n".as_slice()].concat().into())
}

/// Puts on what every answer carries; an audit id is echoed, else made.
pub(super) fn stamped<B>(mut response: Response<B>, audit_id: HeaderValue) -> Response<B> {
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

/// A body in one piece, of a bounded length.
///
/// # Errors
/// 413 for a longer one, 400 for one that breaks off.
pub(super) async fn collected<B>(body: B) -> Result<Bytes, Status>
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

fn written(kind: &ServedKind, asked: &ObjectRequest<'_>) -> Result<serde_json::Value, Status> {
    match asked.content_type {
        "application/json" | "" => body::decode(kind, &asked.body),
        _ => Err(unknown_format()),
    }
}

/// 415 for a body that is not JSON.
pub(super) fn unknown_format() -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json",
    )
}

pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    accept_elements(headers).any(|element| {
        let has = |wanted: &str| element.split(';').any(|part| part.trim() == wanted);
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

fn discovered(document: Bytes) -> Response<ApiBody> {
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

fn whole(code: StatusCode, content_type: HeaderValue, body: Bytes) -> Response<ApiBody> {
    let mut response = whole_body(Response::new(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A body that is in memory.
pub(super) fn whole_body(response: Response<Bytes>) -> Response<ApiBody> {
    response.map(|body| UnsyncBoxBody::new(Full::new(body).map_err(|never| match never {})))
}
