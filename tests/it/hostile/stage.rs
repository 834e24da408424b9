//! A gateway in front of an embedded API server, with the helpers of the tests: requests, metrics, faults and a witness.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::config::{ServeSettings, UpstreamSource};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::hostile::witness::Witness;
use crate::support::PATIENCE;
pub(crate) use crate::support::auth::until;
use crate::support::gateway::Running;

/// Short, so that clients that never disconnect do not delay the end of a test.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// An embedded API server on a free port.
pub(crate) async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let objects = vec!["pods=20".parse().unwrap(), "nodes=2".parse().unwrap()];
    let options = Options {
        objects,
        object_len: 2_048,
        seed: Some(1),
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// The URI of an upstream without credentials.
pub(crate) fn upstream_uri(scheme: &str, authority: &str) -> http::Uri {
    format!("{scheme}://{authority}/").parse().unwrap()
}

/// The API server and the gateway of a test, and a client.
pub(crate) struct Stage {
    pub(crate) apiserver: Apiserver,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The address at which operators are served, if the settings have one.
    pub(crate) operators: Option<SocketAddr>,
    pub(crate) client: HttpClient,
    gateway: Running,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A stage whose gateway settings are adjusted by the test.
    pub(crate) async fn with(adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let apiserver = apiserver().await;
        let settings =
            ServeSettings::embedded(upstream_uri("http", &apiserver.address().to_string()));
        Self::start(apiserver, settings, adjust).await
    }

    /// A stage whose gateway has another upstream than the embedded API server, such as a relay.
    pub(crate) async fn with_upstream(apiserver: Apiserver, upstream: http::Uri) -> Self {
        Self::with_upstream_and(apiserver, upstream, |_| {}).await
    }

    /// Like [`Self::with_upstream`], with gateway settings that are adjusted by the test.
    pub(crate) async fn with_upstream_and(
        apiserver: Apiserver,
        upstream: http::Uri,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        Self::start(apiserver, ServeSettings::embedded(upstream), adjust).await
    }

    async fn start(
        apiserver: Apiserver,
        mut settings: ServeSettings,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        adjust(&mut settings);
        assert!(matches!(settings.upstream, UpstreamSource::Url(_)));
        let gateway = Running::start(settings, Drain::with_timeout(DRAIN_TIMEOUT)).await;
        Self {
            apiserver,
            address: gateway.address,
            admin: gateway.admin,
            operators: gateway.operators,
            client: Client::builder(TokioExecutor::new()).build_http(),
            gateway,
        }
    }

    /// Starts a witness.
    pub(crate) async fn witness(&self) -> Witness {
        Witness::start(self.address, self.apiserver.address()).await
    }

    /// Checks the witness, then shuts down.
    pub(crate) async fn check_and_shut_down(self, witness: Witness) {
        witness.check().await;
        self.shut_down().await;
    }

    pub(crate) fn begin_drain(&self) {
        self.gateway.begin_drain();
    }

    /// Drains the gateway, unless it is draining, and waits for its end.
    pub(crate) async fn shut_down(self) {
        self.gateway.ended().await;
    }

    /// Sends a request to the gateway and reads the whole response.
    pub(crate) async fn send(&self, method: &str, target: &str) -> Response<Bytes> {
        self.send_to(self.address, method, target).await
    }

    pub(crate) async fn get(&self, target: &str) -> Response<Bytes> {
        self.send("GET", target).await
    }

    /// Reads a page of the gateway's administration port.
    pub(crate) async fn admin(&self, target: &str) -> Response<Bytes> {
        self.send_to(self.admin, "GET", target).await
    }

    /// Like [`Self::send`], but sent to the API server directly.
    pub(crate) async fn send_to_apiserver(&self, method: &str, target: &str) -> Response<Bytes> {
        self.send_to(self.apiserver.address(), method, target).await
    }

    async fn send_to(&self, server: SocketAddr, method: &str, target: &str) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{server}{target}"))
            .body(Full::default())
            .unwrap();
        let response = tokio::time::timeout(PATIENCE, self.client.request(request));
        let (head, body) = response.await.unwrap().unwrap().into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await;
        Response::from_parts(head, body.unwrap().unwrap().to_bytes())
    }

    /// Creates an object that consists of a name at the API server.
    pub(crate) async fn create(&self, collection: &str, name: &str) {
        let object = serde_json::json!({"metadata": {"name": name}});
        let request = Request::post(format!("http://{}{collection}", self.apiserver.address()))
            .header("content-type", "application/json")
            .body(Full::from(object.to_string()))
            .unwrap();
        let created = self.client.request(request).await.unwrap();
        assert_eq!(created.status(), http::StatusCode::CREATED);
    }

    /// The sum of a metric's samples whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.admin("/metrics").await;
        let page = std::str::from_utf8(page.body()).unwrap();
        let samples = page.lines().filter(|line| {
            let named = line.strip_prefix(name);
            named.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Waits until a metric is at least `least`.
    pub(crate) async fn metric_reaches(&self, name: &str, labels: &[&str], least: f64) {
        until(name, async || self.metric(name, labels).await >= least).await;
    }

    /// Orders a fault of the API server for the next `count` requests for a resource.
    pub(crate) fn order(&self, fault: Fault, resource: &str, count: u32) {
        let order = FaultOrder {
            fault,
            verb: None,
            resource: Some(resource.to_owned()),
            count,
        };
        self.apiserver.order(order).unwrap();
    }
}

/// The Status in a response, whose code must be that of the response.
#[track_caller]
pub(crate) fn status(response: &Response<Bytes>) -> Value {
    let status: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["code"], response.status().as_u16(), "{status}");
    status
}
