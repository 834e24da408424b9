//! An API server with config maps, a client, and handlers that record their notifications.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::{Cached, EventHandler, ListWatch, SharedInformer};
use kube_fanout::upstream::client::{Client, ConnectSource};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::PATIENCE;

/// An embedded API server and a client for it.
pub(crate) struct Stage {
    pub(crate) server: Apiserver,
    pub(crate) client: Arc<Client>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = apiserver::start(listener, Options::default()).unwrap();
        let source = ConnectSource::url(&format!("http://{}/", server.address())).unwrap();
        Self {
            client: Arc::new(Client::connect(source).await.unwrap()),
            server,
        }
    }

    /// A new informer of all config maps.
    pub(crate) fn informer(&self) -> SharedInformer<ConfigMap> {
        SharedInformer::new(Arc::clone(&self.client), ListWatch::of_kind())
    }

    /// A stage whose server holds `count` config maps named `a0`, `a1`, …, each with state `0`.
    pub(crate) async fn with_objects(count: usize) -> Self {
        let stage = Self::set().await;
        for number in 0..count {
            stage.put(&format!("a{number}"), "0").await;
        }
        stage
    }

    /// Sets the state of a config map in the namespace `n`; creates the config map if it does not exist.
    pub(crate) async fn put(&self, name: &str, state: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"state": state}},
            "data": {"state": state},
        });
        let there = format!("/api/v1/namespaces/n/configmaps/{name}");
        let (status, _) = self.send(Method::PATCH, &there, Some(&object)).await;
        if status == StatusCode::NOT_FOUND {
            let path = "/api/v1/namespaces/n/configmaps";
            let (status, response) = self.send(Method::POST, path, Some(&object)).await;
            assert_eq!(status, StatusCode::CREATED, "{response}");
        }
    }

    pub(crate) async fn delete(&self, name: &str) {
        let there = format!("/api/v1/namespaces/n/configmaps/{name}");
        let (status, response) = self.send(Method::DELETE, &there, None).await;
        assert_eq!(status, StatusCode::OK, "{response}");
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let sort = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = body.map_or_else(Bytes::new, |value| value.to_string().into());
        let request = Request::builder().method(method).uri(path);
        let request = request.header(CONTENT_TYPE, sort).body(bytes).unwrap();
        let response = self.client.send(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }
}

/// Waits for a future that must complete within the timeout.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out waiting for {what}"),
    }
}

/// The notifications, one line each: `+a0 1 (initial)`, `a0 1>2`, `-a0 2`, and `-a0 2?` if that may not be the final state.
#[derive(Clone)]
pub(crate) struct Journal(Arc<watch::Sender<Vec<String>>>);

impl Journal {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    pub(crate) fn note(&self, line: String) {
        self.0.send_modify(|lines| lines.push(line));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.send_modify(Vec::clear);
    }

    /// Waits for as many lines as expected, and compares them.
    pub(crate) async fn tells(&self, expected: &[&str]) {
        let mut lines = self.0.subscribe();
        let enough = lines.wait_for(|lines| lines.len() >= expected.len());
        if timeout(PATIENCE, enough).await.is_err() {
            panic!("expected {expected:?}, got {:?}", self.lines());
        }
        assert_eq!(self.lines(), expected);
    }
}

pub(crate) fn state_of(object: &ConfigMap) -> &str {
    let state = object.data.as_ref().and_then(|data| data.get("state"));
    state.map_or("-", String::as_str)
}

impl EventHandler<ConfigMap> for Journal {
    fn on_add(&self, object: &Arc<Cached<ConfigMap>>, in_initial_list: bool) {
        let initial = if in_initial_list { " (initial)" } else { "" };
        let name = object.key().name();
        self.note(format!("+{name} {}{initial}", state_of(object)));
    }

    fn on_update(&self, old: &Arc<Cached<ConfigMap>>, new: &Arc<Cached<ConfigMap>>) {
        let recreated = if old.uid() == new.uid() {
            ""
        } else {
            " (another)"
        };
        let name = new.key().name();
        self.note(format!(
            "{name} {}>{}{recreated}",
            state_of(old),
            state_of(new)
        ));
    }

    fn on_delete(&self, object: &Arc<Cached<ConfigMap>>, final_state_known: bool) {
        let known = if final_state_known { "" } else { "?" };
        let name = object.key().name();
        self.note(format!("-{name} {}{known}", state_of(object)));
    }
}
