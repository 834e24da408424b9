//! Clients of config maps over bare HTTP: they list, watch, resume at another server, and read a gateway's metrics.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::process::GatewayProcess;
use crate::support::PATIENCE;

pub(crate) const CONFIGMAPS: &str = "/api/v1/configmaps";

#[derive(Clone, Copy)]
pub(crate) enum HttpVersion {
    One,
    Two,
}

/// One request on a connection of its own; `None` if there is no response.
pub(crate) async fn connect_and_get(
    http: HttpVersion,
    server: SocketAddr,
    target: &str,
) -> Option<http::Response<Incoming>> {
    connect_and_get_as(http, server, target, "application/json").await
}

/// The same for a response of this media type.
pub(crate) async fn connect_and_get_as(
    http: HttpVersion,
    server: SocketAddr,
    target: &str,
    media_type: &str,
) -> Option<http::Response<Incoming>> {
    let io = TokioIo::new(TcpStream::connect(server).await.ok()?);
    let request = http::Request::get(format!("http://gateway{target}"))
        .header("host", "gateway")
        .header("accept", media_type)
        .body(Full::<Bytes>::default())
        .unwrap();
    match http {
        HttpVersion::One => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            sender.send_request(request).await.ok()
        }
        HttpVersion::Two => {
            let executor = TokioExecutor::new();
            let handshake = hyper::client::conn::http2::handshake(executor, io).await;
            let (mut sender, connection) = handshake.ok()?;
            tokio::spawn(connection);
            sender.send_request(request).await.ok()
        }
    }
}

pub(crate) async fn get(server: SocketAddr, target: &str) -> http::Response<Incoming> {
    let request = http::Request::get(target)
        .header("host", "gateway")
        .body(Full::default())
        .unwrap();
    send(server, request).await
}

pub(crate) async fn send(
    server: SocketAddr,
    request: http::Request<Full<Bytes>>,
) -> http::Response<Incoming> {
    let stream = TcpStream::connect(server).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

pub(crate) async fn bytes(server: SocketAddr, target: &str) -> Bytes {
    let body = get(server, target).await.into_body().collect().await;
    body.unwrap().to_bytes()
}

pub(crate) async fn text(server: SocketAddr, target: &str) -> String {
    String::from_utf8(bytes(server, target).await.to_vec()).unwrap()
}

/// The version of a list, and its objects.
pub(crate) async fn listed(server: SocketAddr) -> (u64, Vec<Value>) {
    let list: Value = serde_json::from_str(&text(server, CONFIGMAPS).await).unwrap();
    let items = list["items"].as_array().unwrap().clone();
    (version_of(&list), items)
}

pub(crate) fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().unwrap()
}

/// The sum of a metric's samples for config maps whose labels contain `label`.
pub(crate) async fn metric(gateway: &GatewayProcess, name: &str, label: &str) -> f64 {
    metric_of(gateway, "configmaps", name, label).await
}

/// The same for another resource.
pub(crate) async fn metric_of(
    gateway: &GatewayProcess,
    resource: &str,
    name: &str,
    label: &str,
) -> f64 {
    metric_at(gateway.admin, resource, name, label).await
}

/// The same of a gateway with this admin port.
pub(crate) async fn metric_at(admin: SocketAddr, resource: &str, name: &str, label: &str) -> f64 {
    let resource = format!("resource=\"{resource}\"");
    let page = text(admin, "/metrics").await;
    let samples = page
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(&resource) && line.contains(label));
    let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum()
}

/// A watch of config maps, and the events that it has received, as they came.
pub(crate) struct Watch {
    http: HttpVersion,
    body: Incoming,
    rest: Vec<u8>,
    pub(crate) version: u64,
    pub(crate) events: Vec<String>,
}

impl Watch {
    pub(crate) async fn start(server: SocketAddr, version: u64) -> Self {
        Self::start_with(HttpVersion::One, server, version).await
    }

    pub(crate) async fn start_with(http: HttpVersion, server: SocketAddr, version: u64) -> Self {
        let target = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
        let response = connect_and_get(http, server, &target).await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            http,
            body: response.into_body(),
            rest: Vec::new(),
            version,
            events: Vec::new(),
        }
    }

    /// Continues at another server.
    pub(crate) async fn resume(self, server: SocketAddr) -> Self {
        let next = Self::start_with(self.http, server, self.version).await;
        Self {
            events: self.events,
            ..next
        }
    }

    /// Reads what comes next; false at the end of the stream.
    pub(crate) async fn read(&mut self) -> bool {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
        let Some(Ok(frame)) = frame.unwrap() else {
            return false;
        };
        self.rest
            .extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let rest = self.rest.split_off(end + 1);
            let line = std::mem::replace(&mut self.rest, rest);
            let event: Value = serde_json::from_slice(&line).unwrap();
            assert_ne!(event["type"], "ERROR", "{event}");
            let version = version_of(&event["object"]);
            assert!(version > self.version, "{version} after {}", self.version);
            self.version = version;
            self.events.push(String::from_utf8(line).unwrap());
        }
        true
    }

    pub(crate) async fn read_events(&mut self, count: usize) {
        let enough = self.events.len() + count;
        while self.events.len() < enough {
            assert!(self.read().await, "the watch ended");
        }
    }

    /// Reads until the version, or the stream's end.
    pub(crate) async fn read_to(&mut self, version: u64) {
        while self.version < version && self.read().await {}
    }
}

/// Creates the namespace whose uid identifies a cluster.
pub(crate) async fn create_kube_system(server: SocketAddr) {
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"}}"#;
    let request = http::Request::post("/api/v1/namespaces")
        .header("host", "gateway")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(namespace.as_bytes())))
        .unwrap();
    assert_eq!(send(server, request).await.status(), 201);
}

/// The sum of a metric's samples that contain these labels.
pub(crate) async fn metric_sum(admin: SocketAddr, name: &str, labels: &str) -> usize {
    let page = text(admin, "/metrics").await;
    let samples = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
    });
    let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    values.sum()
}

/// Puts serving rules in force for ten minutes.
pub(crate) async fn put_rules(admin: SocketAddr, rules: &str) {
    let request = http::Request::put("/serving?for=10m")
        .header("host", "localhost")
        .body(Full::new(Bytes::copy_from_slice(rules.as_bytes())))
        .unwrap();
    assert_eq!(send(admin, request).await.status(), 200);
}
