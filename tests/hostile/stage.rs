//! A gateway between the embedded API server and whoever misbehaves, with a witness at its side.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::apiserver::faults::{Fault, FaultOrder};
use kube_fanout::apiserver::{self, Apiserver, Options};
use kube_fanout::config::{ServeSettings, UpstreamSource};
use kube_fanout::shutdown::Drain;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::gateway::Running;
use crate::witness::Witness;

/// So long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Clients that never go away must not hold up the end of a test.
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

/// An address as an upstream without credentials.
pub(crate) fn upstream(scheme: &str, authority: &str) -> http::Uri {
    format!("{scheme}://{authority}/").parse().unwrap()
}

/// Everything that runs in a test.
pub(crate) struct Stage {
    pub(crate) apiserver: Apiserver,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Where operators are served, if the settings have a port for them.
    pub(crate) operators: Option<SocketAddr>,
    pub(crate) client: HttpClient,
    gateway: Running,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A stage whose gateway has other settings than usual.
    pub(crate) async fn with(adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let apiserver = apiserver().await;
        let settings = ServeSettings::embedded(upstream("http", &apiserver.address().to_string()));
        Self::before(apiserver, settings, adjust).await
    }

    /// A stage whose gateway asks somebody else than the embedded API server itself.
    pub(crate) async fn behind(apiserver: Apiserver, upstream: http::Uri) -> Self {
        Self::behind_with(apiserver, upstream, |_| {}).await
    }

    /// The same with other settings than usual.
    pub(crate) async fn behind_with(
        apiserver: Apiserver,
        upstream: http::Uri,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        Self::before(apiserver, ServeSettings::embedded(upstream), adjust).await
    }

    async fn before(
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

    /// The witness of everything that follows.
    pub(crate) async fn witness(&self) -> Witness {
        Witness::begin(self.address, self.apiserver.address()).await
    }

    /// Checks the witness, then ends everything.
    pub(crate) async fn end(self, witness: Witness) {
        witness.check().await;
        self.ended().await;
    }

    pub(crate) fn begin_drain(&self) {
        self.gateway.begin_drain();
    }

    /// Waits for the end of a drain.
    pub(crate) async fn ended(self) {
        self.gateway.ended().await;
    }

    /// Asks the gateway and reads the whole answer.
    pub(crate) async fn send(&self, method: &str, target: &str) -> Response<Bytes> {
        self.ask(self.address, method, target).await
    }

    pub(crate) async fn get(&self, target: &str) -> Response<Bytes> {
        self.send("GET", target).await
    }

    pub(crate) async fn admin(&self, target: &str) -> Response<Bytes> {
        self.ask(self.admin, "GET", target).await
    }

    /// The same without the gateway.
    pub(crate) async fn ask_apiserver(&self, method: &str, target: &str) -> Response<Bytes> {
        self.ask(self.apiserver.address(), method, target).await
    }

    async fn ask(&self, server: SocketAddr, method: &str, target: &str) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{server}{target}"))
            .body(Full::default())
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request));
        let (head, body) = answer.await.unwrap().unwrap().into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await;
        Response::from_parts(head, body.unwrap().unwrap().to_bytes())
    }

    /// Writes an object at the API server.
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

/// Waits until something holds.
#[track_caller]
pub(crate) fn until<F: AsyncFn() -> bool>(
    what: &str,
    holds: F,
) -> impl Future<Output = ()> + use<'_, F> {
    let caller = std::panic::Location::caller();
    async move {
        let give_up_at = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < give_up_at, "never: {what}, for {caller}");
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }
}

/// The Status in an answer.
#[track_caller]
pub(crate) fn status(answer: &Response<Bytes>) -> Value {
    let status: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["code"], answer.status().as_u16(), "{status}");
    status
}
