//! Answers all requests but lists, watches and reviews: reads of one object, writes, discovery. Independent of connections.

mod options;

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;

use super::caches::object;
use super::form::{AcceptHeader, ResultShape, in_requested_form};
use super::kinds::{Catalogue, ServedKind};
use super::patch::Patch;
use super::refusal::bad_parameters;
use super::request_body::{collect_body, content_type, unknown_format};
use super::route::Route;
use super::storage::WriteTarget;
use super::store::Store;
use super::{body, discovery, nesting, response};
use crate::protocol::request::{Query, Verb};
use crate::protocol::status::{PlainText, Status};
use crate::resource::{FieldTable, ResourceVersion};
use crate::selector::{FieldSelector, LabelSelector, Selector};
use options::{delete_options, dry_run};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);

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
    verb: Verb,
    target: WriteTarget,
    query: &'a Query,
    content_type: &'a str,
    body: Bytes,
}

impl AnswerContext<'_> {
    /// Answers one request that is neither a list nor a watch.
    pub(super) async fn answer<B>(&self, route: Route, request: Request<B>) -> Response<Bytes>
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
                return Status::method_not_allowed().to_response();
            }
            return self.document(&route, &head.headers);
        };
        let choice = match AcceptHeader::of(&head.headers).choice() {
            Ok(choice) => choice,
            Err(refusal) => return refusal.to_response(),
        };
        let body = match collect_body(body).await {
            Ok(body) => body,
            Err(refusal) => return refusal.to_response(),
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
        let shape = if verb == Verb::DeleteCollection {
            ResultShape::List
        } else {
            ResultShape::Object
        };
        let kind = self.catalogue.kind(kind_index);
        // The write is kept even if its result cannot be converted.
        let outcome = outcome.and_then(|bytes| in_requested_form(choice, shape, kind, bytes));
        match outcome {
            Ok(bytes) if verb == Verb::Create => response::json(StatusCode::CREATED, &bytes),
            Ok(bytes) => response::json(StatusCode::OK, &bytes),
            Err(refusal) => refusal.to_response(),
        }
    }

    fn resource(&self, mut request: ObjectRequest<'_>) -> Result<Bytes, Status> {
        let kind = self.catalogue.kind(request.target.kind_index);
        match request.verb {
            Verb::Get => self.get(&request),
            Verb::Create => {
                let object = written_object(kind, &request)?;
                self.store
                    .write(|storage, stamp| storage.create(&request.target, object, stamp))
            }
            Verb::Update => {
                let object = written_object(kind, &request)?;
                self.store
                    .write(|storage, _| storage.update(&request.target, object))
            }
            Verb::Patch => {
                let patch = Patch::decode(kind, request.content_type, &request.body)?;
                self.store
                    .write(|storage, _| storage.patch(&request.target, &patch))
            }
            Verb::Delete => {
                let (preconditions, mode) = delete_options(&request.body, request.target.mode)?;
                request.target.mode = mode;
                self.store
                    .write(|storage, stamp| storage.delete(&request.target, &preconditions, stamp))
            }
            Verb::DeleteCollection => {
                let (_, mode) = delete_options(&request.body, request.target.mode)?;
                request.target.mode = mode;
                self.delete_collection(&request)
            }
            Verb::List | Verb::Watch | Verb::Other => Err(Status::method_not_allowed()),
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
        let selector = Selector {
            // The storage itself restricts the deletion to the target's namespace.
            namespace: None,
            labels: LabelSelector::parse(text("labelSelector")).ok_or_else(bad_parameters)?,
            fields: FieldSelector::parse(text("fieldSelector"), fields)
                .ok_or_else(bad_parameters)?,
            shard: None,
        };
        let is_selected = |bytes: &Bytes| {
            selector.is_everything()
                || object(bytes, fields).is_ok_and(|object| selector.matches(&object))
        };
        self.store.delete_collection(&request.target, &is_selected)
    }

    /// Answers discovery, the version and health checks.
    fn document(&self, route: &Route, headers: &HeaderMap) -> Response<Bytes> {
        let aggregated = wants_aggregated(headers);
        match route {
            Route::CoreVersions if aggregated => {
                discovery_response(discovery::aggregated_core(self.catalogue))
            }
            Route::Groups if aggregated => {
                discovery_response(discovery::aggregated_groups(self.catalogue))
            }
            Route::CoreVersions => response::json(
                StatusCode::OK,
                &discovery::core_versions(&self.address.to_string()),
            ),
            Route::Groups => response::json(
                StatusCode::OK,
                &discovery::groups(self.catalogue, &self.address.to_string()),
            ),
            Route::Group(name) => match discovery::group(self.catalogue, name) {
                Some(document) => response::json(StatusCode::OK, &document),
                None => PlainText::not_found().to_response(),
            },
            Route::Resources(group, version) => {
                match discovery::resources(self.catalogue, group, version) {
                    Some(document) => response::json(StatusCode::OK, &document),
                    None if discovery::group(self.catalogue, group).is_some() => {
                        Status::unknown_resource().to_response()
                    }
                    None => PlainText::not_found().to_response(),
                }
            }
            Route::Version => response::whole(StatusCode::OK, response::JSON, discovery::version()),
            Route::Health => nosniff(response::whole(
                StatusCode::OK,
                TEXT,
                Bytes::from_static(b"ok"),
            )),
            Route::Faults | Route::Review(_) | Route::Resource { .. } => {
                PlainText::not_found().to_response()
            }
        }
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

fn discovery_response(document: Bytes) -> Response<Bytes> {
    let mut response = response::json(StatusCode::OK, &document);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, AGGREGATED);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn nosniff(mut response: Response<Bytes>) -> Response<Bytes> {
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
