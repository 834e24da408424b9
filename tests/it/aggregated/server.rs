//! An aggregated API server in front of the embedded one: it serves a group from there, and filters it by caller.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::stage::CALLERS;
use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What the server does at the moment.
#[derive(Default)]
pub(super) struct ServerMode {
    /// Whether it serves its group, and filters it.
    pub(super) is_filtering: AtomicBool,
    /// Whether watches of APIServices are accepted and bring nothing.
    pub(super) is_silent: AtomicBool,
    /// Whether APIServices cannot be read now.
    pub(super) is_unavailable: AtomicBool,
}

/// A running server. Dropping it closes its connections.
pub(super) struct FilteringServer {
    pub(super) address: SocketAddr,
    pub(super) mode: Arc<ServerMode>,
    _server: HttpServer,
}

impl FilteringServer {
    pub(super) async fn start(upstream: SocketAddr) -> Self {
        let mode = Arc::<ServerMode>::default();
        let (upstream, current) = (Upstream::new(upstream), Arc::clone(&mode));
        let server = HttpServer::start(move |request| {
            let (upstream, mode) = (upstream.clone(), Arc::clone(&current));
            async move { respond(&upstream, &mode, request).await }
        })
        .await;
        Self {
            address: server.address,
            mode,
            _server: server,
        }
    }
}

/// The response to a request for APIServices, if it is not the API server's.
fn api_services(mode: &ServerMode, request: &Request<Incoming>) -> Option<Response<RelayBody>> {
    if !request.uri().path().ends_with("/apiservices") {
        return None;
    }
    let status = |code: StatusCode| {
        answer(
            code,
            &json!({"kind": "Status", "apiVersion": "v1", "code": code.as_u16()}),
        )
    };
    if mode.is_unavailable.load(Ordering::Relaxed) {
        return Some(status(StatusCode::SERVICE_UNAVAILABLE));
    }
    let query = request.uri().query().unwrap_or_default();
    if !mode.is_silent.load(Ordering::Relaxed) || !query.contains("watch=") {
        return None;
    }
    if query.contains("sendInitialEvents") {
        return Some(status(StatusCode::UNPROCESSABLE_ENTITY));
    }
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move { sender.closed().await });
    let response = Response::builder().header(CONTENT_TYPE, "application/json");
    Some(response.body(Events(receiver).boxed()).unwrap())
}

async fn respond(
    upstream: &Upstream,
    mode: &ServerMode,
    mut request: Request<Incoming>,
) -> Response<RelayBody> {
    if let Some(response) = api_services(mode, &request) {
        return response;
    }
    let is_own = request
        .uri()
        .path()
        .starts_with("/apis/projectcalico.org/v3/");
    if !is_own || request.method() != http::Method::GET {
        return upstream.forward(request).await.map(BodyExt::boxed);
    }
    if mode.is_filtering.load(Ordering::Relaxed) {
        let Some(selector) = selector_of(&request) else {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                "message": "no tier is shown to this caller", "code": 403});
            return answer(StatusCode::FORBIDDEN, &status);
        };
        let name = request.uri().path().split("/networkpolicies/").nth(1);
        if let Some(name) = name.map(str::to_owned) {
            return named(upstream, request, &name, selector).await;
        }
        add_selector(&mut request, selector);
    }
    let accept = request.headers().get(ACCEPT).cloned();
    if accept.is_none_or(|accept| accept != TABLE) {
        return upstream.forward(request).await.map(BodyExt::boxed);
    }
    request
        .headers_mut()
        .insert(ACCEPT, HeaderValue::from_static("application/json"));
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=1"));
    tables(upstream.forward(request).await, is_watch).await
}

/// What the caller may see, as a label selector; `None` if nothing.
fn selector_of<B>(request: &Request<B>) -> Option<&'static str> {
    let token = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let token = token.strip_prefix("Bearer ")?;
    let caller = CALLERS.iter().find(|(known, _)| *known == token)?;
    caller.1
}

fn add_selector<B>(request: &mut Request<B>, selector: &str) {
    if selector.is_empty() {
        return;
    }
    let (path, query) = (
        request.uri().path(),
        request.uri().query().unwrap_or_default(),
    );
    let mut pairs: Vec<String> = query.split('&').map(str::to_owned).collect();
    let own = pairs
        .iter()
        .position(|pair| pair.starts_with("labelSelector="));
    match own {
        Some(at) => pairs[at] = format!("{}%2C{selector}", pairs[at]),
        None => pairs.push(format!("labelSelector={selector}")),
    }
    let uri = format!("{path}?{}", pairs.join("&"));
    *request.uri_mut() = uri
        .trim_end_matches('&')
        .replace("?&", "?")
        .parse::<Uri>()
        .unwrap();
}

/// One object, by its name, if the caller sees it.
async fn named(
    upstream: &Upstream,
    mut request: Request<Incoming>,
    name: &str,
    selector: &str,
) -> Response<RelayBody> {
    let path = request.uri().path();
    let collection = path.strip_suffix(&format!("/{name}")).unwrap();
    let uri = format!("{collection}?fieldSelector=metadata.name%3D{name}&labelSelector={selector}");
    *request.uri_mut() = uri.parse().unwrap();
    request.headers_mut().remove(ACCEPT);
    let list = upstream.forward(request).await.into_body().collect().await;
    let list: Value = serde_json::from_slice(&list.unwrap().to_bytes()).unwrap();
    match list["items"].as_array().unwrap().first() {
        Some(object) => answer(StatusCode::OK, object),
        None => answer(
            StatusCode::NOT_FOUND,
            &json!({"kind": "Status", "code": 404}),
        ),
    }
}

fn answer(code: StatusCode, body: &Value) -> Response<RelayBody> {
    let response = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    response.body(whole(body.to_string())).unwrap()
}

/// The same list, or the same events, as Tables.
async fn tables(response: Response<Incoming>, is_watch: bool) -> Response<RelayBody> {
    let (mut head, mut body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    if !is_watch || head.status != StatusCode::OK {
        let bytes = body.collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        return Response::from_parts(head, whole(table(&list).to_string()));
    }
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, hyper::Error>>(16);
    tokio::spawn(async move {
        let mut text = String::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            while let Some((line, rest)) = text.split_once('\n') {
                let mut event: Value = serde_json::from_str(line).unwrap();
                event["object"] = table(&event["object"]);
                let line = Bytes::from(format!("{event}\n"));
                text = rest.to_owned();
                if sender.send(Ok(Frame::data(line))).await.is_err() {
                    return;
                }
            }
        }
    });
    Response::from_parts(head, Events(receiver).boxed())
}

/// The events of a watch.
struct Events(Receiver<Result<Frame<Bytes>, hyper::Error>>);

impl Body for Events {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0.poll_recv(context)
    }
}

fn table(object: &Value) -> Value {
    let rows = match object["items"].as_array() {
        Some(items) => items.clone(),
        None if object["kind"] == "Status" => return object.clone(),
        None => vec![object.clone()],
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|object| json!({"cells": [object["metadata"]["name"]], "object": object}))
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "columnDefinitions": [{"name": "Name", "type": "string"}], "rows": rows})
}
