//! A custom resource that is gone for a moment and comes back with other names: clients list again, and see the new ones.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::support::PATIENCE;
use crate::support::auth::{read_to_end, until};
use crate::support::gateway::Running;
use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// What a relay in front of the API server changes.
#[derive(Clone, Default)]
struct Changes {
    /// Texts in lists and in discovery, and what replaces them.
    replaced: Vec<(&'static str, &'static str)>,
    /// Watches of widgets that are answered with 404.
    missing: u32,
}

type SharedChanges = Arc<Mutex<Changes>>;

async fn relay(upstream: SocketAddr) -> (HttpServer, SharedChanges) {
    let changes = SharedChanges::default();
    let (upstream, shared) = (Upstream::new(upstream), Arc::clone(&changes));
    let server = HttpServer::start(move |request| {
        let (upstream, shared) = (upstream.clone(), Arc::clone(&shared));
        async move { respond(&upstream, &shared, request).await }
    });
    (server.await, changes)
}

async fn respond(
    upstream: &Upstream,
    changes: &SharedChanges,
    mut request: Request<Incoming>,
) -> Response<RelayBody> {
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch="));
    if is_watch {
        let is_missing = request.uri().path() == WIDGETS && {
            let mut changes = changes.lock().unwrap();
            let is_missing = changes.missing > 0;
            changes.missing = changes.missing.saturating_sub(1);
            is_missing
        };
        return match is_missing {
            true => Response::builder()
                .status(StatusCode::NOT_FOUND)
                .header(CONTENT_TYPE, "application/json")
                .body(whole(
                    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}"#,
                ))
                .unwrap(),
            false => upstream.forward(request).await.map(BodyExt::boxed),
        };
    }
    request.headers_mut().remove(ACCEPT_ENCODING);
    let (mut head, body) = upstream.forward(request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let Ok(mut text) = String::from_utf8(body.to_vec()) else {
        return Response::from_parts(head, whole(body));
    };
    for (from, to) in &changes.lock().unwrap().replaced {
        text = text.replace(from, to);
    }
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, whole(text))
}

struct Stage {
    apiserver: Apiserver,
    changes: SharedChanges,
    gateway: Running,
    client: Client<HttpConnector, Empty<Bytes>>,
    _relay: HttpServer,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            extra_kinds: vec!["widgets.v1.example.com=Widget".parse().unwrap()],
            objects: vec!["widgets=3".parse().unwrap()],
            object_len: 200,
            ..Options::default()
        };
        let apiserver = apiserver::start(listener, options).unwrap();
        let (relay, changes) = relay(apiserver.address()).await;
        let upstream = format!("http://{}/", relay.address).parse().unwrap();
        let drain = Drain::with_timeout(std::time::Duration::from_millis(100));
        Self {
            gateway: Running::start(ServeSettings::embedded(upstream), drain).await,
            apiserver,
            changes,
            client: Client::builder(TokioExecutor::new()).build_http(),
            _relay: relay,
        }
    }

    async fn get(&self, target: &str) -> Incoming {
        let uri = format!("http://{}{target}", self.gateway.address).parse();
        let response = tokio::time::timeout(PATIENCE, self.client.get(uri.unwrap()));
        response.await.unwrap().unwrap().into_body()
    }

    async fn list(&self) -> Value {
        let list = self.get(WIDGETS).await.collect().await.unwrap().to_bytes();
        serde_json::from_slice(&list).unwrap()
    }

    /// Changes the definition; returns what a watch of the old one ends with.
    async fn redefine(&self, changes: Changes) -> String {
        let list = self.list().await;
        assert_eq!(list["kind"], "WidgetList");
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let target = format!("{WIDGETS}?watch=1&resourceVersion={version}");
        let watch = self.get(&target).await;
        let is_missing = changes.missing > 0;
        *self.changes.lock().unwrap() = changes;
        if is_missing {
            let order = FaultOrder {
                fault: Fault::EndWatches,
                verb: None,
                resource: Some("widgets".to_owned()),
                count: 1,
            };
            self.apiserver.order(order).unwrap();
        } else {
            // A request for an unknown resource has discovery read again.
            drop(self.get("/apis/example.com/v1/unknown").await);
        }
        read_to_end(watch).await
    }
}

#[tokio::test]
async fn a_resource_that_was_gone_and_has_another_kind_is_described_anew() {
    let stage = Stage::new().await;
    let changes = Changes {
        replaced: vec![
            ("\"WidgetList\"", "\"GadgetList\""),
            ("\"Widget\"", "\"Gadget\""),
        ],
        missing: 1,
    };
    let end = stage.redefine(changes).await;
    assert!(end.contains("\"code\":410"), "{end}");
    until("lists have the new kind", async || {
        stage.list().await["kind"] == "GadgetList"
    })
    .await;
    stage.gateway.ended().await;
}

#[tokio::test]
async fn a_resource_whose_lists_have_another_kind_is_described_anew() {
    let stage = Stage::new().await;
    let changes = Changes {
        replaced: vec![("\"WidgetList\"", "\"WidgetCollection\"")],
        missing: 0,
    };
    let end = stage.redefine(changes).await;
    assert!(end.contains("\"code\":410"), "{end}");
    until("lists have the new kind", async || {
        stage.list().await["kind"] == "WidgetCollection"
    })
    .await;
    stage.gateway.ended().await;
}
